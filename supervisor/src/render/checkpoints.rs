//! The steps of a checkpoint root, one line each.

use super::time::local_stamp;
use super::{bytes, table, terminal};
use crate::lead::Lead;
use camino::Utf8PathBuf;
use serde::Serialize;
use supervise_core::checkpoint::kind::{is_live, is_older, is_own};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Finding, FindingLevel, Resumability, Verdict};
use supervise_core::event::{ScanReport, TrackerState};
use supervise_core::id::WallMs;

/// The stable JSON of a scan.
#[derive(Debug, Serialize)]
pub struct CheckpointsView<'a> {
    pub version: u32,
    pub root: &'a str,
    /// The trainer's own pointer.
    pub tracker: &'a TrackerState,
    pub newest_proven: Option<u64>,
    pub steps: &'a [CheckpointSummary],
    /// Exports of the weights, which cannot be resumed from.
    #[serde(skip_serializing_if = "<[Export]>::is_empty")]
    pub exports: &'a [Export],
    pub remarks: &'a [String],
    /// Why the root could not be read.
    pub unreadable: Option<&'a str>,
}

/// One export.
#[derive(Debug, Clone, Serialize)]
pub struct Export {
    pub path: Utf8PathBuf,
    /// The last trained step, counted from 1.
    pub step: u64,
    pub verdict: Verdict,
    pub proven: Option<Depth>,
    pub bytes: u64,
    /// Always false: an export has no optimizer, counters or dataloader position.
    pub resumable: bool,
    pub findings: Vec<Finding>,
}

impl<'a> CheckpointsView<'a> {
    /// The view of a scan.
    #[must_use]
    pub fn of(root: &'a str, scan: &'a ScanReport, exports: &'a [Export]) -> Self {
        let proven = scan
            .steps
            .iter()
            .find(|c| c.proven.is_some() && c.verdict.exit_code() == 0);
        Self {
            version: 1,
            root,
            tracker: &scan.tracker,
            newest_proven: proven.map(|c| c.step.0),
            steps: &scan.steps,
            exports,
            remarks: &scan.remarks,
            unreadable: scan.unreadable.as_deref(),
        }
    }
}

/// The table of steps and exports. `verbose`: also how each step was proven, and the trainer's pointer even if it is right.
#[must_use]
pub fn text(root: &str, scan: &ScanReport, exports: &[Export], verbose: bool) -> String {
    let root = terminal::shown(root);
    if let Some(why) = &scan.unreadable {
        return format!("{root} cannot be read: {}\n", terminal::shown(why));
    }
    let only = scan.steps.iter().any(|c| c.save.is_some() || is_live(&c.id));
    let newest = scan.steps.iter().find(|c| c.verdict == Verdict::Whole);
    let mut out = match newest {
        _ if scan.steps.is_empty() => format!("{root}: no steps\n"),
        Some(c) => format!("{root}: step {} is the newest whole step\n", c.step),
        None => format!("{root}: no whole step\n"),
    };
    if !scan.steps.is_empty() {
        let rows: Vec<Vec<String>> = scan.steps.iter().map(|c| row(c, only, verbose)).collect();
        let head = [
            Some("STEP"),
            only.then_some("WHAT"),
            Some("VERDICT"),
            verbose.then_some("PROVEN"),
            verbose.then_some("RESUME"),
            Some("SIZE"),
            Some("NEWEST FILE"),
            Some("WHY"),
        ];
        out.push_str(&table(&head.into_iter().flatten().collect::<Vec<_>>(), &rows));
    }
    if !exports.is_empty() {
        out.push_str("exports of the weights: nothing can be resumed from them\n");
        let rows: Vec<Vec<String>> = exports.iter().map(export).collect();
        out.push_str(&table(
            &["STEP", "VERDICT", "PROVEN", "SIZE", "DIRECTORY", "WHY"],
            &rows,
        ));
    }
    let is_right = match &scan.tracker {
        TrackerState::Step(n) => newest.is_some_and(|c| c.step == *n),
        TrackerState::Missing => only || scan.steps.is_empty(),
        TrackerState::Unused => true,
        TrackerState::Empty | TrackerState::NotAFile(_) | TrackerState::Garbage(_) => false,
    };
    if verbose || !is_right {
        out.push_str(&format!("{} {}\n", Lead::Note, tracker(&scan.tracker, only)));
    }
    for remark in &scan.remarks {
        out.push_str(&format!("{} {}\n", Lead::Note, terminal::shown(remark)));
    }
    out
}

