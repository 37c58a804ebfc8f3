//! Reads and judges directories and files.
//!
//! A directory is a trainer's root, a step, a role of a step, or a set of files (DCP, Megatron, exported weights), possibly in a
//! subdirectory.

mod declared;
mod mixed;
mod others;
mod sets;
mod single_checkpoint;
mod steps;

use crate::cli::exports;
use crate::declared_files;
use crate::error::CliError;
use crate::printer::ByteMeter;
use crate::render::verify::{FileView, PathView, TensorView};
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::Arc;
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, RequiredFile, SweepOptions, inspect};
use supervise_core::checkpoint::{Depth, Finding, Verdict};
use supervise_host::io_worker::{FileProver, FileSource};
use supervise_trainers::declared::Declaration;
use supervise_trainers::{TrainerAdapter, registry};

pub(in crate::cli) use declared::facts as declared_facts;
pub(in crate::cli) use others::declared_at;

/// Whose steps a directory holds, if the user said it.
#[derive(Clone)]
pub(super) enum StepJudge {
    Adapter(&'static dyn TrainerAdapter),
    Declared(Arc<Declaration>),
}

impl StepJudge {
    /// The trainer of this name, or of this file.
    pub(super) fn named(word: &str) -> Result<Self, CliError> {
        if let Some(adapter) = registry::with_steps(word) {
            return Ok(Self::Adapter(adapter));
        }
        if let Some(declaration) = declared_files::named(word)? {
            return Ok(Self::Declared(declaration));
        }
        let own = registry::FRAMEWORKS
            .into_iter()
            .filter(|name| registry::with_steps(name).is_some());
        let known: Vec<String> = own.map(str::to_owned).chain(declared_files::names()).collect();
        Err(CliError::usage(format!("--as: no trainer is called `{word}`"))
            .hint(format!("known are {}; a file is named by its path", known.join(", "))))
    }
}

/// Options, and the progress meter.
pub(super) struct VerifyOptions<'a> {
    pub(super) judge: Option<StepJudge>,
    pub(super) depth: Depth,
    pub(super) finite: bool,
    /// Memory to use, in bytes.
    pub(super) memory: u64,
    pub(super) tensors: bool,
    pub(super) meter: &'a mut ByteMeter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckpointDirKind {
    Root,
    Step,
    Role,
    /// The only checkpoint of a trainer that overwrites it.
    Live,
    Set(SetKind),
}

/// The trainer, and the prefix of its steps' names.
#[derive(Clone, Copy)]
pub(super) struct StepFamily {
    pub(super) adapter: &'static dyn TrainerAdapter,
    pub(super) prefix: &'static str,
    /// No name decided.
    is_guess: bool,
}

impl StepFamily {
    /// Judges by the names in a directory, its own name and its parent's.
    fn of(dir: &Utf8Path, names: &[String]) -> Self {
        let mut steps = names
            .iter()
            .map(String::as_str)
            .chain(dir.components().rev().take(2).map(|c| c.as_str()));
        let found = steps
            .find_map(registry::of_step_name)
            .or_else(|| registry::of_step(dir.file_name().unwrap_or_default(), names));
        let (adapter, prefix) = found.unwrap_or_else(registry::first_with_steps);
        Self {
            adapter,
            prefix,
            is_guess: found.is_none(),
        }
    }
}

pub(super) fn directory(named: &Utf8Path, dir: &Utf8Path, look: &mut VerifyOptions<'_>) -> io::Result<PathView> {
    let names = names_in(dir)?;
    if let Some(adapter) = marked(&names, look.judge.as_ref()) {
        let owner = StepFamily {
            adapter,
            prefix: "",
            is_guess: false,
        };
        return steps::judge(named, dir, CheckpointDirKind::Root, owner, look);
    }
    let owner = match look.judge.clone() {
        Some(StepJudge::Declared(declaration)) => return declared::judge(named, dir, &declaration, look),
        Some(StepJudge::Adapter(adapter)) => match adapter.step_prefix() {
            None => return single_checkpoint::judge(named, dir, look),
            Some(prefix) => StepFamily {
                adapter,
                prefix,
                is_guess: false,
            },
        },
        None => StepFamily::of(dir, &names),
    };
    match kind_of(dir, &names, owner) {
        CheckpointDirKind::Set(kind) => sets::one(named, dir, kind, look),
        CheckpointDirKind::Live => single_checkpoint::judge(named, dir, look),
        kind => {
            let view = steps::judge(named, dir, kind, owner, look)?;
            let unknown = kind == CheckpointDirKind::Step && view.steps.iter().all(|s| s.layout == "unknown");
            let sets = match unknown {
                true => sets::below(named, dir, look)?,
                false => None,
            };
            others::claim(named, dir, owner.is_guess, sets.unwrap_or(view), look)
        }
    }
}

/// The trainer whose root this is by the marks in it.
fn marked(names: &[String], judge: Option<&StepJudge>) -> Option<&'static dyn TrainerAdapter> {
    match judge {
        Some(StepJudge::Adapter(adapter)) => Some(*adapter).filter(|a| a.marks_steps()),
        Some(StepJudge::Declared(_)) => None,
        None => registry::of_marks(names),
    }
}

fn names_in(dir: &Utf8Path) -> io::Result<Vec<String>> {
    dir.read_dir_utf8()?
        // Trainers write no names that are not UTF-8.
        .filter(|e| !matches!(e, Err(e) if e.kind() == io::ErrorKind::InvalidData))
        .map(|e| e.map(|e| e.file_name().to_owned()))
        .collect()
}

