//! A file that consists of a single pickle.

use crate::limits::InspectLimits;
use crate::pickle::{self, ParsedPickle};
use crate::source::FileReader;
use supervise_core::checkpoint::{Finding, Verdict};

/// Reads the pickle. Dangerous calls and a truncated stream are findings.
pub(crate) fn read(
    file: &FileReader<'_>,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<ParsedPickle, Box<Finding>> {
    let len = file.len();
    if len == 0 {
        let empty = Finding::error("empty_file", Verdict::Incomplete, "the file is empty");
        return Err(Box::new(empty));
    }
    let Some(n) = usize::try_from(len).ok().filter(|_| len <= limits.pickle_bytes) else {
        let detail = format!(
            "the pickle has {len} bytes, more than are looked at ({})",
            limits.pickle_bytes
        );
        return Err(Box::new(Finding::error("limit_reached", Verdict::Unknown, detail)));
    };
    let bytes = file.bytes(0, n)?;
    let zeros = bytes.iter().rev().take_while(|b| **b == 0).count();
    if zeros == n || bytes.iter().take(4096).all(|b| *b == 0) {
        let detail = "the file holds zeros where it should begin: its blocks were never written";
        return Err(Box::new(Finding::error("zero_filled", Verdict::Damaged, detail).at(0)));
    }
    let pickle = pickle::read(bytes, limits);
    for mut f in pickle.findings(0, limits.asks) {
        // A pickle ends where its writer stopped: whatever is missing at the end was never written.
        if cut_off(&pickle, len) && f.code == "pickle_broken" {
            f.verdict = Verdict::Incomplete;
        }
        findings.push(f);
    }
    if zeros >= 512 {
        let detail = format!("the last {zeros} bytes are zeros: they were never written");
        findings.push(Finding::error("torn_write", Verdict::Damaged, detail).at(len - zeros as u64));
    } else if pickle.error.is_none() && (pickle.used as u64) < len {
        let left = len - pickle.used as u64;
        let detail = format!("{left} bytes follow the end of the pickle");
        findings.push(Finding::error("pickle_trailing", Verdict::Damaged, detail).at(pickle.used as u64));
    }
    Ok(pickle)
}

fn cut_off(pickle: &ParsedPickle, len: u64) -> bool {
    let truncated = |(_, e): &(u64, pickle::PickleError)| *e == pickle::PickleError::Truncated;
    pickle.error.as_ref().is_some_and(truncated) && pickle.used as u64 <= len
}
