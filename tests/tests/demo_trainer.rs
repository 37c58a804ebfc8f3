//! The demo trainer by itself, without a supervisor: it learns, it is exact where it is
//! resumed well and not where it is not, and it has the flaws of the trainer it plays.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

const WORLD: usize = 4;

/// A directory with a run in it.
struct Run {
    folder: tempfile::TempDir,
    attempts: usize,
}

/// Processes that end with the test.
struct Gang {
    ranks: Vec<Child>,
    output: PathBuf,
}

struct Ended {
    codes: Vec<Option<i32>>,
    text: String,
}

impl Run {
    fn new() -> Self {
        Run {
            folder: tempfile::tempdir().unwrap(),
            attempts: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("demo-run").join(name)
    }

    fn step(&self, step: u64) -> PathBuf {
        self.path("checkpoints").join(format!("global_step_{step}"))
    }

    fn tracker(&self) -> PathBuf {
        self.path("checkpoints/latest_checkpointed_iteration.txt")
    }

    fn launch(&mut self, overrides: &[&str]) -> Gang {
        self.attempts += 1;
        // Ports are handed out again, so a gang must be known by more than its port.
        let token = format!("{}/1/{}", self.folder.path().display(), self.attempts);
        let output = self.folder.path().join(format!("output.{}", self.attempts));
        fs::create_dir_all(&output).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configs/demo.yaml");
        let ranks = (0..WORLD)
            .map(|rank| {
                let file = |name: &str| File::create(output.join(format!("{rank}.{name}"))).unwrap();
                Command::new(env!("CARGO_BIN_EXE_demo_trainer"))
                    .current_dir(self.folder.path())
                    .arg("--config")
                    .arg(&config)
                    .args(["demo.step_ms=0", "demo.hidden=[24,16]", "demo.faults=[]"])
                    .args(["trainer.max_actor_ckpt_to_keep=null"])
                    .args(overrides)
                    .env("RANK", rank.to_string())
                    .env("WORLD_SIZE", WORLD.to_string())
                    .env("MASTER_ADDR", "127.0.0.1")
                    .env("MASTER_PORT", port.to_string())
                    .env("SUPERVISE_ATTEMPT", &token)
                    .stdin(Stdio::null())
                    .stdout(file("out"))
                    .stderr(file("err"))
                    .spawn()
                    .unwrap()
            })
            .collect();
        Gang { ranks, output }
    }

    fn train(&mut self, overrides: &[&str]) -> Ended {
        self.launch(overrides).wait()
    }

    fn digest(&self) -> String {
        fs::read_to_string(self.path("digest.txt")).unwrap()
    }

    /// Trains with one fault and returns how that attempt ended.
    fn train_into(&mut self, fault: &str) -> Ended {
        self.train(&[&format!("demo.faults=[{fault}]")])
    }
}

impl Gang {
    fn wait(mut self) -> Ended {
        let codes = self.ranks.iter_mut().map(|r| code(r.wait().unwrap())).collect();
        Ended {
            codes,
            text: self.text(),
        }
    }

