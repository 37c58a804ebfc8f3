//! Findings of `verify`, with their files and what they mean for a resume.

use super::checkpoints::resume_words;
use super::{bytes, count};
use camino::Utf8Path;
use serde::Serialize;
use std::collections::BTreeSet;
use supervise_checkpoint::torch::TorchTensor;
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Finding, FindingLevel, Resumability, Verdict};

/// Tensors shown per file in text; `--json` lists all.
const TENSORS: usize = 200;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorView {
    /// Keys joined by dots.
    pub name: String,
    /// Element type, if the file says it.
    pub dtype: Option<String>,
    /// Its shape in this file.
    pub shape: Vec<u64>,
    /// The full shape, if it is sharded over ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<Vec<u64>>,
    /// How it is sharded, one word per dimension of the device mesh.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<String>,
}

impl TensorView {
    /// The view of a tensor.
    #[must_use]
    pub fn of(t: &TorchTensor) -> Self {
        Self {
            name: t.name.clone(),
            dtype: t.dtype.map(|d| d.word().to_owned()),
            shape: t.shape.clone(),
            global: t.placement.as_ref().map(|p| p.global.clone()),
            placement: t.placement.as_ref().map(|p| p.words.clone()).unwrap_or_default(),
        }
    }
}

/// One inspected file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileView {
    pub path: String,
    pub kind: FileKind,
    pub verdict: Verdict,
    pub checked: Depth,
    pub bytes: u64,
    /// CRC-32 of the whole file in hexadecimal, if every byte was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crc32: Option<String>,
    pub findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorView>,
}

impl FileView {
    /// The view of a file's report.
    #[must_use]
    pub fn of(path: &str, report: &FileReport, tensors: Vec<TensorView>) -> Self {
        Self {
            path: path.to_owned(),
            kind: report.kind,
            verdict: report.verdict,
            checked: report.proven,
            bytes: report.bytes,
            crc32: report.crc.map(|crc| format!("{crc:08x}")),
            findings: report.findings.clone(),
            tensors,
        }
    }
}

/// Files that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetView {
    /// Its directory, relative to the path on the command line; empty if that is it.
    pub path: String,
    /// `dcp`, `megatron_dist`, `weights`, `recover_info`.
    pub kind: &'static str,
    pub verdict: Verdict,
    pub proven: Option<Depth>,
    pub bytes: u64,
    pub files: u64,
    pub tensors: u64,
    pub findings: Vec<Finding>,
}

/// Result of one path of the command line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathView {
    /// The path as given.
    pub path: String,
    /// `file`, `step`, `role`, `root`, `dcp`, `megatron_dist`, `weights`, `recover_info`, `directory`, `scrub`, `special`, `unreadable`.
    pub what: &'static str,
    pub verdict: Verdict,
    pub steps: Vec<CheckpointSummary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<SetView>,
    pub files: Vec<FileView>,
    pub remarks: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_provable: Vec<&'static str>,
}

impl PathView {
    /// A path with nothing inspected yet.
    #[must_use]
    pub fn new(path: &Utf8Path, what: &'static str, verdict: Verdict) -> Self {
        Self {
            path: path.to_string(),
            what,
            verdict,
            steps: Vec::new(),
            sets: Vec::new(),
            files: Vec::new(),
            remarks: Vec::new(),
            not_provable: Vec::new(),
        }
    }

    /// Whether contents of whole files were left unread.
    fn is_skimmed(&self) -> bool {
        let is_skimmed = |f: &FileView| f.checked == Depth::Structure && f.verdict == Verdict::Whole;
        self.files.iter().any(is_skimmed)
    }

