//! Pickles read as data: an opcode machine that builds descriptions of values and never calls anything.
//!
//! Python's unpickler looks up names and calls them while it reads. [`read`] goes through the same motions (stack, marks,
//! memo, all opcodes of protocols 0 to 5) but a call becomes a [`Call`] node that says what would have been called with
//! what. Names are judged by [`danger`]; a call of something computed, or a change made to an imported thing, is dangerous
//! by itself, because it needs no name. Dangers count even where the stream breaks off afterwards: Python would have
//! run them by then.
//!
//! Memory is bounded: strings are ranges of the input, each opcode adds a bounded amount, and limits end the reading.

pub mod danger;
mod heap;
mod machine;
mod ops;

pub use danger::Use;
pub use heap::{Call, CallKind, Global, Heap, Object, Text, Value};

use crate::limits::Limits;
use supervise_core::checkpoint::{Finding, Verdict};

/// Why reading a pickle ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// The bytes end before the stream does.
    #[error("the pickle ends in the middle")]
    Truncated,
    /// A byte that is no opcode.
    #[error("byte {0:#04x} is no pickle opcode")]
    BadOpcode(u8),
    /// An opcode whose argument makes no sense.
    #[error("an opcode has a bad argument: {0}")]
    BadArgument(&'static str),
    /// The stack does not hold what an opcode takes from it.
    #[error("the pickle takes more from its stack than it put there")]
    Underflow,
    /// A memo slot that was never filled.
    #[error("the pickle refers to value {0}, which it never stored")]
    NoMemo(u64),
    /// Too many opcodes.
    #[error("the pickle has more than {0} operations")]
    TooLong(u64),
    /// Too many different imported names.
    #[error("the pickle imports more than {0} names")]
    TooManyNames(usize),
    /// Too many values.
    #[error("the values of the pickle take more than {0} bytes")]
    TooBig(usize),
}

impl PickleError {
    fn verdict(&self) -> Verdict {
        match self {
            Self::TooLong(_) | Self::TooManyNames(_) | Self::TooBig(_) => Verdict::Unknown,
            _ => Verdict::Damaged,
        }
    }
}

/// What would run if Python loaded the pickle, beyond plain names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Danger {
    /// Byte offset of the opcode in the pickle.
    pub at: u64,
    /// What would happen.
    pub what: String,
}

/// A pickle as far as it could be read.
#[derive(Debug)]
pub struct Pickle {
    /// All values.
    pub heap: Heap,
    /// The value the pickle stands for; none where reading ended early.
    pub root: Option<Value>,
    /// Why reading ended early, and where.
    pub error: Option<(u64, PickleError)>,
    /// Dangerous acts that need no dangerous name.
    pub dangers: Vec<Danger>,
    /// Bytes read, up to and including the STOP opcode.
    pub used: usize,
}

/// Reads a pickle; always gives what was found until the end or the first fault.
#[must_use]
pub fn read(bytes: Vec<u8>, limits: &Limits) -> Pickle {
    machine::run(bytes, limits)
}

impl Pickle {
    /// What is to be said about safety and soundness. Offsets are shifted by `base`, the pickle's place in its file.
    #[must_use]
    pub fn findings(&self, base: u64) -> Vec<Finding> {
        let mut out = Vec::new();
        for d in &self.dangers {
            let detail = format!("loading it would {}", d.what);
            out.push(Finding::error("unsafe_call", Verdict::Unsafe, detail).at(base.saturating_add(d.at)));
        }
        let mut strange = Vec::new();
        for (id, g) in (0..).zip(self.heap.globals()) {
            // Where it only names nested classes, those names are judged instead.
            if danger::is_getattr(&g.module, &g.name) && g.usage == Use::Named && !self.heap.holds(id) {
                continue;
            }
            match danger::class(&g.module, &g.name, g.usage) {
                danger::Class::Familiar => {}
                danger::Class::Unfamiliar if strange.len() < SHOWN => strange.push(g),
                danger::Class::Unfamiliar => {}
                danger::Class::Dangerous(_) if out.len() >= SHOWN => {}
                danger::Class::Dangerous(why) => {
                    let verb = if g.usage == Use::Named { "import" } else { "call" };
                    let detail = format!("loading it would {verb} {}.{}: {why}", shown(&g.module), shown(&g.name));
                    out.push(Finding::error("unsafe_global", Verdict::Unsafe, detail).at(base.saturating_add(g.at)));
                }
            }
        }
        for g in strange {
            let verb = if g.usage == Use::Named { "names" } else { "calls" };
            let detail = format!(
                "it {verb} {}.{}, which torch and numpy do not write",
                shown(&g.module),
                shown(&g.name)
            );
            out.push(Finding::warning("unfamiliar_global", detail).at(base.saturating_add(g.at)));
        }
        if let Some((at, error)) = &self.error {
            let code = if error.verdict() == Verdict::Unknown {
                "limit_reached"
            } else {
                "pickle_broken"
            };
            out.push(Finding::error(code, error.verdict(), error.to_string()).at(base.saturating_add(*at)));
        }
        out
    }

    /// The `module.name` of everything that it names beyond what torch, numpy and plain data need; sorted, the first few.
    #[must_use]
    pub fn unfamiliar(&self) -> Vec<String> {
        let strange = |g: &&Global| danger::class(&g.module, &g.name, g.usage) == danger::Class::Unfamiliar;
        let globals = self.heap.globals().iter();
        let mut out: Vec<String> = globals
            .filter(strange)
            .map(|g| format!("{}.{}", shown(&g.module), shown(&g.name)))
            .collect();
        out.sort_unstable();
        out.dedup();
        out.truncate(STRANGE);
        out
    }
}

/// Findings of one sort that are kept; more would say nothing new.
const SHOWN: usize = 256;

/// Names that [`Pickle::unfamiliar`] gives at most.
const STRANGE: usize = 16;

/// A name from the file, fit to be shown: bounded and without control characters.
pub(crate) fn shown(name: &str) -> String {
    let mut out: String = name.chars().take(120).flat_map(char::escape_debug).collect();
    if name.chars().nth(120).is_some() {
        out.push('…');
    }
    out
}
