//! What a person reads of a run on their own machine: times of the place, causes in full.

use crate::world::{World, copy_fixture};
use std::fs;

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
fn a_zone_is_known_by_its_name() {
    let name = "Asia/Kathmandu";
    if !camino::Utf8Path::new("/usr/share/zoneinfo").join(name).exists() {
        return crate::skipped("there is no zoneinfo");
    }
    let (world, _) = failed();
    world.run_with(&["history"], &[("TZ", name)]).tells(0, &["+05:45"]);
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

#[test]
fn a_step_is_one_line_and_files_come_when_asked_for() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    let shard = "global_step_2/actor/model_world_size_2_rank_0.pt";
    let whole = world.run(&["verify", "ckpt"]);
    whole.tells(
        0,
        &[
            "ckpt (root): whole\n  global_step_2: whole, ",
            "--depth full reads every byte",
        ],
    );
    assert_eq!(whole.out.lines().count(), 4, "{whole:#?}");
    world.run(&["verify", "ckpt", "--files"]).tells(0, &[shard]);
    world
        .run(&["verify", "ckpt", "-v"])
        .tells(0, &[shard, "proven: structure", "restores all"]);
    fs::write(world.path("ckpt").join(shard), "torn").unwrap();
    let said = world.run(&["verify", "ckpt"]);
    assert_eq!((said.code, said.out.lines().count()), (21, 4), "{said:#?}");
    let line = said.out.lines().find(|l| l.contains("global_step_2")).unwrap();
    assert!(
        line.contains("damaged, ") && line.contains("model_world_size_2_rank_0.pt: "),
        "{line}"
    );
}

#[test]
fn a_step_leads_to_its_root() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    let said = world.run(&["checkpoints", "ckpt/global_step_1"]);
    said.tells(0, &["/ckpt: step 2 is the newest whole step\nSTEP  VERDICT  SIZE"]);
    assert!(
        said.err
            .contains("ckpt/global_step_1 is a step; these are all steps of "),
        "{said:#?}"
    );
    world
        .run(&["checkpoints", "ckpt", "-v"])
        .tells(0, &["PROVEN", "exact", "the tracker file names step 2"]);
}

/// A run of two attempts: the first one printed lines with old and new times, the second one lines without any.
fn with_output() -> World {
    let world = World::new();
    world.write(
        "train.sh",
        "echo loading\necho more\necho '2001-02-03 04:05:06 old'\necho '  of the old line'\necho '2101-02-03 04:05:06 new'\necho '  of the new line'\n\
         [ -e once ] || { touch once; exit 1; }\n",
    );
    let retries = "supervisor.backoff.initial=10ms";
    let said = world.run(&[
        "run",
        "--set",
        "supervisor.trainer=plain",
        "--set",
        retries,
        "--",
        "/bin/sh",
        "train.sh",
    ]);
    assert_eq!(said.code, 0, "{said:#?}");
    world
}

#[test]
fn output_since_a_moment_leaves_out_what_is_known_to_be_older() {
    let world = with_output();
    let since = |at: &str, more: &[&str]| world.run(&[&["logs", "--since", at], more].concat());
    // All of a new attempt is new, whatever its lines say.
    let (all, one) = (since("1h", &[]), world.run(&["logs", "--attempt", "1"]));
    assert_eq!(all.out, one.out.repeat(2), "{all:#?}");
    assert_eq!(all.err, "note: attempt 2 follows\n");
    let launch = world.run(&["journal", "--kind", "intended.launch", "--json"]).out;
    let launch: serde_json::Value = serde_json::from_str(launch.lines().next().unwrap()).unwrap();
    let after = launch["wall"].as_i64().unwrap() + 1;
    let at = jiff::Timestamp::from_millisecond(after).unwrap().to_string();
    let said = since(&at, &["--attempt", "1"]);
    assert_eq!(
        said.out, "  of the old line\n2101-02-03 04:05:06 new\n  of the new line\n",
        "{said:#?}"
    );
    let doubt = "lines without a time are shown: no step of attempt 1 was seen before";
    assert!(said.err.contains(doubt), "{said:#?}");
    let json = since(&at, &["--attempt", "1", "--json"]);
    let first: serde_json::Value = serde_json::from_str(json.out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["line"], &first["text"]),
        (&4.into(), &"  of the old line".into())
    );
    let later = world.run(&["logs", "--since", "0s", "--attempt", "1"]);
    assert_eq!(later.out, "", "{later:#?}");
    assert!(later.err.contains("no output since "), "{later:#?}");
    world.run(&["logs", "--since", "soon"]).refuses(64, &["02:30"]);
    for command in ["logs", "journal"] {
        let said = world.run(&[command, "--since", "2101-01-01"]);
        said.refuses(64, &["it has not come yet: now is "]);
    }
    world.run(&["journal", "--since", "0s"]).tells(0, &[]);
}

#[test]
fn a_file_that_cannot_be_read_says_no_step() {
    let world = World::new();
    fs::create_dir(world.path("out")).unwrap();
    fs::write(world.path("out/ckpt.pt"), vec![0; 4096]).unwrap();
    let said = world.run(&["trainer", "check", "nanogpt", "out"]);
    assert!(
        said.out.contains("its step cannot be read") && !said.out.contains("step 0"),
        "{said:#?}"
    );
}

#[test]
fn leftovers_are_named_with_their_reason() {
    let world = World::new();
    let said = world.run(&["run", "--set", "supervisor.trainer=plain", "--", "/bin/true"]);
    assert_eq!(said.code, 0, "{said:#?}");
    let status = world.run(&["status", "--json"]).json();
    let aside = camino::Utf8Path::new(status[0]["run_dir"].as_str().unwrap()).join("aside/foreign");
    fs::create_dir_all(aside.join("global_step_4")).unwrap();
    fs::write(
        aside.join("global_step_4.json"),
        r#"{"foreign": true, "why": "a fresh start was ordered"}"#,
    )
    .unwrap();
    fs::write(aside.join("global_step_4.verified.jsonl"), "{}").unwrap();
    let said = world.run(&["gc", "--dry-run"]);
    said.tells(0, &["earlier step", "a fresh start was ordered", "proof record"]);
    let json = world.run(&["gc", "--dry-run", "--json"]).json();
    assert_eq!(json["leftovers"][0]["kind"], "foreign");
}
