//! Measures what a long run leaves behind: bytes of journal for each save, and what reading them costs at the end.
//!
//! usage: long_run SUPERVISE FOLDER [SAVES] [KEPT]
//!
//! Lets the core decide upon SAVES saves (100,000 by default), KEPT of which stay (20), each seen half done, whole, proven and
//! pruned; a real I/O worker writes the journal under FOLDER, which must not exist. Prints one line of JSON. No trainer runs, and no
//! step is written: what a scan says of each is made up.

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Value as Json, json};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use supervise_core::checkpoint::finiteness::OddTensors;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, PinsHash, Resumability, Verdict};
use supervise_core::decide::decide;
use supervise_core::event::{ActOutput, Activity, Event, EventKind, ScanReport, TrackerState, TrainerPhase};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Seq, Step, Term, Tick, WallMs};
use supervise_core::journal::encode_all;
use supervise_core::journal::record::{ActKind, JournalRecord, WorldQuery};
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion, RunIdentity, own_claim};
use supervise_tests::bare_spec::bare;

type Failure = Box<dyn std::error::Error>;

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines are handed to the I/O worker when so many bytes are there, as they come in groups in a run.
const GROUP: usize = 4 << 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default: u64| args.get(n).map_or(Ok(default), |n| n.parse::<u64>());
    let (Some(exe), Some(folder), Ok(saves), Ok(kept)) = (args.first(), args.get(1), number(2, 100_000), number(3, 20))
    else {
        let _ = writeln!(std::io::stderr(), "usage: long_run SUPERVISE FOLDER [SAVES] [KEPT]");
        return ExitCode::from(64);
    };
    match measure(Path::new(exe), Utf8Path::new(folder), saves, kept) {
        Ok(result) => {
            let _ = writeln!(std::io::stdout(), "{result}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "long_run: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure(exe: &Path, folder: &Utf8Path, saves: u64, kept: u64) -> Result<Json, Failure> {
    fs::create_dir(folder)?;
    let root = folder.canonicalize_utf8()?.join("checkpoints");
    let mut run = Run::begin(exe, &root, kept)?;
    let began = Instant::now();
    let early = (saves / 10).max(1);
    let mut memory = (0, 0);
    for n in 1..=saves {
        run.save(n)?;
        if n == early {
            memory.0 = resident(std::process::id())? + resident(run.io_worker.pid())?;
        }
    }
    run.flush()?;
    if run.disk.len() as u64 > kept + 2 {
        return Err(format!("{} steps are left of {kept}", run.disk.len()).into());
    }
    memory.1 = resident(std::process::id())? + resident(run.io_worker.pid())?;
    let took = began.elapsed();
    let run_dir = run.spec.run_dir.clone();
    let identity = run.identity();
    run.io_worker.ask(IoQuestion::Release, PATIENCE)?;
    drop(run);
    let journal = fs::metadata(run_dir.join("journal/1.jsonl"))?.len();
    let mut status = Vec::new();
    let mut start = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        let done = Command::new(exe)
            .args(["status", root.as_str(), "--json"])
            .env("HOME", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        status.push(began.elapsed());
        if !done.success() {
            return Err("status failed".into());
        }
        let began = Instant::now();
        let mut io_worker = IoClient::start(exe)?;
        let IoAnswer::Loaded(loaded) = io_worker.ask(IoQuestion::Open(identity.clone()), PATIENCE)? else {
            return Err("the run directory cannot be opened".into());
        };
        start.push(began.elapsed());
        if loaded.state.progress.mark != Some(Step(saves)) {
            return Err(format!("the journal folds to the mark {:?}", loaded.state.progress.mark).into());
        }
    }
    let (snapshot, aside) = (run_dir.join("snapshot.json"), run_dir.join("aside.json"));
    fs::rename(&snapshot, &aside)?;
    let began = Instant::now();
    IoClient::start(exe)?.ask(IoQuestion::Peek { run_dir }, PATIENCE)?;
    let afresh = began.elapsed();
    fs::rename(aside, snapshot)?;
    Ok(json!({
        "saves": saves, "kept": kept, "journal_bytes": journal, "bytes_a_save": journal / saves,
        "status_ms": median(status), "start_ms": median(start), "fold_without_snapshot_ms": afresh.as_millis(),
        "memory_kib_after_a_tenth": memory.0, "memory_kib_at_the_end": memory.1,
        "microseconds_a_save": took.as_micros() / u128::from(saves),
    }))
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all.get(all.len() / 2)
        .map_or(0.0, |d| (d.as_secs_f64() * 10_000.0).round() / 10.0)
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let words = line.ok_or("no VmRSS")?.split_whitespace().next();
    Ok(words.ok_or("no VmRSS")?.parse()?)
}

/// A run whose trainer saves, as its supervisor sees it.
struct Run {
    io_worker: IoClient,
    spec: RunSpec,
    state: RunState,
    now: u64,
    seq: u64,
    gathered: String,
    /// Newest first: the step, and what is known of it.
    disk: Vec<(u64, Seen)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Begun,
    Whole,
    Read,
}

impl Run {
    fn begin(exe: &Path, root: &Utf8Path, kept: u64) -> Result<Self, Failure> {
        let run_dir: Utf8PathBuf = root.join(".supervise");
        let mut spec = bare("0123456789abcdef", root, &run_dir);
        spec.keep = Some(u32::try_from(kept)?);
        spec.policy.proof.depth = Depth::Full;
        let mut run = Self {
            io_worker: IoClient::start(exe)?,
            spec,
            state: RunState::default(),
            now: 0,
            seq: 0,
            gathered: String::new(),
            disk: Vec::new(),
        };
        run.io_worker.ask(IoQuestion::Open(run.identity()), PATIENCE)?;
        let lease_dir = run_dir.join("lease");
        let take = IoQuestion::TakeLease {
            dir: lease_dir.clone(),
            claim: Box::new(own_claim(Ms::secs(1), Ms(0), Term(0))),
            identity: Some(Box::new(run.identity())),
        };
        run.io_worker.ask(take, PATIENCE)?;
        let begin = IoQuestion::Begin {
            lease_dir,
            run_dir,
            term: Term(1),
            spec: Box::new(run.spec.clone()),
            registry: None,
        };
        run.io_worker.ask(begin, PATIENCE)?;
        run.feed(EventKind::TermStarted {
            term: Term(1),
            boot: "boot".to_owned(),
            host: "node-1".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: 0,
            trainer_version: None,
            living: None,
            spread: Default::default(),
            orphans: Vec::new(),
        })?;
        run.scan()?;
        Ok(run)
    }

    fn identity(&self) -> RunIdentity {
        RunIdentity {
            run: self.spec.run.clone(),
            run_dir: self.spec.run_dir.clone(),
            root: self.spec.root.clone(),
        }
    }

    /// A step is trained, saved, seen in the middle of it, seen whole, read, and the oldest one goes.
    fn save(&mut self, n: u64) -> Result<(), Failure> {
        for phase in [TrainerPhase::Step, TrainerPhase::Save] {
            self.now += 20_000;
            self.feed(EventKind::Progress {
                attempt: AttemptNo(1),
                phase,
                step: Some(Step(n)),
                beats: 0,
                risen: 0,
                activity: Activity {
                    cpu_ms: 20_000,
                    output: 300,
                    over_ms: 20_000,
                    gpu: false,
                    starved: false,
                },
            })?;
        }
        self.disk.insert(0, (n, Seen::Begun));
        for seen in [Seen::Begun, Seen::Whole, Seen::Read] {
            self.now += 2_000;
            self.disk[0].1 = seen;
            self.scan()?;
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<(), Failure> {
        let steps: Vec<CheckpointSummary> = self.disk.iter().map(|(n, seen)| summary(*n, *seen)).collect();
        let newest = self.disk.iter().find(|(_, seen)| *seen != Seen::Begun);
        let report = ScanReport {
            empty: steps.is_empty(),
            tracker: newest.map_or(TrackerState::Missing, |(n, _)| TrackerState::Step(Step(*n))),
            steps,
            ..ScanReport::default()
        };
        self.feed(EventKind::Checkpoints(report))
    }

    fn feed(&mut self, kind: EventKind) -> Result<(), Failure> {
        let event = Event {
            at: Tick(self.now),
            wall: WallMs(1_800_000_000_000 + i64::try_from(self.now)?),
            entropy: self.now | 1 << 60,
            kind,
        };
        let decided = decide(&self.state, &self.spec, &event);
        let mut acts = Vec::new();
        if !decided.records.is_empty() {
            let line = encode_all(Seq(self.seq + 1), event.at, event.wall, &decided.records)?;
            self.gathered.push_str(std::str::from_utf8(&line)?);
            self.seq += decided.records.len() as u64;
        }
        for record in &decided.records {
            self.state.apply(record);
            if let JournalRecord::Intended { act, .. } = record {
                acts.push(act.clone());
            }
        }
        if self.gathered.len() > GROUP {
            self.flush()?;
        }
        for act in acts {
            let output = match &act.kind {
                ActKind::Launch(_) => ActOutput::Launched {
                    guard: ProcRef { pid: 1, start: 1 },
                    workers: vec![ProcRef { pid: 1, start: 1 }],
                    argv: vec!["train".to_owned()],
                    ahead: None,
                },
                ActKind::Prune(steps) => {
                    self.disk.retain(|(n, _)| !steps.contains(&name(*n)));
                    ActOutput::Pruned
                }
                other => return Err(format!("{other:?} was not expected").into()),
            };
            let pruned = output == ActOutput::Pruned;
            self.feed(EventKind::ActDone {
                act: act.id,
                result: Ok(output),
            })?;
            if pruned {
                self.scan()?;
            }
        }
        // The weights of every step are finite.
        let looks = decided.asks.into_iter().find_map(|ask| match ask {
            WorldQuery::Finite { ckpt } if !self.state.was_looked_at(&ckpt) => Some(ckpt),
            _ => None,
        });
        if let Some(ckpt) = looks {
            self.feed(EventKind::Finite {
                attempt: AttemptNo(1),
                ckpt,
                odd: Some(0),
                tensors: Some(OddTensors::new(400, Vec::new())),
            })?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let text = std::mem::take(&mut self.gathered);
        self.io_worker.ask(IoQuestion::Append { text, sync: false }, PATIENCE)?;
        Ok(())
    }
}

fn name(n: u64) -> CkptId {
    CkptId(format!("global_step_{n}").into())
}

/// A step as a scan of eight ranks tells it.
fn summary(n: u64, seen: Seen) -> CheckpointSummary {
    let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect();
    let mut out = CheckpointSummary {
        id: name(n),
        step: Step(n),
        layout: "verl_fsdp_ppo".into(),
        verdict: Verdict::Whole,
        proven: Some(if seen == Seen::Read {
            Depth::Full
        } else {
            Depth::Structure
        }),
        roles: words(&["actor"]),
        world: Some(8),
        contents: words(&["model", "optimizer", "extra"]),
        holds: Default::default(),
        resume: Resumability::Exact,
        reshard: None,
        part: None,
        pins: PinsHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        bytes: 90_000_000_000,
        files: 27,
        newest: WallMs(1_800_000_000_000 + n as i64 * 46_000),
        saved_by: Some(AttemptNo(1)),
        save: None,
        husk: false,
        other_owner: None,
        unfamiliar: Vec::new(),
        trainer_note: None,
        own_modules: Vec::new(),
        findings: vec![
            Finding::note(
                "no_checksums",
                "no checksum tells whether its bytes are those that were saved",
            )
            .in_file("data.pt"),
        ],
    };
    if seen == Seen::Begun {
        out.verdict = Verdict::Incomplete;
        out.proven = None;
        out.pins = PinsHash(n);
        out.bytes = 11_000_000_000;
        out.files = 9;
        let why = "22 of 24 shards are not there yet: a save is going on, or was killed";
        out.resume = Resumability::Not { why: why.to_owned() };
        let missing = Finding::error("missing", Verdict::Incomplete, why).in_file("actor/model_world_size_8_rank_1.pt");
        out.findings.insert(0, missing);
    }
    out
}
