//! Tracks Python tracebacks for each process in an output, to find the lines that name exceptions.

use regex::bytes::Regex;
use std::collections::{BTreeMap, BTreeSet};

/// Most processes whose tracebacks are tracked at once.
const PROCESSES: usize = 1024;

const HEADER: &[u8] = b"Traceback (most recent call last)";

/// Bytes that may follow the header on its line: a rank, or Ray's repeat count.
const AFTER: usize = 160;

/// Start of the line before a traceback that ends nothing.
const IGNORED: &[u8] = b"Exception ignored ";

/// Start of the line before the traceback of a thread.
const THREAD: &[u8] = b"Exception in thread ";

/// A Python helper process that complains about resources already freed.
const TRACKER: &[u8] = b"multiprocessing/resource_tracker.py\"";

/// Lines after which an unfinished traceback is given up.
const LINES: u32 = 2000;

/// The part of a program that a traceback went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TracebackScope {
    /// None of these.
    Neither,
    /// It reads the trainer state of a step.
    State,
    /// It loads a checkpoint.
    Load,
    /// It saves a checkpoint.
    Save,
    /// It requests rewards.
    Reward,
    /// It sets up the process group.
    Init,
    /// It ended a thread, and may have left the program running.
    Thread,
}

impl TracebackScope {
    pub(super) const ALL: [Self; 7] = [
        Self::Neither,
        Self::State,
        Self::Load,
        Self::Save,
        Self::Reward,
        Self::Init,
        Self::Thread,
    ];

    /// What it adds to the text of a rule.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Neither => "",
            Self::State => ".state",
            Self::Load => ".load",
            Self::Save => ".save",
            Self::Reward => ".reward",
            Self::Init => ".init",
            Self::Thread => ".thread",
        }
    }
}

/// Role of a line in a traceback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TracebackLine {
    /// Outside.
    Other,
    /// A header, or another line inside.
    Inside,
    /// A frame or source line.
    Code,
    /// The last line; `chained` if another exception came before it in its chain.
    Exception { through: TracebackScope, chained: bool },
}

struct OpenTraceback {
    /// Whether Python says that it ignores the exception.
    ignored: bool,
    /// Launcher prefix of the header, which its other lines may have too.
    prefix: Vec<u8>,
    /// Spaces before the header; its last line is indented as far.
    indent: usize,
    through: TracebackScope,
    chained: bool,
    lines: u32,
    /// Whether the previous line was a frame or source line.
    code: bool,
    /// Whether its header is missing, because the log starts inside it or was cut.
    headless: bool,
}

pub(super) struct Tracebacks {
    open: BTreeMap<(u32, u64), OpenTraceback>,
    /// Processes whose next traceback continues a chain.
    chained: BTreeSet<(u32, u64)>,
    /// Number of coming tracebacks per process that end nothing: errors in finalizers or callbacks.
    ignored: BTreeMap<(u32, u64), u32>,
    /// Processes whose next traceback is that of a thread.
    threads: BTreeSet<(u32, u64)>,
    exception: Regex,
    /// An exception class of the script itself has no module; it counts only right below a source line.
    own: Regex,
    state: Regex,
    load: Regex,
    save: Regex,
    reward: Regex,
    init: Regex,
}