fn kind_of(dir: &Utf8Path, names: &[String], owner: StepFamily) -> CheckpointDirKind {
    let prefix = owner.prefix;
    let marks = |n: &String| owner.adapter.is_of_role(n);
    let in_step = dir
        .parent()
        .and_then(Utf8Path::file_name)
        .is_some_and(|n| n.starts_with(prefix));
    match set::recognize(names.iter().map(String::as_str)) {
        _ if names
            .iter()
            .any(|n| registry::of_step_name(n).is_some_and(|(_, p)| p == prefix)) =>
        {
            CheckpointDirKind::Root
        }
        _ if in_step && names.iter().any(marks) => CheckpointDirKind::Role,
        _ if registry::of_step(dir.file_name().unwrap_or_default(), names).is_some() => CheckpointDirKind::Step,
        Some(kind) if !names.iter().any(marks) => CheckpointDirKind::Set(kind),
        None if exports::in_place_at(dir).is_some() => CheckpointDirKind::Live,
        _ => CheckpointDirKind::Step,
    }
}

pub(super) fn file(named: &Utf8Path, path: &Utf8Path, look: &mut VerifyOptions<'_>) -> PathView {
    let name = path.file_name().unwrap_or_default();
    let kind = match FileKind::of(name) {
        FileKind::Opaque if name.ends_with(".bin") && is_zip(path) => FileKind::TorchZip,
        kind => kind,
    };
    let dir = path.parent().unwrap_or(Utf8Path::new("."));
    let mut need = RequiredFile::new(name, kind);
    if kind == FileKind::Distcp && dir.join(".metadata").is_file() {
        need = need.described_by(".metadata");
    }
    let mut reports = prove(dir, &[need], look);
    let Some(mut report) = reports.remove(Utf8Path::new(name)) else {
        return PathView::new(named, "file", Verdict::Unreadable);
    };
    if matches!(kind, FileKind::Opaque | FileKind::Text) && report.verdict == Verdict::Whole {
        let detail = "no format that is known by this name: only its bytes were looked at";
        report.add(Finding::error("unknown_format", Verdict::Unknown, detail));
    }
    let alone = "--as is for directories: a file is checked by itself".to_owned();
    let alone = look.judge.is_some().then_some(alone);
    PathView {
        remarks: [file_meaning(report.verdict).to_owned()]
            .into_iter()
            .chain(alone)
            .collect(),
        files: vec![file_view(name, dir, name.into(), &report, look)],
        ..PathView::new(named, "file", report.verdict)
    }
}

/// Returns true if it begins like an archive of `torch.save`; the extension `.bin` alone proves nothing.
fn is_zip(path: &Utf8Path) -> bool {
    let mut head = [0; 4];
    let read = File::open(path).and_then(|mut f| f.read_exact(&mut head));
    read.is_ok() && head == *b"PK\x03\x04"
}

fn file_meaning(v: Verdict) -> &'static str {
    match v {
        Verdict::Whole => {
            "nothing in it keeps a resume from loading it; whether its step is whole, `supervise verify STEP` tells"
        }
        Verdict::Unknown => "no trainer that is known here loads such a file",
        Verdict::Incomplete | Verdict::Damaged => "a step that needs it is not resumed from",
        Verdict::Unsafe => "it is not loaded: that would run the code in it",
        Verdict::Unreadable => "nothing is said about its bytes",
    }
}

/// Proves files below a directory.
pub(super) fn prove(
    dir: &Utf8Path,
    needs: &[RequiredFile],
    look: &mut VerifyOptions<'_>,
) -> BTreeMap<camino::Utf8PathBuf, FileReport> {
    prove_by(FileProver::new(dir), needs, look)
}

/// Proves files of a step that its run wrote: unknown names do not condemn them.
pub(super) fn prove_own(
    dir: &Utf8Path,
    needs: &[RequiredFile],
    look: &mut VerifyOptions<'_>,
) -> BTreeMap<camino::Utf8PathBuf, FileReport> {
    prove_by(FileProver::new(dir).that_asks(), needs, look)
}

fn prove_by(
    prover: FileProver,
    needs: &[RequiredFile],
    look: &mut VerifyOptions<'_>,
) -> BTreeMap<camino::Utf8PathBuf, FileReport> {
    let options = SweepOptions {
        zero: true,
        finite: look.finite,
    };
    prover
        .with_memory(look.memory)
        .prove(needs, look.depth, options, &mut |p| {
            look.meter.tell(p.done, Some(p.of));
            ControlFlow::Continue(())
        })
}

/// The report of one file; `dir` and `inside` locate it.
pub(super) fn file_view(
    shown: &str,
    dir: &Utf8Path,
    inside: &Utf8Path,
    report: &FileReport,
    look: &VerifyOptions<'_>,
) -> FileView {
    let tensors = match look.tensors {
        true => tensors(&dir.join(inside), report.kind, look.memory),
        false => Vec::new(),
    };
    FileView::of(shown, report, tensors)
}

fn tensors(path: &Utf8Path, kind: FileKind, memory: u64) -> Vec<TensorView> {
    let Ok(source) = FileSource::open(path) else {
        return Vec::new();
    };
    let limits = InspectLimits {
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        ..InspectLimits::default()
    };
    let inspected = inspect(kind, &source, &limits);
    inspected.inventory.iter().map(TensorView::of).collect()
}
