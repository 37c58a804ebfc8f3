//! What was checked in files, what was found and where, and what it means for a resume.

use super::bytes;
use super::checkpoints::resume_words;
use serde::Serialize;
use supervise_checkpoint::FileKind;
use supervise_core::checkpoint::{CheckpointSummary, Depth, Finding, Level, Verdict};

/// One file that was looked into.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileView {
    /// Its path, relative to what was named.
    pub path: String,
    /// How it was read.
    pub kind: FileKind,
    /// What is known about it.
    pub verdict: Verdict,
    /// How deep it was read.
    pub checked: Depth,
    /// Its length.
    pub bytes: u64,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// What became of one path of the command line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathView {
    /// The path as named.
    pub path: String,
    /// `file`, `step`, `role`, `root`, `missing`.
    pub what: &'static str,
    /// The worst verdict in it.
    pub verdict: Verdict,
    /// The steps that were judged.
    pub steps: Vec<CheckpointSummary>,
    /// The files that were looked into.
    pub files: Vec<FileView>,
    /// Things that belong to no file.
    pub remarks: Vec<String>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifyView {
    /// Version of this shape.
    pub version: u32,
    /// The worst verdict.
    pub verdict: Verdict,
    /// Its exit code.
    pub exit_code: u8,
    /// Depth asked for.
    pub depth: Depth,
    /// One per path.
    pub paths: Vec<PathView>,
}

impl VerifyView {
    /// Joins what was found.
    #[must_use]
    pub fn of(depth: Depth, paths: Vec<PathView>) -> Self {
        let verdict = paths.iter().fold(Verdict::Whole, |v, p| v.worst(p.verdict));
        Self {
            version: 1,
            verdict,
            exit_code: verdict.exit_code(),
            depth,
            paths,
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        self.paths.iter().map(path_text).collect()
    }
}

fn path_text(p: &PathView) -> String {
    let mut out = format!("{} ({}): {}\n", p.path, p.what, p.verdict);
    for remark in &p.remarks {
        out.push_str(&format!("  note: {remark}\n"));
    }
    for file in &p.files {
        let depth = match file.checked {
            Depth::Structure => "structure",
            Depth::Full => "every byte",
        };
        out.push_str(&format!(
            "  {:<10} {} ({}, {depth})\n",
            file.verdict.word(),
            file.path,
            bytes(file.bytes)
        ));
        for f in &file.findings {
            out.push_str(&format!("             {}\n", finding(f)));
        }
    }
    for step in &p.steps {
        out.push_str(&step_text(step, &p.files));
    }
    out
}

fn step_text(c: &CheckpointSummary, files: &[FileView]) -> String {
    let proven = c
        .proven
        .map_or_else(|| "unproven".to_owned(), |d| format!("proven: {}", d.word()));
    let mut out = format!(
        "  {}: {} ({proven}, {}, {} files)\n",
        c.id, c.verdict, c.layout, c.files
    );
    // Findings of single files stand with the files already.
    let said = |f: &&Finding| {
        !files.iter().any(|v| {
            v.findings
                .iter()
                .any(|x| x.code == f.code && x.detail == f.detail && x.offset == f.offset)
        })
    };
    for f in c.findings.iter().filter(said) {
        out.push_str(&format!("    {}: {f}\n", level(f.level)));
    }
    out.push_str(&format!("    {}\n", resume(c)));
    out
}

fn resume(c: &CheckpointSummary) -> String {
    match c.verdict {
        Verdict::Whole => resume_words(&c.resume),
        Verdict::Incomplete | Verdict::Damaged | Verdict::Unsafe | Verdict::Unknown => {
            "no resume from it: an older whole step is used instead".to_owned()
        }
        Verdict::Unreadable => {
            "nothing is known: a run waits until it can be read, and passes it over never in silence".to_owned()
        }
    }
}

fn finding(f: &Finding) -> String {
    let at = f.offset.map(|o| format!(" at byte {o}")).unwrap_or_default();
    format!("{}{at}: {} [{}]", level(f.level), f.detail, f.code)
}

fn level(l: Level) -> &'static str {
    match l {
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Error => "error",
    }
}