impl Tracebacks {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            open: BTreeMap::new(),
            chained: BTreeSet::new(),
            ignored: BTreeMap::new(),
            threads: BTreeSet::new(),
            exception: Regex::new(
                r"^(?-u:(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?:\(\w+\))?|StopIteration)(?::|\s*$)|Exception: \S|(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?:\(\w+\))?(?::|\s*$))",
            )?,
            own: Regex::new(r"^(?-u:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+(?:: |\s*$))")?,
            // `trainer_state.json` of Hugging Face's `Trainer`.
            state: Regex::new(r#"(?-u)/trainer_callback\.py", line \d+, in load_from_json\b"#)?,
            load: Regex::new(
                r#"(?-u), line \d+, in (?:\w*load_(?:checkpoint|ckpt|state_dict|recover|optimizer|model_state|dist)\w*|_?resume\w*|\w*restore\w*|_load_from_checkpoint|load_state_dict)\b|(?:serialization|checkpoint|ckpt|safetensors|state_dict|dcp|engine|trainer)\w*\.py", line \d+, in load\b"#,
            )?,
            save: Regex::new(
                r"(?-u), line \d+, in (?:\w*save_(?:\w+_)?(?:checkpoint|ckpt|state|recover|model|optimizer|pretrained)\w*|save|_save\w*|async_save\w*|\w+_save)\b",
            )?,
            reward: Regex::new(
                r#"(?-u)File "(?:[^"]*/)?(?:[^"/]*(?:reward|remote_rm|judge|verifier)[^"/]*|(?:rewards?|judges?|verifiers?)/[^"]*)\.py", line|, in (?:compute_(?:score|reward)\w*|get_reward\w*|reward_(?:fn|func)\w*|remote_rm_fn\w*)\b"#,
            )?,
            init: Regex::new(
                r"(?-u), line \d+, in (?:init_process_group|_new_process_group_helper|_initialize_distributed)\b",
            )?,
        })
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.chained.clear();
        self.ignored.clear();
        self.threads.clear();
    }

    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn line(&mut self, worker: u32, source: u64, text: &[u8]) -> TracebackLine {
        let key = (worker, source);
        // A progress bar has no newline, so the traceback may follow on its line.
        if let Some(at) = memchr::memmem::find(text, HEADER)
            && ends_after(&text[at + HEADER.len()..])
        {
            self.begin(key, text, at);
            return TracebackLine::Inside;
        }
        if is_link(text) && self.chained.len() < PROCESSES {
            self.chained.insert(key);
            return TracebackLine::Inside;
        }
        if text.starts_with(THREAD) && self.threads.len() < PROCESSES {
            self.threads.insert(key);
            return TracebackLine::Inside;
        }
        if text.starts_with(IGNORED) && self.ignored.len() < PROCESSES {
            *self.ignored.entry(key).or_default() += 1;
            return TracebackLine::Inside;
        }
        if (is_frame(text) || is_script(text)) && !self.open.contains_key(&key) {
            self.begin_inside(key);
        }
        // Some programs print only the last line of a chained traceback.
        if !self.open.contains_key(&key) && self.chained.contains(&key) && self.exception.is_match(text) {
            self.chained.remove(&key);
            return TracebackLine::Exception {
                through: TracebackScope::Neither,
                chained: true,
            };
        }
        if self.open.is_empty() {
            return TracebackLine::Other;
        }
        let Some(open) = self.open.get_mut(&key) else {
            return TracebackLine::Other;
        };
        open.lines += 1;
        if open.lines > LINES {
            self.open.remove(&key);
            return TracebackLine::Other;
        }
        let text = within(text, &open.prefix);
        let indent = text.iter().take_while(|b| **b == b' ').count();
        if indent == text.len() {
            return TracebackLine::Inside;
        }
        if indent > open.indent {
            if text[indent..].starts_with(b"File \"") {
                open.ignored |= memchr::memmem::find(text, TRACKER).is_some();
                let is_open = matches!(open.through, TracebackScope::Neither | TracebackScope::Thread);
                let of_tracker = memchr::memmem::find(text, b"wandb").is_some();
                if self.save.is_match(text) && !of_tracker {
                    open.through = TracebackScope::Save;
                } else if self.state.is_match(text) {
                    open.through = TracebackScope::State;
                } else if is_open && self.load.is_match(text) {
                    open.through = TracebackScope::Load;
                } else if is_open && self.reward.is_match(text) {
                    open.through = TracebackScope::Reward;
                } else if is_open && self.init.is_match(text) {
                    open.through = TracebackScope::Init;
                }
            }
            open.code = true;
            return TracebackLine::Code;
        }
        let right_below = std::mem::take(&mut open.code);
        if open.headless && !right_below {
            self.open.remove(&key);
            return TracebackLine::Other;
        }
        let own = right_below && self.own.is_match(&text[indent..]);
        if !own && !self.exception.is_match(&text[indent..]) {
            return TracebackLine::Other;
        }
        let (through, chained, ignored) = (open.through, open.chained, open.ignored);
        // Ray prints the wrapped exception below its own.
        if memchr::memmem::find(text, b"RayTaskError").is_none() {
            self.open.remove(&key);
        }
        if ignored {
            return TracebackLine::Inside;
        }
        TracebackLine::Exception { through, chained }
    }

    fn begin(&mut self, key: (u32, u64), text: &[u8], at: usize) {
        if self.open.len() >= PROCESSES {
            self.open.clear();
        }
        let chained = self.chained.remove(&key);
        let of_thread = self.threads.remove(&key);
        let ignored = self.ignored.get_mut(&key).is_some_and(|n| {
            let any = *n > 0;
            *n = n.saturating_sub(1);
            any
        });
        let before = &text[..at];
        // An exception may carry the text of another traceback; its name is no launcher prefix. A logger's dotted name is one.
        let is_raised = before.ends_with(b"Error: ") || before.ends_with(b"Exception: ");
        let is_carried = is_raised && self.exception.is_match(before);
        let told = is_carried || before.trim_ascii_end().ends_with(b"traceback :");
        let indent = match told || before.iter().all(|b| *b == b' ') {
            true => before.iter().take_while(|b| **b == b' ').count(),
            false => 0,
        };
        let prefix = if indent == before.len() || told { &[] } else { before };
        let open = OpenTraceback {
            ignored,
            prefix: prefix.to_vec(),
            indent,
            through: match of_thread {
                true => TracebackScope::Thread,
                false => TracebackScope::Neither,
            },
            chained,
            lines: 0,
            code: false,
            headless: false,
        };
        self.open.insert(key, open);
    }

    /// Opens a traceback at a frame whose header is missing.
    fn begin_inside(&mut self, key: (u32, u64)) {
        self.begin(key, b"", 0);
        if let Some(open) = self.open.get_mut(&key) {
            open.headless = true;
        }
    }
}