fn tracker(tracker: &TrackerState, only: bool) -> String {
    match tracker {
        TrackerState::Missing if only => "one checkpoint, overwritten by each save".to_owned(),
        TrackerState::Missing => "no tracker file".to_owned(),
        TrackerState::Unused => "the newest step is the one with the highest number".to_owned(),
        TrackerState::Step(n) if only => format!("LATEST names step {n}"),
        TrackerState::Garbage(why) if only => format!("LATEST names nothing: {}", terminal::shown(why)),
        TrackerState::Empty => "the tracker file is empty".to_owned(),
        TrackerState::NotAFile(what) => format!("the tracker file is {}", terminal::shown(what)),
        TrackerState::Garbage(text) => format!("the tracker file says {text:?}, which is no step"),
        TrackerState::Step(n) => format!("the tracker file names step {n}"),
    }
}

fn export(e: &Export) -> Vec<String> {
    let why = e.findings.iter().find(|f| f.level == FindingLevel::Error);
    vec![
        e.step.to_string(),
        e.verdict.to_string(),
        e.proven.map_or("no", |d| d.word()).to_owned(),
        bytes(e.bytes),
        e.path.to_string(),
        why.map_or_else(String::new, ToString::to_string),
    ]
}

fn row(c: &CheckpointSummary, only: bool, verbose: bool) -> Vec<String> {
    let newest = match c.newest {
        WallMs(0) => "-".to_owned(),
        at => local_stamp(at),
    };
    let what = match &c.id {
        id if is_live(id) => "live",
        id if is_own(id) => "not named",
        id if is_older(id) => "older",
        _ => "kept",
    };
    let cells = [
        Some(c.step.to_string()),
        only.then(|| what.to_owned()),
        Some(if c.husk {
            "pruned".to_owned()
        } else {
            c.verdict.to_string()
        }),
        verbose.then(|| proof_word(c).to_owned()),
        verbose.then(|| resume_word(c).to_owned()),
        Some(bytes(c.bytes)),
        Some(newest),
        Some(why(c)),
    ];
    cells.into_iter().flatten().collect()
}

/// How a step is known to be whole.
pub(super) fn proof_word(c: &CheckpointSummary) -> &'static str {
    match c.proven {
        Some(_) if c.is_reported_only() => "reported",
        depth => depth.map_or("no", Depth::word),
    }
}

fn resume_word(c: &CheckpointSummary) -> &'static str {
    match &c.resume {
        // Only a whole step can be resumed from, or a partial one with a usable rest.
        _ if c.verdict != Verdict::Whole && c.part.is_none() => "no",
        Resumability::Exact => "exact",
        Resumability::Degraded { .. } => "degraded",
        Resumability::Not { .. } => "no",
    }
}

/// What a resume from it restores, as text.
#[must_use]
pub fn resume_words(r: &Resumability) -> String {
    match r {
        Resumability::Exact => "a resume restores all that this trainer saves".to_owned(),
        Resumability::Degraded { lost } => {
            let lost: Vec<&str> = lost.iter().map(|k| k.words()).collect();
            format!("a resume works and loses: {}", lost.join(", "))
        }
        Resumability::Not { why } => format!("no resume from it: {why}"),
    }
}

/// The finding that decided, else what is lost, else the first doubt.
fn why(c: &CheckpointSummary) -> String {
    if let Some(f) = c.why() {
        return f.to_string();
    }
    match &c.resume {
        Resumability::Not { why } => return why.clone(),
        Resumability::Degraded { lost } if !lost.is_empty() => return resume_words(&c.resume),
        _ => {}
    }
    let doubt = c.findings.iter().find(|f| f.level == FindingLevel::Warning);
    doubt.map_or_else(String::new, ToString::to_string)
}
