//! The keeper: what a guard that is killed leaves behind is ended without it, and before anything else begins.

use super::rig::{Rig, eventually, fake, sh};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use supervise_core::event::ExitStatus;
use supervise_core::id::{ProcRef, RunId, WorkerId};
use supervise_host::address::{SocketRole, find, lives, peer};
use supervise_host::guard::protocol::{ToGuard, WorkerOrder};
use supervise_host::process::kill::signal_process;
use supervise_host::process::{end_run, find_attempt_processes, is_alive, list_descendants, proc_stat};
use supervise_tests::harness::Refusal;
use supervise_tests::hoppers::{GO, OUTLIVED};

/// A process in a session of its own, without an environment, that lives on in a child of its own again and again, and
/// writes a byte each time. It ends with its file.
fn hopper(file: &str) -> WorkerOrder {
    let hop = r#"[ -e "$F" ] && { echo >> "$F"; /bin/sh -c "$H" & }"#;
    sh(&format!(
        "echo > {file}; setsid env -i F={file} H='{hop}' /bin/sh -c 'eval \"$H\"' & exec sleep 1000"
    ))
}

fn size(file: &str) -> u64 {
    fs::metadata(file).map_or(0, |m| m.len())
}

/// It hopped for a while, and does not any more.
fn stands_still(file: &str) {
    let before = size(file);
    assert!(before > 5);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(size(file), before, "it lives on");
}

/// The daemon that wrote this heartbeat.
fn daemon(file: &str) -> ProcRef {
    let text = fs::read_to_string(file).unwrap();
    proc_stat(text.lines().next().unwrap().parse().unwrap())
        .unwrap()
        .proc_ref()
}

#[test]
fn what_a_killed_guard_leaves_is_ended_by_its_keeper() {
    for cgroup in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("heartbeat");
        let file = path.to_str().unwrap();
        let mut rig = Rig::start("keeper", |order| {
            order.workers = vec![fake(&["daemonize", file]), sh("exec sleep 1000")];
            order.cgroup = cgroup;
        });
        rig.launched();
        assert_eq!(rig.exit(), (WorkerId(0), ExitStatus::Code(0), true));
        let hidden = daemon(file);
        rig.kill_only_the_guard();
        // Nobody swept, and nothing was recorded that it would need.
        assert_eq!(rig.end(), Some(70));
        assert!(!is_alive(hidden));
        assert!(rig.leaf().is_none_or(|leaf| !leaf.exists()));
    }
}

#[test]
fn what_forks_to_get_away_is_ended_by_the_guard() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("hops");
    let file = path.to_str().unwrap();
    let mut rig = Rig::start("hop", |order| order.workers = vec![hopper(file)]);
    rig.launched();
    eventually(|| size(file) > 20);
    rig.say(ToGuard::KillTree);
    assert_eq!(rig.gone(), []);
    stands_still(file);
}

#[test]
fn what_forks_to_get_away_is_ended_by_the_keeper() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("hops");
    let file = path.to_str().unwrap();
    let mut rig = Rig::start("keeper-hop", |order| order.workers = vec![hopper(file)]);
    rig.launched();
    eventually(|| size(file) > 20);
    rig.kill_only_the_guard();
    assert_eq!(rig.end(), Some(70));
    stands_still(file);
    assert!(find_attempt_processes(&rig.run(), &[]).is_empty());
}

/// Many lines that hop as fast as they can. They end by themselves, and before they can use up the numbers of a machine where nobody reaps.
fn crowd(name: &str) -> (Rig, tempfile::TempDir) {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().to_str().unwrap();
    let mut rig = Rig::start(name, |order| order.workers = vec![fake(&["hop", "16", "1200", folder])]);
    rig.launched();
    eventually(|| list_descendants(rig.keeper()).len() > 16);
    fs::write(base.path().join(GO), "").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    (rig, base)
}

#[test]
fn many_that_fork_to_get_away_are_ended_by_the_guard() {
    let (mut rig, base) = crowd("crowd");
    rig.say(ToGuard::KillTree);
    assert_eq!(rig.gone(), []);
    assert!(!base.path().join(OUTLIVED).exists());
}

