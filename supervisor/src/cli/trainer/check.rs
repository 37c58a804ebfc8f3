//! `supervise trainer check`: what a declaration understands of a checkpoint root, and which damages it notices.

use crate::cli::verify::declared_facts;
use crate::error::CliError;
use crate::prepare;
use crate::render::trainer::{CheckedStep, DamageRow, TrackerDamage, TrainerCheckView};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;
use supervise_checkpoint::{ByteSource, FileKind, FileReport, InspectLimits, SweepOptions, inspect, judge_file};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, Verdict};
use supervise_core::event::TrackerState;
use supervise_host::io_worker::{FileProver, FileSource};
use supervise_trainers::StepTracker;
use supervise_trainers::declared::{Declaration, DeclaredStepTracker};

/// Bytes of a log that are read.
const LOG: u64 = 64 << 20;
/// Files whose damage is tried.
const PLAYED: usize = 400;
/// Bytes of a tracker file that are read.
const TRACKER: u64 = 256;

#[derive(Debug, clap::Args)]
pub(super) struct TrainerCheckArgs {
    /// A declaration: a TOML file, or the name of a declared trainer
    #[arg(value_name = "FILE")]
    file: String,
    /// A checkpoint root of that trainer
    #[arg(value_name = "DIR")]
    dir: Utf8PathBuf,
    /// Also show what the lines of this log mean
    #[arg(long, value_name = "LOG")]
    log: Option<Utf8PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A root as it was read once; damages are played on copies of the facts.
struct RootReading {
    declaration: Arc<Declaration>,
    facts: Vec<FileFact>,
    reports: BTreeMap<Utf8PathBuf, FileReport>,
    pointer: Option<Vec<u8>>,
}

/// What a root looks like to a declaration.
#[derive(PartialEq)]
struct RootAnswer {
    steps: Vec<CheckpointSummary>,
    tracker: TrackerState,
    remarks: Vec<String>,
}

impl RootReading {
    fn answer(&self) -> RootAnswer {
        self.judged().1
    }

