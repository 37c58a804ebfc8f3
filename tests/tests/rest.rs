//! What is asked of the program beside its runs by whoever means it harm, or only stops what belongs to it: helpers that are stopped,
//! journals of another release, pages that are held open, words that a script cannot hold.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "rest/evidence.rs"]
mod evidence;
#[path = "rest/globals.rs"]
mod globals;
#[path = "rest/io_workers.rs"]
mod io_workers;
#[path = "rest/newer_journals.rs"]
mod newer_journals;
#[path = "rest/pages.rs"]
mod pages;
#[path = "rest/sbatch.rs"]
mod sbatch;

use supervise_tests::harness::{Scene, eventually};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");

fn scene() -> Scene {
    Scene::new(SUPERVISE)
}

/// Waits until all ranks of a gang of two live.
#[track_caller]
fn running(scene: &Scene) -> Vec<i32> {
    eventually("two workers run", || {
        let workers = scene.workers();
        (workers.len() == 2).then_some(workers)
    })
}

/// A run that was stopped while it was held before step 9: steps 2, 4, 6, 8 are there.
fn stopped_at_eight() -> Scene {
    let mut scene = scene();
    scene.set("demo.hold_at", serde_json::json!(9));
    let run = scene.start(&[]);
    eventually("step 8 is saved", || (scene.tracked()? >= 8).then_some(()));
    run.signal(15);
    run.wait().expect(143);
    scene.go();
    scene
}

/// The state letter of a process.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
