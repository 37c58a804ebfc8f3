//! How long a step of many ranks takes to be sorted and judged: `cargo run --release -p supervise-trainers --example large_step -- 16384`.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement for people"
)]

use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use std::time::Instant;
use supervise_checkpoint::{FileReport, unreadable_file};
use supervise_core::checkpoint::{CkptId, Depth, EntryKind, FileFact, Verdict};
use supervise_trainers::{ExpectedLayout, adapter};

const ROUNDS: u32 = 20;

fn main() {
    let ranks: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(16_384);
    let dir = "global_step_100";
    let mut names = vec!["fsdp_config.json".to_owned(), "huggingface/config.json".to_owned()];
    for rank in 0..ranks {
        names.extend(["model", "optim", "extra_state"].map(|kind| format!("{kind}_world_size_{ranks}_rank_{rank}.pt")));
    }
    let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(&ExpectedLayout::default());
    for (ino, name) in names.iter().enumerate() {
        tracker.note(&fact(format!("{dir}/actor/{name}").into(), ino as u64));
    }
    tracker.note(&fact(format!("{dir}/data.pt").into(), 0));
    let ckpt = CkptId(dir.into());
    let reports: BTreeMap<Utf8PathBuf, FileReport> = tracker
        .needs(&ckpt, Depth::Structure)
        .into_iter()
        .map(|need| {
            let mut report = unreadable_file(need.kind, std::io::Error::other("nothing was read"));
            report.findings.clear();
            report.verdict = Verdict::Whole;
            report.facts.torch = Some(Default::default());
            if let Some(facts) = &mut report.facts.torch {
                facts.optimizer_steps = vec![100];
            }
            report.facts.world_size = need.path.as_str().ends_with("config.json").then_some(ranks);
            (need.path, report)
        })
        .collect();
    for (what, work) in [
        (
            "needs",
            &mut (|| drop(tracker.needs(&ckpt, Depth::Structure))) as &mut dyn FnMut(),
        ),
        ("pins", &mut || assert!(tracker.pins(&ckpt).is_some())),
        ("marks", &mut || drop(tracker.marks(&ckpt, &reports))),
    ] {
        measure(what, work);
    }
    measure("judge", &mut || {
        let seen = tracker.judge(&ckpt, Depth::Structure, &reports);
        assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, Some(Depth::Structure)));
    });
    println!("{} files", reports.len());
}

fn fact(path: Utf8PathBuf, ino: u64) -> FileFact {
    FileFact {
        path,
        kind: EntryKind::File,
        size: 1 << 20,
        mtime: 0,
        ctime: 0,
        dev: 7,
        ino,
        uid: 0,
    }
}

fn measure(what: &str, work: &mut dyn FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:<6} {:.1} ms", best * 1e3);
}
