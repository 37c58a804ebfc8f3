//! The second call of a proof: reads each byte of the plan once.
//!
//! These are pure kernels over a [`ByteSource`]. They work on chunks that fit the processor's cache, and compute a CRC and, on request,
//! counts of zero blocks and of non-finite numbers. [`sweep`] reads one file in order. [`sweep_parallel`] reads several files with
//! several threads, which also share one large file; the results are the same. A callback after each chunk lets the caller stop, or sleep
//! to throttle. Memory is one chunk per thread.

mod kernels;
mod pieces;
mod worker;

pub(crate) use pieces::combine;

use crate::dtype::Dtype;
use crate::plan::{ExtentResult, ReadPlan};
use crate::source::{ByteSource, ReadFault};
use pieces::{PartResult, SweepPiece};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use supervise_core::checkpoint::Finding;
use worker::SweepReader;

/// Bytes of one read.
pub const CHUNK: usize = 256 << 10;

/// What to check besides checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOptions {
    /// Count blocks of zeros.
    pub zero: bool,
    /// Count non-finite numbers.
    pub finite: bool,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            zero: true,
            finite: true,
        }
    }
}

/// Whether numbers of this type may be non-finite.
pub(crate) fn has_finite(dtype: Dtype) -> bool {
    kernels::width(dtype).is_some()
}

/// Progress of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes in the plan.
    pub of: u64,
}

/// Why a sweep gave no results.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("the reading was called off")]
    Cancelled,
    #[error(transparent)]
    Read(#[from] ReadFault),
}

impl SweepError {
    /// Returns the finding for the file; `None` if the caller cancelled.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        match self {
            Self::Cancelled => None,
            Self::Read(fault) => Some(fault.finding()),
        }
    }
}

/// Reads the plan's extents, which are in order of offset.
///
/// # Errors
/// If the caller cancelled or the bytes could not be read.
pub fn sweep(
    src: &dyn ByteSource,
    plan: &ReadPlan,
    options: SweepOptions,
    tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
) -> Result<Vec<ExtentResult>, SweepError> {
    let pieces = pieces::cut(plan, options);
    let mut worker = SweepReader::new(options);
    let (mut done, of) = (0_u64, plan.bytes());
    let mut read = |n: u64| {
        done = done.saturating_add(n);
        go_on(tell(SweepProgress { done, of }))
    };
    let parts: Result<Vec<_>, _> = pieces.iter().map(|p| worker.piece(src, plan, p, &mut read)).collect();
    Ok(pieces::join(plan.extents.len(), &pieces, parts?))
}

fn go_on(answer: ControlFlow<()>) -> Result<(), SweepError> {
    match answer {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(SweepError::Cancelled),
    }
}

/// A file, and the plan of what to read.
pub type SweepJob<'a> = (&'a (dyn ByteSource + Sync), &'a ReadPlan);

/// Reads several files with several threads, including the calling one; results are in the order of the jobs.
///
/// `tell` is called only in the calling thread, with the bytes of all files. If it returns `Break`, every unfinished file gives
/// [`SweepError::Cancelled`]; an error in one file does not affect the others. If the system provides fewer threads, fewer are used.
pub fn sweep_parallel(
    jobs: &[SweepJob<'_>],
    threads: usize,
    options: SweepOptions,
    tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
) -> Vec<Result<Vec<ExtentResult>, SweepError>> {
    let work = SweepShared::new(jobs, options);
    let helpers = threads.min(work.order.len()).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            let help = || work.run(options, &mut |_| ControlFlow::Continue(()));
            if std::thread::Builder::new().spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        work.run(options, tell);
    });
    work.results()
}

struct SweepShared<'a> {
    jobs: Vec<Cutting<'a>>,
    /// The order in which pieces are taken: job and piece.
    order: Vec<(usize, usize)>,
    next: AtomicUsize,
    done: AtomicU64,
    of: u64,
    cancelled: AtomicBool,
}

type PieceResult = Result<Vec<PartResult>, SweepError>;

struct Cutting<'a> {
    src: &'a (dyn ByteSource + Sync),
    plan: &'a ReadPlan,
    pieces: Vec<SweepPiece>,
    parts: Mutex<Vec<Option<PieceResult>>>,
    failed: AtomicBool,
}

impl<'a> SweepShared<'a> {
    fn new(jobs: &[SweepJob<'a>], options: SweepOptions) -> Self {
        let jobs: Vec<Cutting<'a>> = jobs
            .iter()
            .map(|(src, plan)| {
                let pieces = pieces::cut(plan, options);
                Cutting {
                    src: *src,
                    plan,
                    parts: Mutex::new(pieces.iter().map(|_| None).collect()),
                    pieces,
                    failed: AtomicBool::new(false),
                }
            })
            .collect();
        let order = jobs
            .iter()
            .enumerate()
            .flat_map(|(j, job)| (0..job.pieces.len()).map(move |p| (j, p)))
            .collect();
        Self {
            order,
            next: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            of: jobs.iter().fold(0, |sum, j| sum.saturating_add(j.plan.bytes())),
            cancelled: AtomicBool::new(false),
            jobs,
        }
    }

    /// Takes pieces until none are left. Relaxed ordering suffices: the counters order nothing, the mutexes carry the results.
    fn run(&self, options: SweepOptions, tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>) {
        let mut worker = SweepReader::new(options);
        while let Some((j, p)) = self.order.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let Some((job, piece)) = self.jobs.get(*j).and_then(|job| Some((job, job.pieces.get(*p)?))) else {
                continue;
            };
            if self.cancelled.load(Ordering::Relaxed) {
                return;
            }
            if job.failed.load(Ordering::Relaxed) {
                continue;
            }
            let mut read = |n: u64| {
                let done = self.done.fetch_add(n, Ordering::Relaxed).saturating_add(n);
                if tell(SweepProgress { done, of: self.of }).is_break() {
                    self.cancelled.store(true, Ordering::Relaxed);
                }
                if self.cancelled.load(Ordering::Relaxed) {
                    return Err(SweepError::Cancelled);
                }
                Ok(())
            };
            let result = worker.piece(job.src, job.plan, piece, &mut read);
            if result.is_err() {
                job.failed.store(true, Ordering::Relaxed);
            }
            let mut parts = job.parts.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = parts.get_mut(*p) {
                *slot = Some(result);
            }
        }
    }

    fn results(self) -> Vec<Result<Vec<ExtentResult>, SweepError>> {
        self.jobs.into_iter().map(Cutting::result).collect()
    }
}

impl Cutting<'_> {
    fn result(self) -> Result<Vec<ExtentResult>, SweepError> {
        let mut parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        // A piece that was never taken counts as cancelled, unless another one has an error.
        if let Some(fault) = parts.iter_mut().find_map(fault) {
            return Err(fault);
        }
        let read: Result<Vec<_>, _> = parts
            .into_iter()
            .map(|p| p.unwrap_or(Err(SweepError::Cancelled)))
            .collect();
        Ok(pieces::join(self.plan.extents.len(), &self.pieces, read?))
    }
}

/// Takes the error of a piece that could not be read.
fn fault(part: &mut Option<PieceResult>) -> Option<SweepError> {
    if matches!(part, Some(Err(SweepError::Read(_)))) {
        return part.take()?.err();
    }
    None
}