    fn text(&self) -> String {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.output).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| fs::read_to_string(f).unwrap()).collect()
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Signals count as negative, as Python has them.
fn code(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or(status.signal().map(|s| -s))
}

fn wait_for(path: &Path) {
    supervise_tests::harness::wait_for(&path.display().to_string(), || path.exists());
}

const GOOD: [Option<i32>; WORLD] = [Some(0); WORLD];

fn straight() -> (Run, String) {
    let mut run = Run::new();
    let ended = run.train(&[]);
    assert_eq!(ended.codes, GOOD, "{}", ended.text);
    let digest = run.digest();
    (run, digest)
}

#[test]
fn it_learns_and_one_seed_gives_one_result() {
    let (run, digest) = straight();
    assert_eq!(straight().1, digest);
    let losses = fs::read_to_string(run.path("losses.jsonl")).unwrap();
    let losses: Vec<f64> = losses
        .lines()
        .map(|l| {
            serde_json::from_str::<serde_json::Value>(l).unwrap()["loss"]
                .as_f64()
                .unwrap()
        })
        .collect();
    assert_eq!(losses.len(), 14);
    assert!(losses[13] < losses[0] * 0.9, "{losses:?}");

    let mut other = Run::new();
    other.train(&["demo.seed=21"]);
    assert_ne!(other.digest(), digest);
}

#[test]
fn it_saves_what_the_trainer_it_plays_saves() {
    let mut run = Run::new();
    let ended = run.train(&["trainer.max_actor_ckpt_to_keep=3"]);
    assert!(ended.text.contains("Training from scratch"));
    assert!(ended.text.contains("step:14 - training/global_step:14 - "));
    assert!(ended.text.contains("Final validation metrics: "));
    assert_eq!(fs::read_to_string(run.tracker()).unwrap(), "14");
    assert_eq!(
        fs::read_to_string(run.step(14).join("actor/fsdp_config.json")).unwrap(),
        "{\n    \"FSDP_version\": 1,\n    \"world_size\": 4\n}"
    );
    for part in ["model", "optim", "extra_state"] {
        for rank in 0..WORLD {
            let name = format!("actor/{part}_world_size_4_rank_{rank}.pt");
            supervise_tests::torch_file::read(&run.step(14).join(name)).unwrap();
        }
    }
    let roles: Vec<u64> = (2..=14).filter(|s| run.step(*s).join("actor").exists()).collect();
    assert_eq!(roles, [10, 12, 14]);
    assert!(run.step(4).join("data.pt").exists(), "retention leaves a husk");
}

#[test]
fn an_exact_resume_ends_with_the_same_digest_and_any_loss_with_another() {
    let (first, digest) = straight();
    let resume = |overrides: &[&str]| {
        let mut run = Run::new();
        let from = format!("trainer.resume_from_path='{}'", first.step(6).display());
        let mut all = vec!["trainer.resume_mode=resume_path", &from];
        all.extend_from_slice(overrides);
        let ended = run.train(&all);
        assert_eq!(ended.codes, GOOD, "{}", ended.text);
        assert!(ended.text.contains("setting global step to 6"));
        run.digest()
    };
    let contents = "actor_rollout_ref.actor.checkpoint.load_contents";
    assert_eq!(resume(&[&format!("{contents}=['model','optimizer',extra]")]), digest);
    assert_eq!(resume(&["trainer.val_before_train=False"]), digest);
    for lost in ["[model,extra]", "[model,optimizer]", "[optimizer,extra]", "[]"] {
        assert_ne!(resume(&[&format!("{contents}={lost}")]), digest, "{lost}");
    }
    fs::remove_file(first.step(6).join("data.pt")).unwrap();
    assert_ne!(resume(&[]), digest, "the order of samples was lost");
}

#[test]
fn a_killed_rank_ends_the_gang_and_auto_resume_is_exact() {
    let (_, digest) = straight();
    let mut run = Run::new();
    let ended = run.train_into("{step:5,kind:kill_rank,rank:2}");
    assert_eq!(ended.codes, [Some(1), Some(1), Some(-9), Some(1)]);
    assert!(ended.text.contains("Connection closed by peer"));
    let ended = run.train_into("{step:5,kind:kill_rank,rank:2}");
    assert_eq!(ended.codes, GOOD, "a fault happens once: {}", ended.text);
    assert!(ended.text.contains("setting global step to 4"));
    assert_eq!(run.digest(), digest);
    assert!(!run.path("writers/violations").exists());
}

#[test]
fn a_torn_save_defeats_auto_resume_in_every_way() {
    let mut run = Run::new();
    let ended = run.train_into("{step:8,kind:kill_all_mid_save}");
    assert_eq!(ended.codes, [Some(-9); WORLD]);
    assert!(run.step(8).join("actor/fsdp_config.json").exists());

    let empty = run.train(&[]);
    assert_eq!(empty.codes[0], Some(1));
    assert!(
        empty
            .text
            .contains("ValueError: invalid literal for int() with base 10: ''")
    );

    fs::write(run.tracker(), "8").unwrap();
    let torn = run.train(&[]);
    assert!(torn.codes.iter().all(|c| *c == Some(1)));
    assert!(torn.text.contains("failed finding central directory"), "{}", torn.text);

    fs::remove_file(run.step(8).join("actor/model_world_size_4_rank_1.pt")).unwrap();
    let missing = run.train(&[]);
    assert!(
        missing
            .text
            .contains("FileNotFoundError: [Errno 2] No such file or directory: '")
    );

    fs::remove_file(run.tracker()).unwrap();
    let scratch = run.train(&["trainer.total_training_steps=1"]);
    assert_eq!(scratch.codes, GOOD);
    assert!(scratch.text.contains("Training from scratch"));
}

#[test]
fn a_flipped_bit_is_loaded_in_silence_and_changes_the_result() {
    let (_, digest) = straight();
    let mut run = Run::new();
    assert_eq!(run.train_into("{step:10,kind:flip_byte}").codes, [Some(-9); WORLD]);
    assert_eq!(run.train(&[]).codes, GOOD);
    assert_ne!(run.digest(), digest);
}

#[test]
fn exceptions_repeat_where_they_should_and_early_exits_look_good() {
    let mut run = Run::new();
    let overrides = ["demo.faults=[{step:3,kind:exception,rank:0}]", "demo.repeat_fault=true"];
    for _ in 0..2 {
        let ended = run.train(&overrides);
        assert_eq!(ended.codes, [Some(1); WORLD]);
        assert!(ended.text.contains("Traceback (most recent call last):"));
        assert!(ended.text.contains("RuntimeError: injected failure at step 3"));
    }
    assert_eq!(run.train_into("{step:5,kind:exit0_early}").codes, GOOD);
    assert!(!run.path("digest.txt").exists());
}

#[test]
fn a_second_trainer_is_the_trainers_own_finding() {
    let mut run = Run::new();
    let hanging = run.launch(&["demo.faults=[{step:3,kind:hang,rank:1}]"]);
    wait_for(&run.path("faults/00-hang-step_3"));
    let second = run.train(&[]);
    assert_eq!(second.codes, [Some(3); WORLD], "{}", second.text);
    let violations = fs::read_to_string(run.path("writers/violations")).unwrap();
    assert_eq!(violations.lines().count(), WORLD);
    assert!(!hanging.text().contains("step:3 - "));
    drop(hanging);

    fs::remove_file(run.path("writers/violations")).unwrap();
    assert_eq!(run.train(&[]).codes, GOOD, "the claims of the killed are stale");
    assert!(!run.path("writers/violations").exists());
}

#[test]
fn one_escapes_and_does_not_look_like_ours() {
    let mut run = Run::new();
    let ended = run.train_into("{step:2,kind:retitle_setsid_fork,rank:1}");
    assert_eq!(ended.codes, GOOD, "{}", ended.text);
    let heartbeat = run.path("escaped/step_2.rank_1");
    let pid = fs::read_to_string(&heartbeat).unwrap();
    let pid = pid.lines().next().unwrap().to_owned();
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap();
    let title = read("cmdline");
    let environment = read("environ");
    fs::remove_file(&heartbeat).unwrap();
    assert!(title.starts_with(b"engine::core worker"));
    assert!(!title.windows(12).any(|w| w == b"demo_trainer"));
    assert!(environment.iter().all(|b| *b == 0));
}

#[test]
fn wrong_settings_end_with_one() {
    let mut run = Run::new();
    let unknown = run.train(&["trainer.nope=1"]);
    assert_eq!(unknown.codes, [Some(1); WORLD]);
    assert!(unknown.text.contains("Could not override 'trainer.nope=1'"));
    let world = run.train(&["trainer.n_gpus_per_node=8"]);
    assert!(
        world
            .text
            .contains("Total available GPUs 4 is less than total desired GPUs 8")
    );
}
