//! A checkpoint root to be proven, and an I/O worker that proves it.

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::event::ScanReport;
use supervise_core::journal::record::DiskEdit;
use supervise_core::spec::RunSpec;
use supervise_core::state::OwnStep;
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion};
use supervise_tests::bare_spec::bare;
use supervise_tests::harness::PATIENCE;
use supervise_tests::torch_file::{Tensor, Value, dict, encode_as};

/// Numbers in a shard of weights: large enough to be seen in what was read.
const NUMBERS: usize = 64 << 10;
/// Approximate size of all weights of a step.
pub(crate) const WEIGHTS: u64 = 2 * 4 * NUMBERS as u64;

/// A folder with a checkpoint root in it.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    pub(crate) root: Utf8PathBuf,
    pub(crate) run_dir: Utf8PathBuf,
    journal: Journal,
}

/// What a journal would know of the steps that were proven.
pub(crate) type Journal = Rc<RefCell<BTreeMap<String, OwnStep>>>;

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("supervise-proof.").tempdir().unwrap();
        let top = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        let root = top.join("checkpoints");
        fs::create_dir(&root).unwrap();
        Self {
            folder,
            run_dir: root.join(".supervise"),
            root,
            journal: Journal::default(),
        }
    }

    /// The same with another root.
    pub(crate) fn with_root(mut self, root: &Path) -> Self {
        self.root = Utf8PathBuf::from_path_buf(root.to_owned()).unwrap();
        self.run_dir = self.root.join(".supervise");
        self
    }

    /// The same with a run directory that does not stand in the root.
    pub(crate) fn with_run_dir(mut self, name: &str) -> Self {
        self.run_dir = self.path(name);
        self
    }

    pub(crate) fn path(&self, name: &str) -> Utf8PathBuf {
        let folder = self.folder.path().canonicalize().unwrap();
        Utf8PathBuf::from_path_buf(folder).unwrap().join(name)
    }

    pub(crate) fn step(&self, step: u64) -> Utf8PathBuf {
        self.root.join(format!("global_step_{step}"))
    }

    pub(crate) fn record(&self, step: u64) -> Utf8PathBuf {
        self.run_dir.join(format!("verified/global_step_{step}.jsonl"))
    }

    /// A whole step of two ranks; `seed` makes its numbers.
    pub(crate) fn save(&self, step: u64, seed: u64) {
        self.begin(step, seed);
        self.finish(step);
        self.point(step);
    }

    /// All of a step but what comes last.
    pub(crate) fn begin(&self, step: u64, seed: u64) {
        let role = self.step(step).join("actor");
        fs::create_dir_all(role.join("huggingface")).unwrap();
        for rank in 0..2 {
            for (part, value) in parts(step, seed.wrapping_mul(31).wrapping_add(rank)) {
                let stem = format!("{part}_world_size_2_rank_{rank}");
                fs::write(role.join(format!("{stem}.pt")), encode_as(&value, &stem)).unwrap();
            }
        }
        fs::write(role.join("huggingface/config.json"), "{}").unwrap();
    }

    /// The last files of a step; the very last one makes it whole.
    pub(crate) fn finish(&self, step: u64) {
        let data = dict([("_snapshot", dict([("_snapshot_step", Value::Int(step as i64))]))]);
        fs::write(self.step(step).join("data.pt"), encode_as(&data, "data")).unwrap();
        let config = json!({ "FSDP_version": 1, "world_size": 2 });
        fs::write(self.step(step).join("actor/fsdp_config.json"), config.to_string()).unwrap();
    }

    pub(crate) fn point(&self, step: u64) {
        fs::write(self.root.join("latest_checkpointed_iteration.txt"), step.to_string()).unwrap();
    }

    /// An I/O worker for this root.
    pub(crate) fn io_worker(&self) -> ProofWorker {
        self.io_worker_of(Path::new(super::SUPERVISE))
    }

    /// An I/O worker that is not told of changes.
    pub(crate) fn looking_io_worker(&self) -> ProofWorker {
        let script = self.path("supervise-that-looks");
        fs::write(
            &script,
            format!("#!/bin/sh\nSUPERVISE_WATCH=poll exec {} \"$@\"\n", super::SUPERVISE),
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&script, mode).unwrap();
        self.io_worker_of(script.as_std_path())
    }

    fn io_worker_of(&self, exe: &Path) -> ProofWorker {
        ProofWorker::start(exe, self.spec(), &self.journal)
    }

    /// Scans once in an I/O worker of its own, which then ends in peace.
    pub(crate) fn prove(&self, depth: Depth) -> ScanReport {
        let mut io_worker = self.io_worker();
        let report = io_worker.scan(depth);
        io_worker.end();
        report
    }

    fn spec(&self) -> RunSpec {
        bare("stage", &self.root, &self.run_dir)
    }
}

