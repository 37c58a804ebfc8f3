//! Settings files that nobody named.

use super::stage::{ATTACKER, Said, Stage, USER};
use std::os::unix::fs::symlink;

/// Settings that execute a program before anything else is known of the run.
fn planted(stage: &Stage) -> String {
    let program = stage.program("theirs.sh", &format!("#!/bin/sh\n{}\n", stage.mark()), ATTACKER);
    format!("trainer: plain\ncommand: [{program}]\non_event: {{command: [{program}]}}\n")
}

/// The command that the error proposes.
#[track_caller]
fn accepting(said: &Said) -> &str {
    let mut lines = said.err.lines();
    let line = lines.find_map(|line| line.split_once("to accept it: "));
    line.unwrap_or_else(|| panic!("no command is proposed: {said:#?}")).1
}

#[test]
fn a_planted_settings_file_executes_nothing_and_the_command_that_accepts_it_works() {
    let Some(stage) = Stage::new("a planted settings file") else {
        return;
    };
    let settings = planted(&stage);
    // A name that has to be quoted.
    stage.folder("it's mine", 0);
    stage.mode("it's mine", 0o777);
    stage.write("it's mine/supervise.yaml", &settings, ATTACKER);
    let file = stage.text("it's mine/supervise.yaml");
    for (run_dir, command) in [("run_dir=a", &["--", "true"][..]), ("run_dir=b", &[])] {
        let state = format!("supervisor.{run_dir}");
        let said = stage.run_in("it's mine", &[&["run", "--set", &state], command].concat());
        said.expect(78, &[&file, "belongs to", "uid 1000", "--settings"]);
        assert!(!stage.ran(), "{said:#?}");
        let said = stage.paste("it's mine", accepting(&said));
        said.expect(0, &[&format!("settings are read from {file}")]);
        assert!(stage.ran(), "{said:#?}");
    }
}

#[test]
fn every_command_that_prepares_a_run_refuses_it() {
    let Some(stage) = Stage::new("commands beside a planted settings file") else {
        return;
    };
    let settings = planted(&stage);
    stage.write("supervise.yaml", &settings, ATTACKER);
    stage.write("ppo.yaml", "trainer: {default_local_dir: ckpt, save_freq: 1}\n", 0);
    for words in [
        &["run", "ppo.yaml"][..],
        &["plan", "ppo.yaml"],
        &["config", "show", "ppo.yaml"],
        &["config", "show"],
        &["doctor", "ppo.yaml"],
        &["sbatch", "ppo.yaml"],
        &["install", "--systemd", "--print", "ppo.yaml"],
        &["policy", "show", "ppo.yaml"],
        &["notify", "--test", "ppo.yaml"],
        &["diagnose", "--config", "ppo.yaml", "/dev/null"],
    ] {
        let said = stage.run(words);
        said.expect(78, &["supervise.yaml belongs to", "uid 1000", "to accept it: "]);
        assert!(!stage.ran(), "{said:#?}");
    }
    // Whatever has no such option says what else can be done.
    let said = stage.run(&["checkpoints", "ppo.yaml"]);
    said.expect(78, &["supervise.yaml belongs to", "chown 0 "]);
    assert!(!said.err.contains("--settings"), "{said:#?}");
}

#[test]
fn only_a_file_that_nobody_else_may_write_is_read() {
    let Some(stage) = Stage::new("settings that others may write") else {
        return;
    };
    stage.write("supervise.yaml", "retries: 7\n", 0);
    let show = ["config", "show", "--json"];
    let is_read = |said: &Said| {
        said.expect(0, &[]);
        let view: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let lines = view["settings"].as_array().unwrap().iter();
        let mut retries = lines.filter(|line| line["key"] == "retries");
        assert_eq!(retries.next().unwrap()["value"], "7");
    };
    // The directory is everybody's: what another user puts in its place is that user's.
    is_read(&stage.run(&show));
    stage.mode("supervise.yaml", 0o646);
    stage
        .run(&show)
        .expect(78, &["everybody may write it (mode 646)", "chmod go-w "]);
    stage.mode("supervise.yaml", 0o664);
    stage.run(&show).expect(78, &["its group may write it (mode 664)"]);
    stage.mode("supervise.yaml", 0o644);
    // A link of another user leads to a file of our own that was meant for another place.
    stage.write("other.yaml", "retries: 7\n", 0);
    std::fs::remove_file(stage.path("supervise.yaml")).unwrap();
    symlink(stage.path("other.yaml"), stage.path("supervise.yaml")).unwrap();
    is_read(&stage.run(&show));
    stage.give("supervise.yaml", ATTACKER);
    stage.run(&show).expect(78, &["supervise.yaml belongs to", "uid 1000"]);
}

