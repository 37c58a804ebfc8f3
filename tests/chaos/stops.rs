//! A stop at a random moment: signals and `supervise stop`, with what a run leans on taken away before.

use super::Round;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use supervise_tests::harness::{Mount, Scene, Supervisor, in_scene, send};

/// A stop that takes longer is none; nothing here needs a tenth of it.
const LIMIT: Duration = Duration::from_secs(60);

/// Trouble at the time of the stop.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Nothing,
    FullDisk,
    NoJournalWorker,
    NoFileWorker,
    FrozenWorkers,
}

impl Trouble {
    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "stops",
            Self::FullDisk => "stops on a full disk",
            Self::NoJournalWorker => "stops without a journal worker",
            Self::NoFileWorker => "stops without a file worker",
            Self::FrozenWorkers => "stops beside I/O workers that hang",
        }
    }
}

pub(crate) fn round(round: &mut Round) {
    let mut scene = Scene::new(round.supervise());
    let trouble = *round
        .pick(&[
            Trouble::Nothing,
            Trouble::FullDisk,
            Trouble::NoJournalWorker,
            Trouble::NoFileWorker,
            Trouble::FrozenWorkers,
        ])
        .unwrap();
    scene
        .set("demo.step_ms", json!(20 + round.below(80)))
        .set("demo.save_ms", json!(round.below(100)))
        .set("trainer.total_training_steps", json!(100_000))
        .set("trainer.max_actor_ckpt_to_keep", Value::Null)
        .set("supervisor.grace", json!({"orphan": "3s", "save": "2s", "stop": "2s"}));
    let disk = match trouble {
        Trouble::FullDisk => match Mount::tiny(&scene, "tiny", 9 << 20) {
            Ok(disk) => {
                scene
                    .set_root(&disk.point.join("checkpoints"))
                    .set("demo.hidden", json!([256, 384]));
                Some(disk)
            }
            Err(refusal) => {
                refusal.tell("a stop on a full disk");
                None
            }
        },
        _ => None,
    };
    let mut run = scene.start(&[]);
    if let Some(disk) = &disk {
        wait_until_full(&disk.point, &mut run);
    }
    round.pause(3_000);
    // Before that, a signal ends it as it ends any program, or is ignored in the background of a shell.
    supervise_tests::harness::wait_for("the supervisor listens", || {
        run.text().contains("term 1 begins") || run.has_ended()
    });
    let frozen = make(trouble, &scene);
    let way = stop(round, &scene, &run);
    wait(&mut run, &format!("{trouble:?}, {way}"));
    let code = run.wait().code;
    assert!(
        matches!(code, Some(7 | 130 | 143 | 69 | 3 | 6)),
        "exit code {code:?} after {trouble:?}, {way}"
    );
    frozen.iter().for_each(|pid| send(*pid, libc::SIGCONT));
    scene.assert_alone();
    round.count(trouble.words(), 1);
}

/// The first save that finds no room is a matter of seconds; a run that ends by itself is not waited for.
fn wait_until_full(point: &std::path::Path, run: &mut Supervisor) {
    let full = || {
        let free = nix::sys::statvfs::statvfs(point).unwrap();
        free.blocks_available() * free.fragment_size() < 300_000
    };
    supervise_tests::harness::wait_for("the disk is full, or the run ends", || full() || run.has_ended());
}

fn make(trouble: Trouble, scene: &Scene) -> Vec<i32> {
    let part = match trouble {
        Trouble::Nothing | Trouble::FullDisk => return Vec::new(),
        Trouble::NoJournalWorker => "__io_worker journal",
        Trouble::NoFileWorker => "__io_worker work",
        Trouble::FrozenWorkers => "__io_worker",
    };
    let freezes = matches!(trouble, Trouble::FrozenWorkers);
    let found: Vec<i32> = in_scene(&scene.mark())
        .into_iter()
        .filter(|(_, line)| line.contains(part))
        .map(|(pid, _)| pid)
        .collect();
    for pid in &found {
        send(*pid, if freezes { libc::SIGSTOP } else { libc::SIGKILL });
    }
    found
}

fn stop(round: &mut Round, scene: &Scene, run: &Supervisor) -> &'static str {
    match round.below(4) {
        0 => {
            run.signal(libc::SIGTERM);
            "SIGTERM"
        }
        1 => {
            run.signal(libc::SIGINT);
            "SIGINT"
        }
        2 => {
            run.signal(libc::SIGINT);
            round.pause(400);
            run.signal(libc::SIGINT);
            "two SIGINT"
        }
        _ => {
            let root = scene.root();
            // It may come before the run can be asked; then the signal is what a person would send next.
            let asked = scene.ask(&["stop", root.to_str().unwrap(), "--now"]);
            if asked.code != Some(0) {
                run.signal(libc::SIGTERM);
            }
            "supervise stop --now"
        }
    }
}

fn wait(run: &mut Supervisor, what: &str) {
    let began = Instant::now();
    while !run.has_ended() {
        assert!(
            began.elapsed() < LIMIT,
            "not ended {} s after {what}:\n{}",
            LIMIT.as_secs(),
            run.text()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
