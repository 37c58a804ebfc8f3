//! The guard with real processes: what it starts, hears, keeps and ends.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "guard/connection.rs"]
mod connection;
#[path = "guard/keeper.rs"]
mod keeper;
#[path = "guard/offered.rs"]
mod offered;
#[path = "guard/rig.rs"]
mod rig;

use std::fs;
use std::process::Command;

use rig::{Rig, eventually, fake, sh};
use supervise_core::event::ExitStatus;
use supervise_core::event::scan::{RuleKind, ScanRule};
use supervise_core::id::{ProcRef, WorkerId};
use supervise_host::address::connect;
use supervise_host::guard::protocol::{FromGuard, ToGuard};
use supervise_host::process::kill::signal_process;
use supervise_host::process::{find_attempt_processes, is_alive, list_descendants, proc_stat};

#[test]
fn exits_are_reported_exactly_and_in_order() {
    let mut rig = Rig::start("exits", |order| {
        order.workers = vec![
            sh("exec sleep 1000"),
            fake(&["exit", "7"]),
            fake(&["segv"]),
            sh("kill -64 $$"),
        ];
    });
    let workers = rig.launched();
    assert_eq!(workers.len(), 4);
    let mut ends = Vec::new();
    while ends.len() < 3 {
        ends.push(rig.exit());
    }
    assert_eq!(ends.iter().map(|e| e.2).collect::<Vec<_>>(), [true, false, false]);
    ends.sort_by_key(|e| e.0);
    let ends: Vec<_> = ends.iter().map(|e| (e.0.0, e.1)).collect();
    let expected = [
        (1, ExitStatus::Code(7)),
        (2, ExitStatus::Signal(libc::SIGSEGV)),
        (3, ExitStatus::Signal(64)),
    ];
    assert_eq!(ends, expected);
    assert!(is_alive(workers[0]));
    rig.say(ToGuard::Signal { signal: 15 });
    assert_eq!(rig.exit(), (WorkerId(0), ExitStatus::Signal(15), false));
    assert_eq!(rig.gone(), []);
    rig.say(ToGuard::Bye);
    assert_eq!(rig.end(), Some(0));
}

#[test]
fn a_leader_is_reported_while_its_children_live_and_they_are_ended_after_it() {
    let mut rig = Rig::start("leader", |order| {
        order.workers = vec![sh("sleep 1000 & echo child $!; exit 3")];
        order.rules = vec![ScanRule::new("child", r"^child (\d+)", RuleKind::Resumed)];
    });
    rig.launched();
    let sighting = rig.sighted("child");
    let child = proc_stat(i32::try_from(sighting.number.unwrap()).unwrap()).unwrap();
    assert_eq!(rig.exit(), (WorkerId(0), ExitStatus::Code(3), true));
    assert!(is_alive(child.proc_ref()));
    assert_eq!(rig.gone(), []);
    assert!(!is_alive(child.proc_ref()));
}

#[test]
fn what_ignores_sigterm_is_killed_with_all_below_it() {
    for cgroup in [false, true] {
        let mut rig = Rig::start("ignore", |order| {
            let deaf = "trap '' TERM INT HUP; (trap '' TERM; sleep 1000; sleep 1000) & echo up; ";
            order.workers = vec![
                fake(&["ignore-term"]),
                sh(&format!("{deaf} while :; do sleep 1000; done")),
            ];
            order.rules = vec![ScanRule::new("up", "^(up|ready)", RuleKind::Scratch)];
            order.cgroup = cgroup;
        });
        let workers = rig.launched();
        rig.sighted("up");
        rig.sighted("up");
        rig.say(ToGuard::Signal { signal: 15 });
        let all = list_descendants(rig.guard());
        assert!(all.len() > 2, "{all:?}");
        rig.say(ToGuard::KillTree);
        let killed = ExitStatus::Signal(libc::SIGKILL);
        assert_eq!((rig.exit().1, rig.exit().1), (killed, killed));
        assert_eq!(rig.gone(), []);
        assert!(workers.iter().all(|w| !is_alive(*w)));
        assert!(rig.leftovers(&all).is_empty());
    }
}