/// Removes the header's prefix from a line; digits in it may differ.
fn within<'a>(line: &'a [u8], prefix: &[u8]) -> &'a [u8] {
    let same = |(a, b): (&u8, &u8)| a == b || a.is_ascii_digit() && b.is_ascii_digit();
    match line.split_at_checked(prefix.len()) {
        Some((before, text)) if before.iter().zip(prefix).all(same) => text,
        _ => line,
    }
}

/// Returns true if no more of the traceback follows on the header's line; otherwise it is quoted in a string.
fn ends_after(rest: &[u8]) -> bool {
    rest.len() <= AFTER && memchr::memchr(b'\\', rest).is_none() && memchr::memmem::find(rest, b"File ").is_none()
}

/// Returns true for a frame of a traceback without a launcher prefix.
fn is_frame(text: &[u8]) -> bool {
    let holds = |what: &[u8]| memchr::memmem::find(text, what).is_some();
    text.starts_with(b"  File \"") && holds(b"\", line ") && holds(b", in ")
}

/// Returns true for the location of a syntax error, for which Python prints no traceback.
fn is_script(text: &[u8]) -> bool {
    let at = memchr::memmem::find(text, b"\", line ");
    text.starts_with(b"  File \"")
        && at.is_some_and(|at| text[at + 8..].trim_ascii_end().iter().all(u8::is_ascii_digit))
}

/// Returns true for the line between two chained tracebacks.
fn is_link(text: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(text, b" above exception") else {
        return false;
    };
    text[..at].ends_with(b"During handling of the") || text[at..].starts_with(b" above exception was the direct cause")
}

#[cfg(test)]
mod tests;