    /// A tracker that has judged every step, and what it said.
    fn judged(&self) -> (DeclaredStepTracker, RootAnswer) {
        let mut tracker = self.declaration.tracker();
        for fact in &self.facts {
            tracker.note(fact);
        }
        let state = tracker.read_tracker(self.pointer.as_deref());
        let mut ids = tracker.steps();
        ids.reverse();
        let judge = |(id, _): (CkptId, _)| tracker.judge(&id, Depth::Structure, &self.reports);
        let steps = ids.into_iter().map(judge).collect();
        let answer = RootAnswer {
            steps,
            tracker: state,
            remarks: tracker.remarks(),
        };
        (tracker, answer)
    }
}

pub(super) fn run(args: &TrainerCheckArgs) -> Result<u8, CliError> {
    let declaration = super::find(&args.file)?;
    let root = super::directory(&args.dir)?;
    let memory = prepare::proof_memory()?;
    let reading = read(&declaration, &root, memory)?;
    let answer = reading.answer();
    let (damages, untried) = damages(&reading, &root, &answer);
    let mut tracker = declaration.tracker();
    for fact in &reading.facts {
        tracker.note(fact);
    }
    let steps: Vec<CheckedStep> = answer
        .steps
        .iter()
        .map(|summary| CheckedStep {
            parts: tracker.parts(&summary.id),
            untaken: tracker
                .untaken(&summary.id)
                .into_iter()
                .map(Utf8PathBuf::into_string)
                .collect(),
            summary: summary.clone(),
        })
        .collect();
    let newest = steps.iter().rev().find(|s| s.summary.verdict == Verdict::Whole);
    let shown = root.as_str();
    let view = TrainerCheckView {
        version: 1,
        path: args.dir.to_string(),
        declaration: declaration.outline(),
        verdict: steps.iter().fold(Verdict::Whole, |v, s| v.worst(s.summary.verdict)),
        tracker: answer.tracker.clone(),
        remarks: answer.remarks.clone(),
        resume: newest.map(|s| declaration.resume_words(shown, s.summary.id.0.as_str(), s.summary.step.0)),
        no_words: declaration.no_resume_words(),
        fresh: declaration.fresh_words(shown),
        strip: declaration.stripped_words().to_vec(),
        lines: match &args.log {
            Some(log) => Some(declaration.match_lines(text_of(log)?.lines())),
            None => None,
        },
        untried,
        damages,
        tracker_damages: tracker_damages(&reading, &answer),
        steps,
    };
    let view = match view.steps.is_empty() {
        true => TrainerCheckView {
            verdict: Verdict::Unknown,
            ..view
        },
        false => view,
    };
    match args.json {
        true => crate::cli::print_json(&view)?,
        false => crate::cli::print(&view.text())?,
    }
    Ok(view.verdict.exit_code())
}

fn read(declaration: &Arc<Declaration>, root: &Utf8Path, memory: u64) -> Result<RootReading, CliError> {
    let mut tracker = declaration.tracker();
    let facts = declared_facts(root, &tracker).map_err(|e| CliError::environment(format!("{root}: {e}")))?;
    for fact in &facts {
        tracker.note(fact);
    }
    let mut needs = Vec::new();
    for (id, _) in tracker.steps() {
        needs.extend(tracker.needs(&id, Depth::Structure));
    }
    let options = SweepOptions {
        zero: true,
        finite: false,
    };
    let prover = FileProver::new(root).with_memory(memory);
    let reports = prover.prove(&needs, Depth::Structure, options, &mut |_| ControlFlow::Continue(()));
    let file = tracker.tracker_file();
    let pointer = match file {
        "" => None,
        file => head(&root.join(file), TRACKER),
    };
    Ok(RootReading {
        declaration: Arc::clone(declaration),
        facts,
        reports,
        pointer,
    })
}

/// The first bytes of a regular file.
fn head(path: &Utf8Path, limit: u64) -> Option<Vec<u8>> {
    let source = FileSource::open(path).ok()?;
    let len = source.len().ok()?.min(limit);
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let mut at = 0;
    while at < bytes.len() {
        match source.read_at(at as u64, &mut bytes[at..]).ok()? {
            0 => break,
            n => at += n,
        }
    }
    bytes.truncate(at);
    Some(bytes)
}

fn text_of(log: &Utf8Path) -> Result<String, CliError> {
    let fail = |e: std::io::Error| CliError::environment(format!("{log}: {e}"));
    if !log.is_file() {
        return Err(CliError::usage(format!("{log}: not a file")).hint("name a log of the trainer's output"));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(log).map_err(fail)?;
    file.take(LOG).read_to_end(&mut bytes).map_err(fail)?;
    // A progress bar writes over its line.
    Ok(String::from_utf8_lossy(&bytes).replace('\r', "\n"))
}

/// Each file of each whole step gone, and cut in half; and how many files were not tried.
fn damages(reading: &RootReading, root: &Utf8Path, before: &RootAnswer) -> (Vec<DamageRow>, usize) {
    let in_steps = |f: &&FileFact| {
        let name = f.path.components().next().map(|c| c.as_str()).unwrap_or_default();
        let whole = |s: &CheckpointSummary| s.id.0 == name && s.verdict == Verdict::Whole;
        f.kind == EntryKind::File && before.steps.iter().any(whole)
    };
    let mut files: Vec<&FileFact> = reading.facts.iter().filter(in_steps).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let untried = files.len().saturating_sub(PLAYED);
    files.truncate(PLAYED);
    let (tracker, _) = reading.judged();
    let mut play = DamagePlay {
        tracker,
        reports: reading.reports.clone(),
        before,
    };
    let rows = files
        .into_iter()
        .map(|fact| DamageRow {
            file: fact.path.to_string(),
            gone: play.notices(fact, None),
            cut: cut(reading, root, fact).is_some_and(|report| play.notices(fact, Some(report))),
        })
        .collect();
    (rows, untried)
}

/// A judged root, on which one damage after the other is played and undone.
struct DamagePlay<'a> {
    tracker: DeclaredStepTracker,
    reports: BTreeMap<Utf8PathBuf, FileReport>,
    before: &'a RootAnswer,
}

impl DamagePlay<'_> {
    /// Returns true if the file's step is judged otherwise without the file, or with a file cut in half.
    fn notices(&mut self, fact: &FileFact, cut: Option<FileReport>) -> bool {
        let Some(id) = fact.path.components().next().map(|name| CkptId(name.as_str().into())) else {
            return false;
        };
        let whole = self.reports.remove(&fact.path);
        let mut damaged = fact.clone();
        match cut {
            None => damaged.kind = EntryKind::Gone,
            Some(report) => {
                damaged.size /= 2;
                // The table of a distributed checkpoint tells how long its parts are.
                if report.kind != FileKind::Distcp {
                    self.reports.insert(fact.path.clone(), report);
                }
            }
        }
        self.tracker.note(&damaged);
        let is_there = self.tracker.steps().iter().any(|(step, _)| *step == id);
        let now = self.tracker.judge(&id, Depth::Structure, &self.reports);
        self.tracker.note(fact);
        self.reports.remove(&fact.path);
        self.reports.extend(whole.map(|report| (fact.path.clone(), report)));
        // Other steps are compared with it as it was.
        self.tracker.judge(&id, Depth::Structure, &self.reports);
        let was = self.before.steps.iter().find(|step| step.id == id);
        !is_there
            || was.is_none_or(|was| {
                was.verdict != now.verdict || now.findings.len() > was.findings.len() && was.resume != now.resume
            })
    }
}

/// The report of the first half of a file; `None` if no part reads it.
fn cut(reading: &RootReading, root: &Utf8Path, fact: &FileFact) -> Option<FileReport> {
    let kind = reading.reports.get(&fact.path)?.kind;
    let half = HalfFile(FileSource::open(&root.join(&fact.path)).ok()?);
    Some(judge_file(&inspect(kind, &half, &InspectLimits::default()), &[]))
}

/// The first half of a file.
struct HalfFile(FileSource);

impl ByteSource for HalfFile {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.len()? / 2)
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.len()?.saturating_sub(off)).unwrap_or(usize::MAX);
        let end = left.min(buf.len());
        self.0.read_at(off, &mut buf[..end])
    }
}

/// The tracker gone, empty and with garbage in it.
fn tracker_damages(reading: &RootReading, before: &RootAnswer) -> Vec<TrackerDamage> {
    let file = reading.declaration.tracker().tracker_file();
    if file.is_empty() || before.steps.is_empty() {
        return Vec::new();
    }
    let noticed = |bytes: Option<&[u8]>| {
        let damaged = RootReading {
            declaration: Arc::clone(&reading.declaration),
            facts: reading.facts.clone(),
            reports: reading.reports.clone(),
            pointer: bytes.map(<[u8]>::to_vec),
        };
        let answer = damaged.answer();
        answer.tracker != before.tracker && answer.remarks != before.remarks
    };
    let row = |damage, bytes| TrackerDamage {
        file: file.to_owned(),
        damage,
        noticed: noticed(bytes),
    };
    vec![
        row("gone", None),
        row("empty", Some(b"".as_slice())),
        row("garbage", Some(b"\0\0\0")),
    ]
}