    /// Whether the text shows a file that nobody asked for: it was named itself, or the line of no step or set speaks for it.
    fn shows(&self, file: &FileView) -> bool {
        let is_plain = file.verdict == Verdict::Whole && file.findings.iter().all(|f| f.level == FindingLevel::Note);
        let within =
            |dir: &str| self.what != "root" && self.what != "directory" || Utf8Path::new(&file.path).starts_with(dir);
        let speaks = |verdict| file.verdict == Verdict::Whole || verdict != Verdict::Whole;
        let steps = self.steps.iter().map(|c| (c.id.0.as_str(), c.verdict));
        let mut lines = steps.chain(self.sets.iter().map(|s| (s.path.as_str(), s.verdict)));
        let covered = lines.any(|(dir, verdict)| within(dir) && speaks(verdict));
        self.what == "file" || !file.tensors.is_empty() || !is_plain && !covered
    }

    /// Doubts that remain about whole files: which save weights belong to, and bytes without a checksum.
    fn limits(&self) -> Vec<&'static str> {
        let whole = |kinds: &[FileKind]| {
            let mut files = self.files.iter().filter(|f| f.verdict == Verdict::Whole);
            files.any(|f| kinds.contains(&f.kind))
        };
        let weights = whole(&[FileKind::TorchZip, FileKind::Distcp, FileKind::Safetensors]);
        let bare = whole(&[
            FileKind::Safetensors,
            FileKind::Json,
            FileKind::TrainerState,
            FileKind::ModelConfig,
            FileKind::Settings,
            FileKind::Tokenizer,
            FileKind::FsdpConfig,
            FileKind::StepInfo,
            FileKind::FreqControl,
            FileKind::CkptContents,
            FileKind::Pickle,
            FileKind::DcpMetadata,
            FileKind::Text,
            FileKind::Opaque,
        ]);
        let free = whole(&[
            FileKind::ModelConfig,
            FileKind::Settings,
            FileKind::Tokenizer,
            FileKind::CkptContents,
            FileKind::Text,
        ]);
        let set = !(self.steps.is_empty() && self.sets.is_empty());
        let mut out = Vec::new();
        if self.what == "scrub" || self.verdict != Verdict::Whole {
            return out;
        }
        if weights && set {
            out.push("that all files are of one save (weights carry no step)");
        }
        if bare {
            out.push("bytes that no checksum covers (safetensors, JSON, pickles, text)");
        }
        if free {
            out.push("words that a model may choose (chat templates, special tokens, names)");
        }
        if self.is_skimmed() {
            out.push("contents that only --depth full reads");
        }
        out
    }
}

/// What the text shows besides the verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyDetail {
    /// Every file.
    pub files: bool,
    /// How each step was proven, what a resume from it restores, what was checked.
    pub verbose: bool,
}

/// The result of `verify`, as stable JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifyView {
    pub version: u32,
    pub verdict: Verdict,
    pub exit_code: u8,
    pub depth: Depth,
    pub paths: Vec<PathView>,
}

impl VerifyView {
    /// Combines the results of all paths.
    #[must_use]
    pub fn of(depth: Depth, mut paths: Vec<PathView>) -> Self {
        for path in &mut paths {
            path.not_provable = path.limits();
        }
        let verdict = paths.iter().fold(Verdict::Whole, |v, p| v.worst(p.verdict));
        Self {
            version: 1,
            verdict,
            exit_code: verdict.exit_code(),
            depth,
            paths,
        }
    }

    /// The result as text: a line for each step, then what was asked for.
    #[must_use]
    pub fn text(&self, detail: VerifyDetail) -> String {
        let mut out: String = self.paths.iter().map(|p| path_text(p, detail)).collect();
        if detail.verbose {
            out.push_str(&legend(&self.paths));
        }
        let is_said = detail.verbose && self.verdict == Verdict::Whole;
        if !is_said && self.paths.iter().any(PathView::is_skimmed) {
            out.push_str("checked the structure; --depth full reads every byte\n");
        }
        out
    }
}

