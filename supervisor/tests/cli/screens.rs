//! What a person reads of a run on their own machine: times of the place, causes in full.

use crate::world::World;

/// East of Greenwich by an offset that no machine has by chance.
const ZONE: (&str, &str) = ("TZ", "<+0545>-5:45");

/// A run that failed with a long error.
fn failed() -> (World, String) {
    let world = World::new();
    let error = format!("RuntimeError: {}end of the error", "a long error ".repeat(12));
    world.write(
        "train.sh",
        &format!("echo 'Traceback (most recent call last):'\necho '{error}'\nexit 1\n"),
    );
    let settings = ["supervisor.trainer=plain", "supervisor.retries=0"];
    let said = world.run(&[
        "run",
        "--set",
        settings[0],
        "--set",
        settings[1],
        "--",
        "/bin/sh",
        "train.sh",
    ]);
    assert_ne!(said.code, 0, "{said:#?}");
    (world, error)
}

#[test]
fn times_are_local_in_text_and_utc_in_json() {
    let (world, _) = failed();
    for command in [["status"], ["history"]] {
        world.run_with(&command, &[ZONE]).tells(0, &["+05:45"]);
    }
    world
        .run_with(&["explain", "-v"], &[ZONE])
        .tells(0, &["+05:45 attempt 1: "]);
    let json = world.run_with(&["explain", "--json"], &[ZONE]);
    assert!(!json.out.contains("+05:45"), "{json:#?}");
    let said = json.json()["attempts"][1]["told"][0]["text"].to_string();
    assert!(said.contains("Z attempt 1: "), "{said}");
}

#[test]
fn a_cause_is_cut_on_a_terminal_only() {
    let (world, error) = failed();
    world.run(&["history"]).tells(0, &[&error]);
}
