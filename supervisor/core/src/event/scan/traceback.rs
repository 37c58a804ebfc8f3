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
                r"^(?-u:(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?:\(\w+\))?|StopIteration)(?::|\s*$)|Exception: \S|(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?:\(\w+\))?(?::|\s*$))",
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
mod tests {
    use super::*;

    fn run(lines: &[(u64, &str)]) -> Vec<usize> {
        let mut t = Tracebacks::new().unwrap();
        let ends = lines.iter().enumerate().filter_map(|(n, (source, text))| {
            matches!(t.line(0, *source, text.as_bytes()), TracebackLine::Exception { .. }).then_some(n)
        });
        ends.collect()
    }

    #[test]
    fn an_exception_may_carry_the_text_of_another_traceback() {
        let mut t = Tracebacks::new().unwrap();
        for line in [
            "Traceback (most recent call last):",
            "  File \"a.py\", line 9, in main",
            "KeyError: Traceback (most recent call last):",
            "  File \"b.py\", line 3, in __getitem__",
        ] {
            t.line(0, 0, line.as_bytes());
        }
        let seen = t.line(0, 0, b"KeyError: 'x'");
        assert!(matches!(seen, TracebackLine::Exception { .. }), "{seen:?}");
        // A logger's name looks like an exception and precedes each line.
        for line in [
            "app.Launcher: Traceback (most recent call last):",
            "app.Launcher:   File \"a.py\", line 9, in main",
        ] {
            t.line(0, 0, line.as_bytes());
        }
        let seen = t.line(0, 0, b"app.Launcher: KeyError: 'x'");
        assert!(matches!(seen, TracebackLine::Exception { .. }), "{seen:?}");
    }

    #[test]
    fn tracebacks_of_two_ranks_may_be_printed_into_each_other() {
        let ends = run(&[
            (1, "Traceback (most recent call last):"),
            (2, "Traceback (most recent call last):"),
            (1, "  File \"a.py\", line 1, in f"),
            (2, "  File \"b.py\", line 1, in g"),
            (2, "KeyError: 'b'"),
            (1, "ValueError: a"),
            (1, "ValueError: not in a traceback"),
        ]);
        assert_eq!(ends, [4, 5]);
    }

    #[test]
    fn the_exception_inside_rays_wrapper_counts_too() {
        let ends = run(&[
            (0, "Traceback (most recent call last):"),
            (0, "  File \"a.py\", line 1, in f"),
            (0, "ray.exceptions.RayTaskError(ValueError): ray::f() (pid=1)"),
            (0, "  File \"b.py\", line 1, in g"),
            (0, "ValueError: b"),
        ]);
        assert_eq!(ends, [2, 4]);
    }

    #[test]
    fn what_python_ignores_ends_nothing() {
        let ends = run(&[
            (
                0,
                "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3b>",
            ),
            (0, "Traceback (most recent call last):"),
            (0, "  File \"a.py\", line 1, in f"),
            (0, "AssertionError: can only test a child process"),
            (1, "Traceback (most recent call last):"),
            (
                1,
                "  File \"/usr/lib/python3.11/multiprocessing/resource_tracker.py\", line 239, in main",
            ),
            (1, "KeyError: '/psm_4fa5'"),
            (0, "Traceback (most recent call last):"),
            (0, "  File \"a.py\", line 1, in f"),
            (0, "ValueError: a"),
        ]);
        assert_eq!(ends, [9]);
    }

    #[test]
    fn a_launcher_may_put_what_it_likes_before_each_line() {
        let mut t = Tracebacks::new().unwrap();
        let mut seen = |text: &str| t.line(0, 0, text.as_bytes());
        seen("trainer-1  | Traceback (most recent call last):");
        assert_eq!(seen("trainer-1  |   File \"a.py\", line 1, in f"), TracebackLine::Code);
        assert_eq!(seen("trainer-1  |     raise ValueError(x)"), TracebackLine::Code);
        assert!(matches!(
            seen("trainer-1  | Exception: boom"),
            TracebackLine::Exception { .. }
        ));
        // An exception class of the script itself; output between the lines is not one.
        seen("Traceback (most recent call last):");
        seen("  File \"a.py\", line 1, in f");
        assert!(matches!(
            seen("RewardModelDown: no answer"),
            TracebackLine::Exception { .. }
        ));
        seen("Traceback (most recent call last):");
        assert_eq!(seen("RewardModel: loaded"), TracebackLine::Other);
        assert!(matches!(seen("KeyError: 'x'"), TracebackLine::Exception { .. }));
        // Timestamps differ between lines; a progress bar precedes only the header.
        seen("Jun 03 11:42:07 n1 python[88]: Traceback (most recent call last):");
        assert_eq!(
            seen("Jun 03 11:42:08 n1 python[88]:   File \"a.py\", line 1, in f"),
            TracebackLine::Code
        );
        assert!(matches!(
            seen("Jun 03 11:42:08 n1 python[88]: KeyError: 'x'"),
            TracebackLine::Exception { .. }
        ));
        seen(" 12%|#  | 3/9 [00:01<00:02]Traceback (most recent call last):");
        assert_eq!(seen("  File \"a.py\", line 1, in f"), TracebackLine::Code);
        assert!(matches!(seen("KeyError: 'x'"), TracebackLine::Exception { .. }));
    }

    #[test]
    fn a_summary_of_a_launcher_is_indented() {
        let ends = run(&[
            (0, "  traceback : Traceback (most recent call last):"),
            (0, "    File \"a.py\", line 1, in f"),
            (0, "      x = y[1]"),
            (0, "  IndexError: list index out of range"),
        ]);
        assert_eq!(ends, [3]);
    }

    #[test]
    fn a_traceback_may_begin_above_the_log() {
        let ends = run(&[
            (0, "  File \"a.py\", line 1, in f"),
            (0, "    x = y[1]"),
            (0, "IndexError: list index out of range"),
            (0, "ValueError: not in a traceback"),
            // A printed stack does not end in an exception.
            (0, "  File \"a.py\", line 1, in f"),
            (0, "step 3"),
            (0, "ValueError: not in a traceback"),
            (0, "  File \"a.py\", line 1 in f"),
            (0, "ValueError: below a dump of stacks"),
        ]);
        assert_eq!(ends, [2]);
    }

    #[test]
    fn the_way_through_a_save_is_told() {
        let mut t = Tracebacks::new().unwrap();
        t.line(0, 0, b"Traceback (most recent call last):");
        t.line(0, 0, b"  File \"x.py\", line 3, in save_checkpoint");
        let end = |chained| TracebackLine::Exception {
            through: TracebackScope::Save,
            chained,
        };
        assert_eq!(t.line(0, 0, b"RuntimeError: x"), end(false));
        assert!(!t.any());
        t.line(
            0,
            0,
            b"During handling of the above exception, another exception occurred:",
        );
        t.line(0, 0, b"Traceback (most recent call last):");
        t.line(0, 0, b"  File \"x.py\", line 3, in save_checkpoint");
        assert_eq!(t.line(0, 0, b"ValueError: y"), end(true));
        t.line(
            0,
            0,
            b"The above exception was the direct cause of the following exception:",
        );
        assert_eq!(t.line(0, 0, b""), TracebackLine::Other);
        assert!(matches!(
            t.line(0, 0, b"ValueError: alone"),
            TracebackLine::Exception { chained: true, .. }
        ));
        assert_eq!(t.line(0, 0, b"ValueError: not in a chain"), TracebackLine::Other);
    }
}
