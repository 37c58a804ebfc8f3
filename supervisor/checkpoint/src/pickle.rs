//! Reads pickles as data: an opcode machine that builds descriptions of values and never calls anything.
//!
//! Python's unpickler looks up names and calls them while it reads. [`read`] follows the same steps (stack, marks, memo, all opcodes of
//! protocols 0 to 5), but a call becomes a [`PickleCall`](heap::PickleCall) that records the callee and its arguments. Names are judged
//! by [`danger`]. Calling a computed value, or changing an imported object, is dangerous whatever the name. Dangers count even if the
//! stream breaks off afterwards: Python would have run them by then.
//!
//! Memory is bounded: strings are ranges of the input, each opcode adds a bounded amount, and limits end the reading.

pub mod danger;
mod heap;
mod machine;
mod ops;

pub use heap::{CallKind, GlobalUse, PickleCall, PickleGlobal, PickleHeap, PickleObject, PickleValue, TextRange};

use crate::limits::InspectLimits;
use crate::raw::shown;
use supervise_core::checkpoint::{Finding, Verdict};

/// Why reading a pickle stopped early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    #[error("the pickle ends in the middle")]
    Truncated,
    #[error("byte {0:#04x} is no pickle opcode")]
    BadOpcode(u8),
    #[error("an opcode has a bad argument: {0}")]
    BadArgument(&'static str),
    #[error("the pickle takes more from its stack than it put there")]
    Underflow,
    #[error("the pickle refers to value {0}, which it never stored")]
    NoMemo(u64),
    #[error("a {0} is a key of a dict or an element of a set, which Python does not load")]
    Unhashable(&'static str),
    #[error("the pickle has more than {0} operations")]
    TooLong(u64),
    #[error("the pickle imports more than {0} names")]
    TooManyNames(usize),
    /// Values are shared so often that walking them might never end.
    #[error("its values refer to each other more often than those of a real file")]
    TooMuchWork,
    #[error("reading it takes about {} MiB of memory, and proof.memory allows {} MiB: set proof.memory (for verify: --memory) to more, if it is a file of yours", need.div_ceil(1 << 20), limit >> 20)]
    TooBig {
        /// Estimated bytes for the whole pickle, from the part already read.
        need: usize,
        limit: usize,
    },
}

impl PickleError {
    fn verdict(&self) -> Verdict {
        match self {
            Self::TooLong(_) | Self::TooManyNames(_) => Verdict::Unknown,
            Self::TooBig { .. } | Self::TooMuchWork => Verdict::Unreadable,
            _ => Verdict::Damaged,
        }
    }
}

/// A dangerous act that needs no dangerous name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickleDanger {
    /// Byte offset of the opcode in the pickle.
    pub at: u64,
    /// What loading it would do.
    pub what: String,
}

/// A use that no real writer makes of a known name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OddUse {
    at: u64,
    global: u32,
    what: &'static str,
}

/// A pickle, parsed as far as possible.
#[derive(Debug)]
pub struct ParsedPickle {
    pub heap: PickleHeap,
    /// The pickle's value; `None` if reading stopped early.
    pub root: Option<PickleValue>,
    /// Why reading stopped early, and at which byte.
    pub error: Option<(u64, PickleError)>,
    /// Dangerous acts that need no dangerous name.
    pub dangers: Vec<PickleDanger>,
    /// Odd uses of known names.
    pub(crate) odd: Vec<OddUse>,
    /// Bytes read, up to and including the STOP opcode.
    pub used: usize,
}

/// Reads a pickle; always returns everything up to the end or the first fault.
#[must_use]
pub fn read(bytes: Vec<u8>, limits: &InspectLimits) -> ParsedPickle {
    machine::run(bytes, limits, ops::step)
}

