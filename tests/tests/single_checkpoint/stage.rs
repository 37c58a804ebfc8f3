//! A file root with a live set in it, the place where generations are kept, and an I/O worker that looks after both.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Verdict};
use supervise_core::event::{ActError, ScanReport};
use supervise_core::id::ActId;
use supervise_core::journal::record::DiskEdit;
use supervise_core::spec::{InPlaceSpec, RoleSpec, RunSpec, SavePolicy};
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion, IoWorkerError};
use supervise_tests::areal_set::{Shape, save, save_until};
use supervise_tests::bare_spec::bare;
use supervise_tests::harness::PATIENCE;
use supervise_trainers::areal::ArealSpec;

pub(crate) const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");

/// A file root.
pub(crate) struct Stage {
    _folder: tempfile::TempDir,
    pub(crate) root: Utf8PathBuf,
    pub(crate) store: Utf8PathBuf,
    pub(crate) shape: Shape,
    pub(crate) spec: RunSpec,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Shape::default())
    }

    pub(crate) fn with(shape: Shape) -> Self {
        let folder = tempfile::Builder::new().prefix("supervise-live.").tempdir().unwrap();
        let top = Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        let root = top.join("checkpoints/me/exp/trial0");
        let store = top.join("supervise/me/exp/trial0");
        fs::create_dir_all(root.parent().unwrap()).unwrap();
        let mut spec = bare("live", &root, &store);
        spec.trainer = supervise_trainers::areal::AREAL;
        spec.policy.protect.reserve = 0;
        spec.roles = shape.engines.iter().map(|e| role(e)).collect();
        let live = ArealSpec {
            user: "me".to_owned(),
            data_ranks: Some(shape.data_ranks),
            updates_per_step: Some(1),
            ..ArealSpec::default()
        };
        spec.saves = SavePolicy::InPlace(InPlaceSpec {
            store: store.clone(),
            exit_says_nothing: false,
            spread: Default::default(),
            own: live.own(),
        });
        Self {
            _folder: folder,
            root,
            store,
            shape,
            spec,
        }
    }

    /// Changes what the configuration says of the only checkpoint.
    pub(crate) fn say(&mut self, change: impl FnOnce(&mut ArealSpec)) {
        let mut live = ArealSpec::of(&self.spec.saves).unwrap();
        change(&mut live);
        let SavePolicy::InPlace(place) = &mut self.spec.saves else {
            unreachable!("this trainer has one checkpoint");
        };
        place.own = live.own();
    }

    pub(crate) fn save(&self, step: u64) {
        save(self.root.as_std_path(), step, &self.shape).unwrap();
    }

    /// A save that is killed after so many operations; answers how many a whole one has.
    pub(crate) fn cut(&self, step: u64, until: usize) -> usize {
        save_until(self.root.as_std_path(), step, &self.shape, until).unwrap()
    }

    pub(crate) fn io_worker(&self) -> SetWorker {
        let mut io_worker = SetWorker(IoClient::start(Path::new(SUPERVISE)).unwrap());
        io_worker.ask(IoQuestion::Spec(Box::new(self.spec.clone())));
        io_worker
    }

    /// One look as before a launch, in an I/O worker of its own.
    pub(crate) fn look(&self) -> ScanReport {
        self.io_worker().scan()
    }

    /// Saves and keeps steps, one after the other.
    pub(crate) fn saved_and_kept(&self, steps: &[u64]) {
        for step in steps {
            self.save(*step);
            self.io_worker().keep_live().unwrap();
        }
    }

    /// Gives every file of the live set the same time, as some copies do.
    pub(crate) fn forget_times(&self) {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for path in files(&self.root).into_keys() {
            let file = File::options().write(true).open(self.root.join(path)).unwrap();
            file.set_times(FileTimes::new().set_modified(then)).unwrap();
        }
    }
}

fn role(name: &str) -> RoleSpec {
    let contents: Vec<String> = ["model", "optimizer"].map(str::to_owned).to_vec();
    RoleSpec {
        name: name.to_owned(),
        save_contents: contents.clone(),
        load_contents: contents,
        load_wish: false,
        megatron: None,
        fsdp_size: None,
        sequence: None,
        keep: None,
    }
}

/// All files below a directory, with their bytes.
pub(crate) fn files(dir: &Utf8Path) -> BTreeMap<Utf8PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(at) = waiting.pop() {
        let Ok(entries) = at.read_dir_utf8() else { continue };
        for entry in entries {
            let path = entry.unwrap().path().to_owned();
            match path.is_dir() {
                true => waiting.push(path),
                false => drop(out.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap())),
            }
        }
    }
    out
}

/// An I/O worker of the real program.
pub(crate) struct SetWorker(pub(crate) IoClient);

impl SetWorker {
    pub(crate) fn ask(&mut self, ask: IoQuestion) -> IoAnswer {
        self.0.ask(ask, PATIENCE).unwrap()
    }

    pub(crate) fn scan(&mut self) -> ScanReport {
        let ask = IoQuestion::Scan {
            depth: Depth::Full,
            whole: u32::MAX,
            thorough: true,
        };
        match self.ask(ask) {
            IoAnswer::Scan(report) => report,
            other => panic!("not an answer to a scan: {other:?}"),
        }
    }

    /// Keeps the live set as it is now.
    pub(crate) fn keep_live(&mut self) -> Result<(), ActError> {
        let report = self.scan();
        self.keep(live(&report))
    }

    pub(crate) fn keep(&mut self, c: &CheckpointSummary) -> Result<(), ActError> {
        self.ask(IoQuestion::Keep {
            act: ActId(7),
            ckpt: c.id.clone(),
            step: c.step,
            pins: c.pins,
            rate: 0,
        });
        self.0.kept(PATIENCE).unwrap()
    }

    pub(crate) fn edit(&mut self, edits: Vec<DiskEdit>) -> Result<IoAnswer, IoWorkerError> {
        let by = "before-attempt-2".to_owned();
        self.0.ask(IoQuestion::Edit { edits, by }, PATIENCE)
    }
}

/// The live set of a report.
pub(crate) fn live(report: &ScanReport) -> &CheckpointSummary {
    let is_live = |c: &&CheckpointSummary| c.id.0.as_str().starts_with("live");
    report.steps.iter().find(is_live).unwrap()
}

/// The generations of a report, newest first.
pub(crate) fn generations(report: &ScanReport) -> Vec<&CheckpointSummary> {
    report
        .steps
        .iter()
        .filter(|c| c.id.0.as_str().starts_with("step_"))
        .collect()
}

/// Changes made before a launch from a generation.
pub(crate) fn put_back(report: &ScanReport, from: &CkptId) -> Vec<DiskEdit> {
    let aside = report.steps.iter().filter(|c| c.id.0.as_str().starts_with("live"));
    let aside = aside.map(|c| DiskEdit::MoveAside {
        from: c.id.clone(),
        whole: c.verdict == Verdict::Whole,
        foreign: false,
        others: false,
        why: "torn".to_owned(),
    });
    aside.chain([DiskEdit::PutBack { from: from.clone() }]).collect()
}