fn path_text(p: &PathView, detail: VerifyDetail) -> String {
    let mut out = format!("{} ({}): {}\n", name(&p.path), p.what, p.verdict);
    for remark in &p.remarks {
        out.push_str(&format!("  note: {}\n", name(remark)));
    }
    for step in &p.steps {
        out.push_str(&step_text(step, p, detail));
    }
    for set in &p.sets {
        out.push_str(&set_text(set, p, detail));
    }
    for file in p.files.iter().filter(|f| detail.files || p.shows(f)) {
        out.push_str(&file_text(file));
    }
    if detail.verbose && !p.not_provable.is_empty() {
        let limits = p.not_provable.join("; ");
        out.push_str(&format!("  not provable from this directory alone: {limits}\n"));
    }
    out
}

/// Escapes a name, or text with names in it, for a terminal.
fn name(path: &str) -> String {
    super::terminal::shown(path)
}

fn file_text(file: &FileView) -> String {
    let depth = match file.checked {
        Depth::Structure => "structure",
        Depth::Full => "every byte",
    };
    let crc = file.crc32.as_ref().map(|c| format!(", CRC-32 {c}")).unwrap_or_default();
    let size = bytes(file.bytes);
    let mut out = format!(
        "  {:<10} {} ({size}, {depth}{crc})\n",
        file.verdict.word(),
        name(&file.path)
    );
    for f in &file.findings {
        out.push_str(&format!("             {}\n", name(&finding(f))));
    }
    for t in file.tensors.iter().take(TENSORS) {
        out.push_str(&format!("             {}\n", name(&tensor(t))));
    }
    if file.tensors.len() > TENSORS {
        let more = count((file.tensors.len() - TENSORS) as u64, "more tensor");
        out.push_str(&format!("             {more} (--json names all)\n"));
    }
    out
}

fn tensor(t: &TensorView) -> String {
    let dtype = t.dtype.as_deref().unwrap_or("?");
    match &t.global {
        Some(global) => format!(
            "{}: {dtype} {:?} of {global:?}, {}",
            t.name,
            t.shape,
            t.placement.join(", ")
        ),
        None => format!("{}: {dtype} {:?}", t.name, t.shape),
    }
}

fn set_text(s: &SetView, p: &PathView, detail: VerifyDetail) -> String {
    let place = if s.path.is_empty() {
        "together".to_owned()
    } else {
        name(&s.path)
    };
    let (size, tensors) = (bytes(s.bytes), count(s.tensors, "tensor"));
    if !detail.verbose {
        let why = worst(s.verdict, &s.findings).map(|why| format!(": {why}"));
        let line = format!(
            "  {place}: {}, {size}, {tensors}{}\n",
            s.verdict,
            why.unwrap_or_default()
        );
        return line + &doubts(s.verdict, &s.findings);
    }
    let mut out = format!(
        "  {place}: {} ({}, {}, {}, {tensors}, {size})\n",
        s.verdict,
        proven(s.proven),
        s.kind,
        count(s.files, "file"),
    );
    out.push_str(&own_findings(&s.findings, &p.files));
    let meaning = match s.verdict {
        Verdict::Whole => "all that belongs together is here and fits",
        Verdict::Unreadable => "nothing is known about bytes that cannot be read",
        _ => "no resume from it",
    };
    out + &format!("    {meaning}\n")
}

