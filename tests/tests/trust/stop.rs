//! What others may have written in a run directory names no process, job or file that we act on.

use super::stage::{ATTACKER, Stage, USER, give_all};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use supervise_host::process::proc_stat;

/// A process that has nothing to do with any run.
struct Bystander(Child);

impl Bystander {
    fn new(user: u32) -> Self {
        Self(Command::new("sleep").arg("1000").uid(user).gid(user).spawn().unwrap())
    }

    /// Its line in a guard's record.
    fn line(&self) -> String {
        let proc = proc_stat(i32::try_from(self.0.id()).unwrap()).unwrap().proc_ref();
        format!(
            "{{\"pid\":{},\"start\":{},\"ppid\":1,\"command\":\"sleep\"}}\n",
            proc.pid, proc.start
        )
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const RUN: [&str; 7] = [
    "run",
    "--set",
    "supervisor.trainer=plain",
    "--set",
    "supervisor.run_dir=place/run",
    "--",
    "true",
];

/// A run of the stage's user that ended, in a place that all share; the record of its processes.
fn ended(stage: &Stage, user: u32) -> PathBuf {
    stage.folder("place", user);
    stage.mode("place", 0o777);
    stage.run(&RUN).expect(0, &[]);
    let tree = stage.path("place/run/attempts/0001/tree");
    assert!(fs::read_to_string(&tree).unwrap().contains("boot"));
    tree
}

fn add(tree: &PathBuf, line: &str) {
    let text = fs::read_to_string(tree).unwrap();
    fs::write(tree, text + line).unwrap();
}

#[test]
fn a_process_that_others_may_have_written_down_is_not_killed() {
    for user in [0, USER] {
        let name = "stopping a run that others may write";
        let stage = if user == 0 {
            Stage::new(name)
        } else {
            Stage::of(user, name)
        };
        let Some(stage) = stage else { return };
        let tree = ended(&stage, user);
        let mut victim = Bystander::new(user);
        add(&tree, &victim.line());
        let run = stage.text("place/run");
        let stop = ["stop", "--now", &run];
        let mode = |path: &str, mode| stage.mode(path, mode);
        // Everybody may write the record, or put another one in its place; or somebody else did.
        for (path, open, shut, why) in [
            ("place/run/attempts/0001/tree", 0o666, 0o600, "everybody may write it"),
            ("place/run/attempts/0001", 0o777, 0o700, "everybody may write in it"),
            ("place/run/attempts", 0o777, 0o700, "everybody may write in it"),
            ("place/run", 0o777, 0o700, "everybody may write in it"),
            ("place/run/journal/1.jsonl", 0o666, 0o600, "everybody may write it"),
        ] {
            mode(path, open);
            stage.run(&stop).expect(69, &[path, why, "chmod -R go-w"]);
            assert!(victim.lives(), "{path}");
            mode(path, shut);
        }
        stage.give("place/run/attempts/0001/tree", ATTACKER);
        stage.mode("place/run/attempts/0001/tree", 0o644);
        stage.run(&stop).expect(69, &["tree belongs to", "uid 1000"]);
        assert!(victim.lives());
        stage.give("place/run/attempts/0001/tree", user);
        // What the error proposes opens the gate; and what only we can have written is believed.
        mode("place/run", 0o777);
        stage.paste("", &format!("chmod -R go-w {run}")).expect(0, &[]);
        stage.run(&stop).expect(0, &["is ended"]);
        assert!(!victim.lives());
    }
}

#[test]
fn a_group_that_may_write_the_record_names_no_process() {
    let Some(stage) = Stage::new("stopping a run of a group") else {
        return;
    };
    let tree = ended(&stage, 0);
    let mut victim = Bystander::new(0);
    add(&tree, &victim.line());
    stage.mode("place/run/attempts/0001/tree", 0o660);
    stage
        .run(&["stop", "--now", &stage.text("place/run")])
        .expect(0, &["nothing of it lives"]);
    assert!(victim.lives());
}

#[test]
fn no_command_acts_on_another_users_run() {
    let Some(stage) = Stage::of(USER, "acting on another user's run") else {
        return;
    };
    let tree = ended(&stage, USER);
    let mut victim = Bystander::new(USER);
    add(&tree, &victim.line());
    give_all(&stage.path("place/run"), ATTACKER);
    // As whoever wants it to be read by the victim.
    for path in ["", "/journal", "/spec", "/attempts", "/attempts/0001", "/lease"] {
        stage.mode(&format!("place/run{path}"), 0o777);
    }
    for path in ["run.id", "journal/1.jsonl", "spec/1.json", "attempts/0001/tree"] {
        stage.mode(&format!("place/run/{path}"), 0o666);
    }
    let run = stage.text("place/run");
    let before = fs::read_dir(stage.path("place/run/journal")).unwrap().count();
    for words in [
        &["stop", "--now"][..],
        &["stop"],
        &["hold"],
        &["unhold"],
        &["resume"],
        &["rollback", "--to", "2", "--dry-run"],
        &["gc", "--yes"],
    ] {
        let said = stage.run(&[words, &[&run]].concat());
        said.expect(69, &["uid 1000", "is left alone"]);
    }
    // Looking is everybody's right.
    stage.run(&["status", &run]).expect(0, &[]);
    stage.run(&RUN).expect(69, &["belongs to user"]);
    assert!(victim.lives());
    assert_eq!(fs::read_dir(stage.path("place/run/journal")).unwrap().count(), before);
}

#[test]
fn a_start_ends_nothing_that_others_may_have_written_down() {
    let Some(stage) = Stage::new("starting a run that others may write") else {
        return;
    };
    let tree = ended(&stage, 0);
    let mut victim = Bystander::new(0);
    add(&tree, &victim.line());
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o666)).unwrap();
    let said = stage.run(&RUN);
    said.expect(0, &["tree", "no process is taken for the run's own"]);
    assert!(victim.lives(), "{said:#?}");
}
