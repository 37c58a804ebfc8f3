//! SIGKILL to whatever belongs to a run, several times in a run, early and late.

use super::Round;
use serde_json::json;
use supervise_tests::harness::{Scene, Supervisor, in_scene, send};

/// Target of a kill: a part of its command line.
const TARGETS: [(&str, &str); 7] = [
    ("supervisors", " run "),
    ("guards", " __guard"),
    ("keepers", " __keeper"),
    ("journal workers", " __io_worker journal"),
    ("file workers", " __io_worker work"),
    ("log writers", " __log_writer"),
    ("trainers", "demo_trainer"),
];
/// Terms without a new proven step end a run, by design: so many kills may come without one.
const WITHOUT_PROGRESS: u32 = 2;

pub(crate) fn round(round: &mut Round) {
    let mut scene = Scene::new(round.supervise());
    scene
        .set("demo.step_ms", json!(15 + round.below(60)))
        .set("demo.save_ms", json!(round.below(40)))
        .set("trainer.total_training_steps", json!(40))
        .set("supervisor.retries", json!(100));
    let expected = scene.expected_digest();
    let mut run = scene.start(&[]);
    let kills = 2 + round.below(5);
    let (mut mark, mut barren) = (0, 0);
    for _ in 0..kills {
        round.pause(600);
        if barren >= WITHOUT_PROGRESS {
            wait_for_progress(&scene, &mut run, mark);
        }
        let proven = scene.proven();
        barren = if proven > mark { 1 } else { barren + 1 };
        mark = proven;
        if run.has_ended() {
            break;
        }
        run = kill_one(round, &scene, run);
    }
    run.wait().expect(0);
    assert_eq!(
        scene.digest(),
        Some(expected),
        "the weights differ from those of an uninterrupted run"
    );
    scene.assert_alone();
    round.count("attempts", scene.attempts() as u64);
}

fn wait_for_progress(scene: &Scene, run: &mut Supervisor, mark: u64) {
    supervise_tests::harness::wait_for("a new step is proven, or the run ends", || {
        scene.proven() > mark || run.has_ended()
    });
}

/// Kills one process of the run; a supervisor is started again.
fn kill_one(round: &mut Round, scene: &Scene, run: Supervisor) -> Supervisor {
    let living = in_scene(&scene.mark());
    let (what, part) = *round.pick(&TARGETS).unwrap();
    if what == "supervisors" {
        round.count("supervisors", 1);
        run.kill();
        round.pause(200);
        return scene.start(&[]);
    }
    let found: Vec<i32> = living
        .iter()
        .filter(|(_, line)| line.contains(part))
        .map(|(pid, _)| *pid)
        .collect();
    if let Some(pid) = round.pick(&found) {
        round.count(what, 1);
        send(*pid, 9);
    }
    run
}