#[test]
fn many_that_fork_to_get_away_are_ended_by_the_keeper() {
    let (mut rig, base) = crowd("keeper-crowd");
    rig.kill_only_the_guard();
    assert_eq!(rig.end(), Some(70));
    assert!(!base.path().join(OUTLIVED).exists());
    assert!(find_attempt_processes(&rig.run(), &[]).is_empty());
}

#[test]
fn nothing_is_launched_beside_a_keeper() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("heartbeat");
    let file = path.to_str().unwrap();
    let mut rig = Rig::start("beside", |order| {
        order.workers = vec![fake(&["daemonize", file]), sh("exec sleep 1000")];
    });
    rig.launched();
    rig.exit();
    let hidden = daemon(file);
    let keeper = proc_stat(rig.keeper()).unwrap().proc_ref();
    assert!(signal_process(keeper, libc::SIGSTOP).unwrap());
    eventually(|| proc_stat(keeper.pid).unwrap().state == b'T');
    rig.kill_only_the_guard();
    assert!(is_alive(hidden));
    let mut second = rig.again();
    let (what, command) = second.failed();
    assert!(what.contains("keeper") && !command, "{what}");
    // Without a record: by descent from the keeper, which is not killed before it has nothing below it.
    let found = find_attempt_processes(&rig.run(), &[]);
    assert!(found.contains(&hidden) && found.contains(&keeper), "{found:?}");
    let run = rig.run();
    let left = end_run(&run, || find_attempt_processes(&run, &[]), Duration::from_secs(60));
    assert_eq!(left, []);
    assert!(!is_alive(hidden) && !is_alive(keeper));
}

#[test]
fn no_signal_but_one_ends_a_keeper_and_its_end_disturbs_nobody() {
    let mut rig = Rig::start("deaf", |order| order.workers = vec![sh("exec sleep 1000")]);
    let workers = rig.launched();
    let keeper = proc_stat(rig.keeper()).unwrap().proc_ref();
    for signal in [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGPIPE,
        libc::SIGTSTP,
    ] {
        assert!(signal_process(keeper, signal).unwrap());
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_alive(keeper));
    assert!(signal_process(keeper, libc::SIGKILL).unwrap());
    rig.end();
    assert!(is_alive(workers[0]));
    rig.say(ToGuard::KillTree);
    assert_eq!(rig.gone(), []);
}

/// Another user who has read how our names begin, and has taken some before us.
#[test]
fn a_name_that_another_user_took_keeps_nobody_from_a_launch() {
    let test = "a_name_that_another_user_took_keeps_nobody_from_a_launch";
    let run = RunId(format!("test-{}-squat", std::process::id()));
    let squat = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake_worker"));
        command
            .args(["listen", name])
            .uid(1000)
            .gid(1000)
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said)?;
        assert_eq!(said, "ready\n");
        std::io::Result::Ok(child)
    };
    let base = format!("supervise/{}/{run}", nix::unistd::geteuid());
    let names = ["guard", "guard/00", "keeper/00", "control"].map(|name| format!("{base}/{name}"));
    if !nix::unistd::geteuid().is_root() {
        return Refusal::new("it needs root to become somebody else").tell(test);
    }
    let squatters: std::io::Result<Vec<Child>> = names.iter().map(|name| squat(name)).collect();
    let mut squatters = match squatters {
        Ok(all) => all,
        Err(e) => return Refusal::new(&format!("another user cannot run our programs: {e}")).tell(test),
    };
    let mut rig = Rig::start("squat", |order| order.workers = vec![sh("exec sleep 1000")]);
    assert_eq!(rig.run(), run);
    rig.launched();
    for role in [SocketRole::Guard, SocketRole::Keeper] {
        let (name, stream) = find(&run, role).unwrap().unwrap();
        assert!(!names.contains(&name) && peer(&stream).is_some(), "{name}");
    }
    assert!(!lives(&run, SocketRole::Control));
    rig.say(ToGuard::KillTree);
    assert_eq!(rig.gone(), []);
    for child in &mut squatters {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