fn step_text(c: &CheckpointSummary, p: &PathView, detail: VerifyDetail) -> String {
    let (step, size) = (name(c.id.0.as_str()), bytes(c.bytes));
    if !detail.verbose {
        let why = match (c.verdict, &c.resume) {
            (Verdict::Whole, Resumability::Exact) => None,
            (Verdict::Whole, _) => Some(name(&resume(c))),
            _ => Some(worst(c.verdict, &c.findings).unwrap_or_else(|| name(&resume(c)))),
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        return format!("  {step}: {}, {size}{why}\n", c.verdict) + &doubts(c.verdict, &c.findings);
    }
    let mut out = format!(
        "  {step}: {} ({}, {}, {}, {size})\n",
        c.verdict,
        proven(c.proven),
        c.layout,
        count(u64::from(c.files), "file"),
    );
    out.push_str(&own_findings(&c.findings, &p.files));
    out.push_str(&format!("    {}\n", name(&resume(c))));
    out
}

/// The error that decided, and how many more there are.
fn worst(verdict: Verdict, findings: &[Finding]) -> Option<String> {
    let errors = || findings.iter().filter(|f| f.level == FindingLevel::Error);
    let first = errors().find(|f| f.verdict == verdict).or(errors().next())?;
    let more = match errors().count() {
        1 => String::new(),
        n => format!(" ({} more: -v)", n - 1),
    };
    Some(format!("{}{more}", name(&first.to_string())))
}

/// Doubts about what counts as whole.
fn doubts(verdict: Verdict, findings: &[Finding]) -> String {
    let doubts = findings.iter().filter(|f| f.level == FindingLevel::Warning);
    match verdict {
        Verdict::Whole => doubts
            .map(|f| format!("    {}: {}\n", level(f.level), name(&f.to_string())))
            .collect(),
        _ => String::new(),
    }
}

fn proven(depth: Option<Depth>) -> String {
    depth.map_or_else(|| "unproven".to_owned(), |d| format!("proven: {}", d.word()))
}

fn own_findings(findings: &[Finding], files: &[FileView]) -> String {
    let said: BTreeSet<_> = files
        .iter()
        .flat_map(|v| &v.findings)
        .map(|x| (&x.code, &x.detail, x.offset))
        .collect();
    findings
        .iter()
        .filter(|f| !said.contains(&(&f.code, &f.detail, f.offset)))
        .map(|f| format!("    {}: {}\n", level(f.level), name(&f.to_string())))
        .collect()
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

fn level(l: FindingLevel) -> &'static str {
    match l {
        FindingLevel::Note => "note",
        FindingLevel::Warning => "warning",
        FindingLevel::Error => "error",
    }
}

/// What was checked, once per kind of file and depth.
fn legend(paths: &[PathView]) -> String {
    let seen: BTreeSet<(&str, &str)> = paths
        .iter()
        .flat_map(|p| &p.files)
        .filter(|f| f.verdict == Verdict::Whole)
        .map(|f| checks(f.kind, f.checked))
        .collect();
    if seen.is_empty() {
        return String::new();
    }
    let lines: String = seen.iter().map(|(kind, what)| format!("  {kind}: {what}\n")).collect();
    format!("checked\n{lines}")
}

/// What a proof of this depth checks in a file of this kind.
fn checks(kind: FileKind, depth: Depth) -> (&'static str, &'static str) {
    let full = depth == Depth::Full;
    match kind {
        FileKind::TorchZip if full => (
            "torch files",
            "directory and headers of the zip, data.pkl without running it, every storage by size, every byte, every CRC",
        ),
        FileKind::TorchZip => (
            "torch files",
            "directory and headers of the zip, data.pkl without running it, every storage by size",
        ),
        FileKind::DcpMetadata => (
            ".metadata",
            "read without running it; every chunk stored once, chunks tile their tensors, ranges inside their files",
        ),
        FileKind::Distcp if full => (
            ".distcp",
            "every range is the tensor that .metadata describes, every byte, every CRC",
        ),
        FileKind::Distcp => (".distcp", "ranges are the tensors that .metadata describes"),
        FileKind::Safetensors if full => (
            "safetensors",
            "header, tensors tile the file, every byte can be read (the format has no checksums)",
        ),
        FileKind::Safetensors => ("safetensors", "header, tensors tile the file"),
        FileKind::Opaque | FileKind::Text if full => ("other files", "every byte can be read"),
        FileKind::Opaque | FileKind::Text => ("other files", "there, not empty, does not begin with zeros"),
        FileKind::Pickle => (
            "pickles",
            "read without running them; of a dataloader every key, types, counters that fit each other",
        ),
        FileKind::ModelConfig | FileKind::Settings => (
            "configurations",
            "JSON parsed wholly; known keys, types and ranges (the format has no checksum)",
        ),
        FileKind::Tokenizer => ("tokenizers", "JSON parsed wholly, outermost keys"),
        _ => ("JSON", "parsed wholly, the keys that are used"),
    }
}
