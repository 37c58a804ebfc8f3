//! Changes that an I/O worker hears of during a save, and how it finds out where it hears nothing.

use super::stage::{ProofWorker, Stage, of, tick};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_core::event::ScanReport;
use supervise_host::io_worker::IoQuestion;

fn is(step: u64, verdict: Verdict) -> impl Fn(&ScanReport) -> bool {
    move |report| {
        let found = report.steps.iter().find(|c| c.step.0 == step);
        found.is_some_and(|c| c.verdict == verdict && (verdict != Verdict::Whole || c.proven.is_some()))
    }
}

/// An I/O worker that watches a root with one whole step.
fn watching(stage: &Stage) -> ProofWorker {
    stage.save(2, 1);
    let mut io_worker = stage.io_worker();
    io_worker.ask(IoQuestion::Watch);
    assert!(of(&io_worker.scan(Depth::Structure), 2).is_proven(Depth::Structure));
    io_worker
}

#[test]
fn a_step_is_known_to_be_complete_when_its_last_file_is_closed() {
    let stage = Stage::new();
    let mut io_worker = watching(&stage);
    stage.begin(4, 2);
    io_worker.hears("a step that began", is(4, Verdict::Incomplete));
    // No pointer names it, and no scan is asked for: the file itself tells.
    stage.finish(4);
    io_worker.hears("a step that ended", is(4, Verdict::Whole));
    io_worker.end();
}

#[test]
fn a_root_that_does_not_exist_yet_or_is_empty_is_watched_too() {
    let stage = Stage::new();
    let mut io_worker = stage.io_worker();
    io_worker.ask(IoQuestion::Watch);
    assert!(io_worker.scan(Depth::Structure).empty);
    stage.save(2, 1);
    io_worker.hears("the first step", is(2, Verdict::Whole));
    io_worker.end();
}

#[test]
fn a_file_that_is_overwritten_in_place_is_heard() {
    let stage = Stage::new();
    let mut io_worker = watching(&stage);
    let shard = stage.step(2).join("actor/optim_world_size_2_rank_0.pt");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    io_worker.hears("a torn file", is(2, Verdict::Incomplete));
    fs::write(&shard, bytes).unwrap();
    io_worker.hears("a mended file", is(2, Verdict::Whole));
    io_worker.end();
}

#[test]
fn a_look_before_a_launch_sees_what_no_directory_tells() {
    let stage = Stage::new();
    stage.save(2, 1);
    let mut io_worker = stage.io_worker();
    io_worker.scan(Depth::Structure);
    let shard = stage.step(2).join("actor/optim_world_size_2_rank_0.pt");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(of(&io_worker.scan(Depth::Structure), 2).verdict, Verdict::Incomplete);
    io_worker.end();
}

#[test]
fn a_step_that_gives_way_to_another_of_its_name_is_followed() {
    let stage = Stage::new();
    let mut io_worker = watching(&stage);
    for seed in 2..5 {
        fs::rename(stage.step(2), stage.path(&format!("away-{seed}"))).unwrap();
        io_worker.hears("a step that went", |report| report.steps.is_empty());
        stage.begin(2, seed);
        io_worker.hears("one that comes", is(2, Verdict::Incomplete));
        stage.finish(2);
        io_worker.hears("one that is there", is(2, Verdict::Whole));
    }
    io_worker.end();
}

#[test]
fn events_that_the_kernel_lost_are_made_up_for() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let stage = Stage::new();
    let mut io_worker = watching(&stage);
    stage.begin(4, 2);
    io_worker.hears("a step that began", is(4, Verdict::Incomplete));
    let io_worker_pid = Pid::from_raw(io_worker.0.pid() as i32);
    kill(io_worker_pid, Signal::SIGSTOP).unwrap();
    // Each file makes three events at least, and each twice over is another one.
    let folder = stage.step(4).join("actor");
    for n in 0..limit / 3 + 100 {
        fs::write(folder.join(format!("of_no_meaning_{n}")), "x").unwrap();
    }
    let shard = stage.step(2).join("actor/optim_world_size_2_rank_0.pt");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    stage.finish(4);
    kill(io_worker_pid, Signal::SIGCONT).unwrap();
    let both = |report: &ScanReport| is(4, Verdict::Whole)(report) && is(2, Verdict::Incomplete)(report);
    io_worker.hears("what was lost", both);
    io_worker.end();
}

#[test]
fn a_io_worker_that_is_told_nothing_looks_for_itself() {
    let stage = Stage::new();
    stage.save(2, 1);
    let mut io_worker = stage.looking_io_worker();
    io_worker.ask(IoQuestion::Watch);
    io_worker.scan(Depth::Structure);
    stage.begin(4, 2);
    io_worker.hears("a step that began", is(4, Verdict::Incomplete));
    stage.finish(4);
    io_worker.hears("a step that ended", is(4, Verdict::Whole));
    io_worker.end();
}

#[test]
fn what_a_save_wrote_is_looked_into_while_it_goes_on() {
    let stage = Stage::new();
    let mut io_worker = watching(&stage);
    stage.begin(4, 2);
    io_worker.hears("a step that began", is(4, Verdict::Incomplete));
    // Until nothing more is read, then the last file: the answer needs no other one.
    let (mut before, mut same) = (io_worker.read(), 0);
    while same < 20 {
        tick();
        let read = io_worker.read();
        same = if read == before { same + 1 } else { 0 };
        before = read;
    }
    stage.finish(4);
    io_worker.hears("a step that ended", is(4, Verdict::Whole));
    let last = fs::metadata(stage.step(4).join("data.pt")).unwrap().len();
    let read = io_worker.read() - before;
    assert!(read < 4 * last + 8192, "{read} bytes were read for the last {last}");
    io_worker.end();
}
