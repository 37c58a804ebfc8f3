//! `supervise run` from end to end: the real program on the demo trainer, with everything that goes wrong.
//!
//! Every scene is small and seeded. Moments at which something is killed are random but follow from a number; what
//! must hold afterwards does not depend on them. A test that needs a trainer that lives and does not get on holds it
//! before a step (`demo.hold_at`) instead of racing with it.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "run/advise.rs"]
mod advise;
#[path = "run/cards.rs"]
mod cards;
#[path = "run/declared.rs"]
mod declared;
#[path = "run/demo.rs"]
mod demo;
#[path = "run/diagnosed.rs"]
mod diagnosed;
#[path = "run/elsewhere.rs"]
mod elsewhere;
#[path = "run/endings.rs"]
mod endings;
#[path = "run/ends.rs"]
mod ends;
#[path = "run/evidence.rs"]
mod evidence;
#[path = "run/filesystem.rs"]
mod filesystem;
#[path = "run/forks.rs"]
mod forks;
#[path = "run/full.rs"]
mod full;
#[path = "run/gc.rs"]
mod gc;
#[path = "run/gpus.rs"]
mod gpus;
#[path = "run/growth.rs"]
mod growth;
#[path = "run/hangs.rs"]
mod hangs;
#[path = "run/health.rs"]
mod health;
#[path = "run/held.rs"]
mod held;
#[path = "run/io_workers.rs"]
mod io_workers;
#[path = "run/jobs.rs"]
mod jobs;
#[path = "run/journals.rs"]
mod journals;
#[path = "run/kills.rs"]
mod kills;
#[path = "run/limits.rs"]
mod limits;
#[path = "run/lineage.rs"]
mod lineage;
#[path = "run/metrics.rs"]
mod metrics;
#[path = "run/notices.rs"]
mod notices;
#[path = "run/output.rs"]
mod output;
#[path = "run/places.rs"]
mod places;
#[path = "run/plain.rs"]
mod plain;
#[path = "run/ports.rs"]
mod ports;
#[path = "run/prometheus.rs"]
mod prometheus;
#[path = "run/readers.rs"]
mod readers;
#[path = "run/refused.rs"]
mod refused;
#[path = "run/rehearsals.rs"]
mod rehearsals;
#[path = "run/retention.rs"]
mod retention;
#[path = "run/rollback.rs"]
mod rollback;
#[path = "run/saves.rs"]
mod saves;
#[path = "run/scripts.rs"]
mod scripts;
#[path = "run/seen.rs"]
mod seen;
#[path = "run/serve.rs"]
mod serve;
#[path = "run/serve_back.rs"]
mod serve_back;
#[path = "run/serve_hung.rs"]
mod serve_hung;
#[path = "run/serve_live.rs"]
mod serve_live;
#[path = "run/serve_next.rs"]
mod serve_next;
#[path = "run/serve_view.rs"]
mod serve_view;
#[path = "run/service.rs"]
mod service;
#[path = "run/stacks.rs"]
mod stacks;
#[path = "run/standby.rs"]
mod standby;
#[path = "run/standby_left.rs"]
mod standby_left;
#[path = "run/stops.rs"]
mod stops;
#[path = "run/stuck.rs"]
mod stuck;
#[path = "run/told.rs"]
mod told;
#[path = "run/top.rs"]
mod top;
#[path = "run/undead.rs"]
mod undead;
#[path = "run/unmarked.rs"]
mod unmarked;
#[path = "run/ways.rs"]
mod ways;
#[path = "run/ways_odd.rs"]
mod ways_odd;

use supervise_tests::harness::{Scene, eventually};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");

fn scene() -> Scene {
    Scene::new(SUPERVISE)
}

/// Waits until all ranks of a gang of two live and the journal says so.
#[track_caller]
fn running(scene: &Scene) -> Vec<i32> {
    eventually("two workers run", || {
        let workers = scene.workers();
        (workers.len() == 2).then_some(workers)
    })
}

/// Waits until a step is saved: the trainer's pointer names it.
#[track_caller]
fn saved(scene: &Scene, step: u64) {
    eventually(&format!("step {step} is saved"), || {
        (scene.tracked()? >= step).then_some(())
    });
}

/// A run that was stopped while it was held before step 9: steps 2, 4, 6, 8 are there.
fn stopped_at_eight() -> (Scene, String) {
    let mut scene = scene();
    scene.set("demo.hold_at", serde_json::json!(9));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    saved(&scene, 8);
    run.signal(15);
    run.wait().expect(143);
    scene.go();
    (scene, expected)
}