#[test]
fn what_slips_away_is_found_with_and_without_a_cgroup() {
    for cgroup in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let heartbeat = base.path().join("heartbeat");
        let mut rig = Rig::start("slip", |order| {
            let file = heartbeat.to_str().unwrap();
            order.workers = vec![fake(&["daemonize", file]), sh("exec sleep 1000")];
            order.cgroup = cgroup;
        });
        rig.launched();
        assert_eq!(rig.exit(), (WorkerId(0), ExitStatus::Code(0), true));
        let text = fs::read_to_string(&heartbeat).unwrap();
        let hidden = proc_stat(text.lines().next().unwrap().parse().unwrap()).unwrap();
        rig.say(ToGuard::KillTree);
        assert_eq!(rig.gone(), []);
        assert!(!is_alive(hidden.proc_ref()));
    }
}

#[test]
fn a_killed_guard_takes_its_workers_along() {
    let mut rig = Rig::start("pdeathsig", |order| {
        order.workers = vec![fake(&["ignore-term"]), sh("exec sleep 1000")];
    });
    let workers = rig.launched();
    rig.kill_guard();
    eventually(|| workers.iter().all(|w| !is_alive(*w)));
}

#[test]
fn after_the_guards_death_what_is_left_is_found_by_tag() {
    let mut rig = Rig::start("tag", |order| {
        order.workers = vec![sh("setsid sleep 1000 & exec sleep 1000")];
    });
    rig.launched();
    let run = rig.run();
    eventually(|| rig.sleepers() == 2);
    rig.kill_guard();
    eventually(|| rig.sleepers() == 1);
    assert_eq!(find_attempt_processes(&run, &[]).len(), 1);
    assert!(rig.fence(&[]).is_empty());
    assert!(find_attempt_processes(&run, &[]).is_empty());
}

#[test]
fn after_the_guards_death_what_is_left_is_found_by_session() {
    let mut rig = Rig::start("session", |order| {
        order.workers = vec![sh("env -i sleep 1000 & echo up $!; exec sleep 1000")];
        order.rules = vec![ScanRule::new("up", r"^up (\d+)", RuleKind::Resumed)];
    });
    let workers = rig.launched();
    let child = i32::try_from(rig.sighted("up").number.unwrap()).unwrap();
    eventually(|| fs::read_to_string(format!("/proc/{child}/comm")).unwrap() == "sleep\n");
    rig.kill_guard();
    eventually(|| !is_alive(workers[0]));
    assert!(find_attempt_processes(&rig.run(), &[]).is_empty());
    let found = find_attempt_processes(&rig.run(), &workers);
    assert_eq!(found, [proc_stat(child).unwrap().proc_ref()]);
    assert!(rig.fence(&workers).is_empty());
    assert!(!is_alive(found[0]));
}

#[test]
fn after_the_guards_death_what_is_left_is_found_by_the_record_or_the_cgroup() {
    for cgroup in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let heartbeat = base.path().join("heartbeat");
        let mut rig = Rig::start("record", |order| {
            let file = heartbeat.to_str().unwrap();
            order.workers = vec![fake(&["daemonize", file]), sh("exec sleep 1000")];
            order.cgroup = cgroup;
        });
        rig.launched();
        rig.exit();
        let text = fs::read_to_string(&heartbeat).unwrap();
        let hidden = proc_stat(text.lines().next().unwrap().parse().unwrap()).unwrap();
        eventually(|| rig.recorded().contains(&hidden.proc_ref()));
        let recorded = if cgroup { Vec::new() } else { rig.recorded() };
        rig.kill_guard();
        assert!(is_alive(hidden.proc_ref()));
        assert!(rig.fence(&recorded).is_empty());
        assert!(!is_alive(hidden.proc_ref()));
    }
}