/// Content of the three files of a rank.
fn parts(step: u64, seed: u64) -> [(&'static str, Value); 3] {
    let numbers: Vec<f32> = (0..NUMBERS as u64)
        .map(|n| ((n ^ seed).wrapping_mul(0x9E37_79B9) % 1000) as f32 + 1.0)
        .collect();
    let moments = dict([
        ("step", Tensor::scalar(step as f32)),
        ("exp_avg", Tensor::floats(&[seed as f32, 0.5])),
        ("exp_avg_sq", Tensor::floats(&[0.5, 0.25])),
    ]);
    let group = dict([("lr", Value::Float(1e-3)), ("params", Value::List(vec![Value::Int(0)]))]);
    let optimizer = dict([
        ("state", Value::Dict(vec![(Value::Int(0), moments)])),
        ("param_groups", Value::List(vec![group])),
    ]);
    let extra = dict([
        ("lr_scheduler", dict([("last_epoch", Value::Int(step as i64))])),
        ("rng", dict([("cpu", Tensor::bytes(&[7; 5056]))])),
    ]);
    let model = Value::Ordered(vec![(Value::Str("weight".into()), Tensor::floats(&numbers))]);
    [("model", model), ("optim", optimizer), ("extra_state", extra)]
}

/// An I/O worker of the real program.
pub(crate) struct ProofWorker(pub(crate) IoClient, Journal);

impl ProofWorker {
    /// Starts one that knows what the journal knows, as a supervisor would.
    pub(crate) fn start(exe: &Path, spec: RunSpec, journal: &Journal) -> Self {
        let mut io_worker = Self(IoClient::start(exe).unwrap(), Rc::clone(journal));
        io_worker.ask(IoQuestion::Spec(Box::new(spec)));
        let own = journal.borrow().clone();
        io_worker.ask(IoQuestion::OwnSteps(own));
        io_worker
    }

    pub(crate) fn ask(&mut self, ask: IoQuestion) -> IoAnswer {
        self.0.ask(ask, PATIENCE).unwrap()
    }

    /// As before a launch.
    pub(crate) fn scan(&mut self, depth: Depth) -> ScanReport {
        self.look(depth, true)
    }

    /// As while workers run.
    pub(crate) fn glance(&mut self) -> ScanReport {
        self.look(Depth::Structure, false)
    }

    fn look(&mut self, depth: Depth, thorough: bool) -> ScanReport {
        match self.ask(IoQuestion::Scan {
            depth,
            whole: 2,
            thorough,
        }) {
            IoAnswer::Scan(report) => {
                self.note(&report);
                report
            }
            other => panic!("not an answer to a scan: {other:?}"),
        }
    }

    /// As a run whose attempt is alive.
    fn note(&self, report: &ScanReport) {
        let mut journal = self.1.borrow_mut();
        for c in report.steps.iter().filter(|c| c.verdict == Verdict::Whole) {
            let (pins, read) = (c.pins, c.is_proven(Depth::Full));
            let known = journal.get(c.id.0.as_str()).filter(|own| own.pins == pins);
            let read = read || known.is_some_and(|own| own.read);
            journal.insert(c.id.to_string(), OwnStep { pins, read });
        }
    }

    pub(crate) fn edit(&mut self, edits: Vec<DiskEdit>) {
        self.ask(IoQuestion::Edit {
            edits,
            by: "test".into(),
        });
    }

    /// Bytes that the process has read by system calls.
    pub(crate) fn read(&self) -> u64 {
        let io = fs::read_to_string(format!("/proc/{}/io", self.0.pid())).unwrap();
        let line = io.lines().find_map(|l| l.strip_prefix("rchar: ")).unwrap();
        line.trim().parse().unwrap()
    }

    /// Asks whenever something changed, until what is there is as it should be.
    #[track_caller]
    pub(crate) fn hears(&mut self, what: &str, is: impl Fn(&ScanReport) -> bool) -> ScanReport {
        let mut last = None;
        loop {
            assert!(
                self.0.touched(PATIENCE).unwrap(),
                "{what}: nothing was told after {last:?}"
            );
            let report = self.glance();
            if is(&report) {
                return report;
            }
            last = Some(report);
        }
    }

    #[track_caller]
    pub(crate) fn end(self) {
        assert!(self.0.end(PATIENCE), "the I/O worker does not end");
    }
}

/// The step of this number in a report.
#[track_caller]
pub(crate) fn of(report: &ScanReport, step: u64) -> &CheckpointSummary {
    report.steps.iter().find(|c| c.step.0 == step).unwrap()
}

/// The codes of what was found in a step.
pub(crate) fn codes(step: &CheckpointSummary) -> Vec<&str> {
    step.findings.iter().map(|f| f.code.as_ref()).collect()
}

/// Puts a modification time back.
pub(crate) fn set_time(path: &Utf8Path, at: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(at)).unwrap();
}

pub(crate) fn time(path: &Utf8Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Every file below a directory.
pub(crate) fn files(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let mut out = Vec::new();
    for entry in dir.read_dir_utf8().unwrap() {
        let path = entry.unwrap().into_path();
        match path.is_dir() {
            true => out.extend(files(&path)),
            false => out.push(path),
        }
    }
    out.sort();
    out
}

/// Copies as `cp -a` does: with its times.
pub(crate) fn copy(from: &Utf8Path, to: &Utf8Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, &target).unwrap();
        set_time(&target, time(&file));
    }
}

/// Waits so long that the next write gets another time than the last.
pub(crate) fn tick() {
    std::thread::sleep(Duration::from_millis(30));
}