#[test]
fn a_user_is_told_once_of_a_file_that_the_group_may_write() {
    let Some(stage) = Stage::of(USER, "settings of a group") else {
        return;
    };
    stage.write("supervise.yaml", "trainer: plain\nrun_dir: run\n", USER);
    stage.mode("supervise.yaml", 0o664);
    for words in [&["run", "--", "true"][..], &["plan", "--", "true"], &["config", "show"]] {
        let said = stage.run(words);
        let told = "supervise.yaml may write it (mode 664)";
        said.expect(0, &[told, "chmod g-w"]);
        let all = format!("{}{}", said.out, said.err);
        assert_eq!(all.matches(told).count(), 1, "{said:#?}");
    }
    // Root's file counts for everybody, another user's for nobody.
    stage.mode("supervise.yaml", 0o644);
    stage.give("supervise.yaml", 0);
    stage
        .run(&["plan", "--", "true"])
        .expect(0, &["settings are read from"]);
    stage.give("supervise.yaml", ATTACKER);
    stage.run(&["plan", "--", "true"]).expect(78, &["uid 1000"]);
}

#[test]
fn a_named_settings_file_takes_the_place_of_the_one_beside() {
    let Some(stage) = Stage::new("named settings") else {
        return;
    };
    let settings = planted(&stage);
    stage.write("supervise.yaml", &settings, ATTACKER);
    stage.folder("sub", 0);
    stage.write("sub/mine.yaml", "trainer: plain\nretries: 3\n", 0);
    let plan = ["plan", "--json", "--settings", "sub/mine.yaml", "--", "true"];
    let said = stage.run(&plan);
    said.expect(0, &[]);
    let view: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(view["settings_files"], serde_json::json!([stage.text("sub/mine.yaml")]));
    stage
        .run(&["config", "show", "--settings", "sub/mine.yaml"])
        .expect(0, &["mine.yaml:2"]);
    for (file, why) in [("none.yaml", "there is no such file"), ("sub", "this is a directory")] {
        stage
            .run(&["plan", "--settings", file, "--", "true"])
            .expect(64, &["--settings", why]);
    }
    // The general file keeps its place, and the one beside it is asked for as ever.
    stage.folder("home/.config", 0);
    stage.folder("home/.config/supervise", 0);
    stage.write("home/.config/supervise/config.yaml", "retries: 9\n", ATTACKER);
    let general = stage.text("home/.config/supervise/config.yaml");
    stage.run(&plan).expect(78, &[&general, "to accept it: "]);
    let both = ["--settings", &general, "--settings", "sub/mine.yaml"];
    let said = stage.run(&[&["config", "show"][..], &both].concat());
    said.expect(0, &["mine.yaml:2"]);
    stage
        .run(&["config", "show", "--settings", &general])
        .expect(78, &[&stage.text("supervise.yaml"), "uid 1000"]);
}

#[test]
fn what_is_written_for_later_names_the_same_files() {
    let Some(stage) = Stage::new("named settings of a service") else {
        return;
    };
    stage.write("mine.yaml", "trainer: plain\ncommand: [\"true\"]\nrun_dir: run\n", 0);
    stage.write("x.yaml", "a: 1\n", 0);
    let file = stage.text("mine.yaml");
    stage
        .run(&["install", "--systemd", "--print", "x.yaml", "--settings", "mine.yaml"])
        .expect(0, &[&format!("\"--settings\" \"{file}\"")]);
    stage
        .run(&["sbatch", "x.yaml", "--settings", "mine.yaml"])
        .expect(0, &["run x.yaml --settings mine.yaml"]);
}
