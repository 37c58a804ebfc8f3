//! Python stacks of ranks in a hang: where each one is, and which one differs from the others.
//!
//! Read from the dumps of faulthandler and py-spy that the processes of an attempt left before they were killed. Ranks
//! with the same stack form a group. A rank that is in the program while others wait in a collective is listed first.
//! Whether a rank waits depends only on its innermost frame.

mod dump;
mod words;

pub use dump::{Thread, read, telling};

use crate::id::WorkerId;
use serde::{Deserialize, Serialize};
use std::fmt;

pub const FRAMES: usize = 32;
const GROUPS: usize = 16;
const MEMBERS: usize = 64;

/// A Python frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PyFrame {
    /// Path of the source file.
    pub file: String,
    /// Line number.
    pub line: u32,
    /// Name of the function.
    pub function: String,
}

/// Formats the frame as in a Python traceback.
impl fmt::Display for PyFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  File \"{}\", line {}, in {}", self.file, self.line, self.function)
    }
}

/// A process and its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankStack {
    pub who: RankProcess,
    pub frames: Vec<PyFrame>,
}

/// A process of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankProcess {
    /// The worker it belongs to.
    pub worker: WorkerId,
    /// Process id.
    pub pid: i32,
    /// How many generations below the worker it is; 0: the worker itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u64,
}

/// Processes with the same stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackGroup {
    /// The processes.
    pub who: Vec<RankProcess>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Frames, innermost first.
    pub frames: Vec<PyFrame>,
}

/// Stacks of an attempt's ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stacks {
    /// The groups, first the one that the others may be waiting for.
    pub groups: Vec<StackGroup>,
    /// Workers that left no stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<WorkerId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Whether a rank waits for others, judging by its innermost frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WaitKind {
    /// It does something itself.
    No,
    /// For a process, a thread or a queue.
    Apart,
    /// In a collective, or for its store.
    Together,
}

/// Paths that indicate a wait, below a directory of installed modules.
const TOGETHER: [&str; 2] = ["/torch/distributed/", "/deepspeed/comm/"];
const APART: [&str; 13] = [
    "/asyncio/",
    "/multiprocessing/connection.py",
    "/multiprocessing/popen_fork.py",
    "/multiprocessing/synchronize.py",
    "/multiprocessing/resource_tracker.py",
    "/multiprocessing/forkserver.py",
    "/multiprocessing/queues.py",
    "/concurrent/futures/",
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/subprocess.py",
    "/ray/_private/",
];

fn waits(frames: &[PyFrame]) -> WaitKind {
    let Some(file) = frames.first().map(|f| f.file.as_str()) else {
        return WaitKind::No;
    };
    if TOGETHER.iter().any(|part| file.contains(part)) {
        return WaitKind::Together;
    }
    match APART.iter().any(|part| file.contains(part)) {
        true => WaitKind::Apart,
        false => WaitKind::No,
    }
}

impl Stacks {
    /// Groups processes with the same stack. `workers`: all of them.
    #[must_use]
    pub fn of(stands: Vec<RankStack>, workers: &[WorkerId]) -> Self {
        let left = |w: &WorkerId| stands.iter().any(|s| s.who.worker == *w);
        let silent = workers.iter().filter(|w| !left(w)).take(MEMBERS).copied().collect();
        let mut groups: Vec<StackGroup> = Vec::new();
        // A child process that waits for work shows nothing.
        let telling = |s: &RankStack| s.who.depth == 0 || waits(&s.frames) != WaitKind::Apart;
        for mut stand in stands.into_iter().filter(|s| telling(s) && !s.frames.is_empty()) {
            stand.frames.truncate(FRAMES);
            match groups.iter_mut().find(|g| g.frames == stand.frames) {
                Some(group) if group.who.len() < MEMBERS => group.who.push(stand.who),
                Some(group) => group.more = group.more.saturating_add(1),
                None => groups.push(StackGroup {
                    who: vec![stand.who],
                    more: 0,
                    frames: stand.frames,
                }),
            }
        }
        groups.sort_by_key(|g| (waits(&g.frames), g.depth(), g.size()));
        groups.truncate(GROUPS);
        Self { groups, silent }
    }

    /// The worker that differs from the others, if there is one.
    #[must_use]
    pub fn odd(&self) -> Option<WorkerId> {
        let [first, second, ..] = self.groups.as_slice() else {
            return None;
        };
        let (kind, other) = (waits(&first.frames), waits(&second.frames));
        let is_alone = kind < other || first.depth() == second.depth() && first.size() < second.size();
        match first.who.as_slice() {
            [one] if is_alone && first.more == 0 => Some(one.worker),
            _ => None,
        }
    }
}

impl StackGroup {
    fn depth(&self) -> u64 {
        self.who.iter().map(|w| w.depth).min().unwrap_or_default()
    }

    fn size(&self) -> u64 {
        u64::try_from(self.who.len())
            .unwrap_or(u64::MAX)
            .saturating_add(self.more)
    }
}