impl ParsedPickle {
    /// Returns the findings about safety and validity. Offsets are shifted by `base`, the pickle's offset in its file. Unfamiliar names
    /// are unsafe, unless `asks` leaves them to the operator ([`ParsedPickle::unfamiliar`]).
    #[must_use]
    pub fn findings(&self, base: u64, asks: bool) -> Vec<Finding> {
        let mut out = Vec::new();
        for d in &self.dangers {
            let detail = format!("loading it would {}", d.what);
            out.push(Finding::error("unsafe_call", Verdict::Unsafe, detail).at(base.saturating_add(d.at)));
        }
        let mut strange = Vec::new();
        for (id, g) in (0..).zip(self.heap.globals()) {
            // If it only names nested classes, those names are judged instead; if it only loads storages, their bytes are.
            let reads_as_value =
                danger::is_getattr(&g.module, &g.name) || danger::is_storage_loader(&g.module, &g.name);
            if reads_as_value && g.usage == GlobalUse::Named && !self.heap.holds(id) {
                continue;
            }
            match danger::class(&g.module, &g.name, g.usage) {
                danger::GlobalClass::Familiar => {}
                danger::GlobalClass::Unfamiliar if strange.len() < STRANGE => strange.push(g),
                danger::GlobalClass::Unfamiliar => {}
                danger::GlobalClass::Dangerous(_) if out.len() >= SHOWN => {}
                danger::GlobalClass::Dangerous(why) => {
                    let verb = if g.usage == GlobalUse::Named { "import" } else { "call" };
                    let detail = format!("loading it would {verb} {}.{}: {why}", shown(&g.module), shown(&g.name));
                    out.push(Finding::error("unsafe_global", Verdict::Unsafe, detail).at(base.saturating_add(g.at)));
                }
            }
        }
        let mut said = |at: u64, detail: String| {
            let finding = match asks {
                true => Finding::warning("unfamiliar_global", detail),
                false => Finding::error("unfamiliar_global", Verdict::Unsafe, detail),
            };
            out.push(finding.at(base.saturating_add(at)));
        };
        for g in strange {
            let verb = if g.usage == GlobalUse::Named { "names" } else { "calls" };
            said(
                g.at,
                format!("it {verb} {}, which is not on the list of what trainers write", full(g)),
            );
        }
        for odd in &self.odd {
            if let Some(g) = self.heap.global(PickleValue::Global(odd.global)) {
                said(odd.at, format!("it names {} and {}", full(g), odd.what));
            }
        }
        if let Some((at, error)) = &self.error {
            let code = if error.verdict() == Verdict::Damaged {
                "pickle_broken"
            } else {
                "limit_reached"
            };
            out.push(Finding::error(code, error.verdict(), error.to_string()).at(base.saturating_add(*at)));
        }
        out
    }

    /// Returns the `module.name` of everything that it names or uses in a way that real writers do not; sorted, the first few.
    #[must_use]
    pub fn unfamiliar(&self) -> Vec<String> {
        let odd = |id: u32| self.odd.iter().any(|o| o.global == id);
        let strange = |(id, g): &(u32, &PickleGlobal)| {
            odd(*id) || danger::class(&g.module, &g.name, g.usage) == danger::GlobalClass::Unfamiliar
        };
        let globals = (0..).zip(self.heap.globals());
        let mut out: Vec<String> = globals.filter(strange).map(|(_, g)| full(g)).collect();
        out.sort_unstable();
        out.dedup();
        out.truncate(STRANGE);
        out
    }
}

/// Findings kept per kind; more would add nothing.
const SHOWN: usize = 256;

/// Unfamiliar names that are shown, and that [`ParsedPickle::unfamiliar`] returns, at most.
const STRANGE: usize = 16;

pub(crate) fn exhausted() -> Finding {
    Finding::error(
        "limit_reached",
        PickleError::TooMuchWork.verdict(),
        PickleError::TooMuchWork.to_string(),
    )
}

fn full(g: &PickleGlobal) -> String {
    format!("{}.{}", shown(&g.module), shown(&g.name))
}
