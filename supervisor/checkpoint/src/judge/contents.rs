//! Checks the bytes themselves for non-finite numbers and unexpected zeros.
//!
//! All of these are warnings. A file system returns zeros for blocks it never wrote, but padding rows, fresh biases and the moments of an
//! optimizer's first steps are zeros too; if a checksum covers them, it decides.

use crate::plan::{ByteExtent, ExtentResult};
use crate::raw::shown;
use crate::sweep::has_finite;
use supervise_core::checkpoint::Finding;

/// Fewer zeros than this are not suspicious.
const SOME: u64 = 4096;
/// A tensor file of only zeros is suspicious from this size.
const MANY: u64 = 64 << 10;

/// Adds warnings. `protected`: checksums were written, and cover the extents that have one.
pub(super) fn look(extents: &[ByteExtent], results: &[ExtentResult], protected: bool, findings: &mut Vec<Finding>) {
    let all = || extents.iter().zip(results).filter(|(e, _)| !e.is_gap());
    let bare = || all().filter(|(e, _)| e.crc.is_none() || !protected);
    let non_finite = all().filter(|(_, r)| r.non_finite > 0).map(|(e, r)| (e, r.non_finite));
    findings.extend(sum(non_finite).map(|(n, count, first)| {
        let detail = format!(
            "{count} numbers in {n} storages are infinite or not a number, the first in {}",
            shown(&first.what)
        );
        Finding::warning("non_finite", detail).at(first.off)
    }));
    let zero = bare().filter(|(e, r)| r.all_zero && e.len >= SOME).map(|(e, _)| (e, 1));
    findings.extend(sum(zero).map(|(n, _, first)| {
        let detail = format!(
            "{n} extents without a checksum hold only zeros, the first is {}",
            shown(&first.what)
        );
        Finding::warning("all_zero", detail).at(first.off)
    }));
    let blocks = bare()
        .filter(|(e, r)| r.zero_blocks > 0 && !r.all_zero && is_float(e))
        .map(|(e, r)| (e, r.zero_blocks));
    findings.extend(sum(blocks).map(|(n, count, first)| {
        let detail = format!(
            "{count} blocks of 4096 bytes in {n} tensors without a checksum hold only zeros, the first in {}",
            shown(&first.what)
        );
        Finding::warning("zero_blocks", detail).at(first.off)
    }));
    let floats = || all().filter(|(e, _)| e.len > 0 && is_float(e));
    let bytes = floats().fold(0_u64, |sum, (e, _)| sum.saturating_add(e.len));
    if bytes > MANY && floats().all(|(_, r)| r.all_zero) {
        let detail = format!("all numbers in the file are zero ({bytes} bytes): it holds nothing that was trained");
        findings.push(Finding::warning("all_zero_weights", detail));
    }
}

/// Returns the number of extents, the sum over them, and the first.
fn sum<'e>(mut odd: impl Iterator<Item = (&'e ByteExtent, u64)>) -> Option<(u64, u64, &'e ByteExtent)> {
    let (first, count) = odd.next()?;
    let (n, count) = odd.fold((1, count), |(n, sum), (_, more)| (n + 1, sum.saturating_add(more)));
    Some((n, count, first))
}

fn is_float(e: &ByteExtent) -> bool {
    e.dtype.is_some_and(has_finite)
}