#[test]
fn a_log_writer_that_hangs_never_blocks_a_worker() {
    let mut rig = Rig::start("spam", |order| {
        order.workers = vec![sh("read x < \"$GO\"; exec \"$FAKE\" spam 67108864")];
    });
    rig.launched();
    eventually(|| rig.log_writer().is_some());
    let log_writer = rig.log_writer().unwrap();
    assert!(signal_process(log_writer, libc::SIGSTOP).unwrap());
    eventually(|| proc_stat(log_writer.pid).unwrap().state == b'T');
    rig.go();
    assert_eq!(rig.exit().1, ExitStatus::Code(0));
    let lost = rig.find(|m| match m {
        FromGuard::Dropped { worker, bytes } => Some((*worker, *bytes)),
        _ => None,
    });
    assert_eq!(lost.0, WorkerId(0));
    assert!(lost.1 > 0);
    assert!(signal_process(log_writer, libc::SIGCONT).unwrap());
    let log = rig.log(0);
    let last = format!("0001048575 {}\n", "x".repeat(52));
    eventually(|| fs::read_to_string(&log).is_ok_and(|t| t.ends_with(&last)));
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("bytes of output were dropped: the disk did not take them]"));
}

#[test]
fn a_disk_that_hangs_never_blocks_a_worker() {
    let mut rig = Rig::prepare("fifo", |order, dir| {
        // Opening a FIFO that nobody reads hangs as a dead mount does.
        fs::create_dir_all(dir).unwrap();
        let fifo = dir.join("worker-0.log");
        nix::unistd::mkfifo(fifo.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        order.workers = vec![fake(&["spam", "16777216"])];
    });
    rig.launched();
    assert_eq!(rig.exit().1, ExitStatus::Code(0));
    assert_eq!(rig.gone(), []);
    eventually(|| rig.log_writer().is_some());
    let log_writer = rig.log_writer().unwrap();
    rig.say(ToGuard::Bye);
    assert_eq!(rig.end(), Some(0));
    // As on a dead mount it is left behind, and nobody waits for it.
    assert!(signal_process(log_writer, libc::SIGKILL).unwrap());
}

#[test]
fn a_log_writer_that_was_killed_is_replaced() {
    let mut rig = Rig::start("rewriter", |order| {
        order.workers = vec![sh("echo one; read x < \"$GO\"; echo two; exec sleep 1000")];
    });
    rig.launched();
    let log = rig.log(0);
    eventually(|| fs::read_to_string(&log).is_ok_and(|t| t == "one\n"));
    let log_writer = rig.log_writer().unwrap();
    assert!(signal_process(log_writer, libc::SIGKILL).unwrap());
    eventually(|| rig.log_writer().is_some_and(|s| s != log_writer));
    rig.go();
    eventually(|| fs::read_to_string(&log).is_ok_and(|t| t == "one\ntwo\n"));
}

#[test]
fn a_command_that_cannot_be_executed_is_named_and_nothing_stays() {
    for (argv, words) in [
        (
            "/nowhere/at/all",
            "worker 1: cannot execute /nowhere/at/all: No such file",
        ),
        (
            "no-such-program",
            "worker 1: cannot execute no-such-program: No such file",
        ),
        ("/etc/passwd", "worker 1: cannot execute /etc/passwd: Permission denied"),
    ] {
        let mut rig = Rig::start("exec", |order| {
            let mut wrong = sh("");
            wrong.argv = vec![argv.to_owned()];
            order.workers = vec![sh("exec sleep 1000"), wrong, sh("exec sleep 1000")];
        });
        let (what, command) = rig.failed();
        assert!(what.starts_with(words), "{what}");
        assert!(command);
        assert_eq!(rig.gone(), []);
        assert_eq!(rig.end(), Some(0));
        assert!(find_attempt_processes(&rig.run(), &[]).is_empty());
    }
}

#[test]
fn a_directory_that_is_not_there_is_not_the_commands_fault() {
    let mut rig = Rig::start("cwd", |order| {
        let mut wrong = sh("exit 0");
        wrong.cwd = "/nowhere".into();
        order.workers = vec![wrong];
    });
    let (what, command) = rig.failed();
    assert!(what.contains("cannot enter its directory /nowhere"), "{what}");
    assert!(!command);
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let mut rig = Rig::prepare("script", |order, dir| {
        fs::create_dir_all(dir).unwrap();
        let script = dir.join("run.sh");
        fs::write(&script, "exit $(($1 + $#))\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&script, mode).unwrap();
        let mut worker = sh("");
        worker.argv = vec![script.into_string(), "3".into(), "x".into()];
        order.workers = vec![worker];
    });
    rig.launched();
    assert_eq!(rig.exit().1, ExitStatus::Code(5));
}

#[test]
fn a_second_guard_of_a_run_refuses() {
    let mut rig = Rig::start("twice", |order| {
        order.workers = vec![sh("exec sleep 1000")];
    });
    let workers = rig.launched();
    let mut second = rig.again();
    let (what, command) = second.failed();
    assert_eq!(what, "another guard of this run still lives");
    assert!(!command);
    assert_eq!(second.end(), Some(0));
    assert!(is_alive(workers[0]));
    assert_eq!(find_attempt_processes(&rig.run(), &[]), workers);
}

#[test]
fn a_worker_gets_its_own_environment_and_nothing_else() {
    let mut rig = Rig::start("clean", |order| {
        let mut env = sh("");
        env.argv = vec!["/usr/bin/env".into()];
        env.env = vec![
            ("A".into(), "1 2".into()),
            ("SPT_NOENV".into(), "0".into()),
            ("EMPTY".into(), String::new()),
        ];
        let mut signals = sh("");
        signals.argv = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
            .map(str::to_owned)
            .into();
        let mut descriptors = sh("");
        descriptors.argv = vec!["ls".into(), "/proc/self/fd".into()];
        order.workers = vec![
            env,
            signals,
            descriptors,
            sh("readlink /proc/$$/fd/0; pwd; ps -o sid= -p $$ | tr -d ' '; echo $$"),
        ];
    });
    rig.launched();
    assert_eq!(rig.gone(), []);
    rig.say(ToGuard::Bye);
    assert_eq!(rig.end(), Some(0));
    let expected = format!("SUPERVISE_ATTEMPT={}/2/7\nSPT_NOENV=1\nA=1 2\nEMPTY=\n", rig.run());
    eventually(|| fs::read_to_string(rig.log(0)).is_ok_and(|t| t == expected));
    let none = "0000000000000000";
    let expected = format!("SigBlk:\t{none}\nSigIgn:\t{none}\n");
    eventually(|| fs::read_to_string(rig.log(1)).is_ok_and(|t| t == expected));
    eventually(|| fs::read_to_string(rig.log(3)).is_ok_and(|t| t.lines().count() == 4));
    // The fourth is the directory that is being listed.
    eventually(|| fs::read_to_string(rig.log(2)).is_ok_and(|t| t == "0\n1\n2\n3\n"));
    let text = fs::read_to_string(rig.log(3)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "/dev/null");
    assert_eq!(lines[1], "/");
    assert_eq!(lines[2], lines[3]);
}

#[test]
fn lines_become_progress_and_sightings_and_the_last_words_precede_the_end() {
    let mut rig = Rig::start("lines", |order| {
        order.workers = vec![sh("printf 'total 9\\nbar 10%%\\rbar 20%%\\rstep:1\\n'; \
            printf 'Traceback (most recent call last):\\n  File x\\nValueError: late' >&2; exit 1")];
        order.rules = vec![
            ScanRule::new("step", r"^step:(\d+)", RuleKind::Step),
            ScanRule::new("total", r"^total (\d+)", RuleKind::Total),
        ];
    });
    rig.launched();
    let total = rig.sighted("total");
    assert_eq!((total.line, total.number), (1, Some(9)));
    rig.exit();
    rig.gone();
    // Without a newline it is a line only when nobody can write any more: before the tree is gone.
    let end = rig.seen("py.exception");
    assert_eq!((end.line, end.text.as_str()), (5, "ValueError: late"));
}

#[test]
fn a_tree_can_be_frozen_thawed_and_killed_while_frozen() {
    for cgroup in [false, true] {
        let mut rig = Rig::start("freeze", |order| {
            order.workers = vec![sh("sleep 1000 & echo up; \
                while :; do echo tick >> \"$SAVED\"; sleep 0.01; done")];
            order.rules = vec![ScanRule::new("up", "^up", RuleKind::Scratch)];
            order.cgroup = cgroup;
        });
        let workers = rig.launched();
        rig.sighted("up");
        let saved = rig.path("saved");
        let ticks = || fs::metadata(&saved).map_or(0, |m| m.len());
        // A shell whose child was stopped before it ran its program waits in the kernel.
        let stopped = |p: &ProcRef| proc_stat(p.pid).is_none_or(|s| b"TD".contains(&s.state));
        let run = rig.run();
        eventually(|| ticks() > 0);
        rig.say(ToGuard::Freeze);
        if cgroup {
            eventually(|| rig.cgroup_says("frozen 1"));
        } else {
            eventually(|| find_attempt_processes(&run, &[]).iter().all(stopped));
        }
        let before = ticks();
        rig.say(ToGuard::Thaw);
        eventually(|| ticks() > before + 5);
        rig.say(ToGuard::Freeze);
        rig.say(ToGuard::KillTree);
        assert_eq!(rig.gone(), []);
        assert!(!is_alive(workers[0]));
    }
}

#[test]
fn a_leaf_is_removed_when_the_tree_is_gone() {
    let mut rig = Rig::start("leaf", |order| {
        order.workers = vec![sh("exec sleep 1000")];
        order.cgroup = true;
    });
    rig.launched();
    let had = rig.leaf().is_some_and(|dir| dir.exists());
    rig.say(ToGuard::KillTree);
    assert_eq!(rig.gone(), []);
    // It goes once the end was told, so that nobody waits for it.
    eventually(|| !rig.leaf().is_some_and(|dir| dir.exists()));
    // Where there was none the tree was gone all the same, which is the point of the ladder.
    let root = nix::unistd::geteuid().is_root();
    assert!(had || !root || rig.leaf().is_none());
}

#[test]
fn the_attempts_own_directory_is_there_for_the_workers_and_gone_after_the_guard() {
    let base = tempfile::tempdir().unwrap();
    let base = camino::Utf8PathBuf::from_path_buf(base.path().to_path_buf()).unwrap();
    let (earlier, own) = (base.join("ray-ab-6"), base.join("ray-ab-7"));
    fs::create_dir(&earlier).unwrap();
    let mut rig = Rig::start("scratch", |order| {
        order.workers = vec![sh(&format!("cd {own} && touch file && exec sleep 1000"))];
        order.scratch = Some(own.clone());
    });
    rig.launched();
    eventually(|| own.join("file").exists());
    assert!(!earlier.exists(), "what an earlier attempt left is cleared");
    rig.say(ToGuard::KillTree);
    rig.gone();
    rig.say(ToGuard::Bye);
    rig.end();
    assert!(!own.exists());
    assert!(base.exists());

    fs::write(&own, "somebody else's").unwrap();
    let mut refused = Rig::start("no-scratch", |order| order.scratch = Some(own.clone()));
    let (what, command) = refused.failed();
    assert!(what.contains(own.as_str()) && !command, "{what}");
}

#[test]
fn nobody_listens_where_no_guard_is() {
    assert!(connect("supervise/nobody/here").unwrap().is_none());
}

#[test]
fn a_program_that_is_no_guard_cannot_be_spawned_as_one() {
    let rig = Rig::start("noexe", |_| {});
    let missing = camino::Utf8Path::new("/nowhere/supervise");
    assert!(supervise_host::guard::spawn(missing, &rig.order).is_err());
    // The hidden commands end at once where nobody gives them work.
    for helper in ["__guard", "__log_writer"] {
        let status = Command::new(env!("CARGO_BIN_EXE_supervise"))
            .arg(helper)
            .stdin(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().code().is_some());
    }
}
