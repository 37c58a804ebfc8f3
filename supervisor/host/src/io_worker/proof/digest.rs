//! Compares the digests that Megatron lists in `integrity.json` with the bytes of the files beside it.
//!
//! They are not CRC-32, so each file is read a second time; only if the user enabled them in Megatron, and only for a
//! proof of every byte.

use super::super::files::open_file;
use super::ProofRequest;
use camino::Utf8Path;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{Depth, Finding, Verdict};

const CHUNK: usize = 512 << 10;

/// Adds mismatches: to the report on the file, or to the report on the list if the file was not read.
pub(super) fn compare(
    root: &Utf8Path,
    wishes: &[ProofRequest<'_>],
    reports: &mut [(usize, FileReport)],
    cancelled: &AtomicBool,
) {
    let is_list = |(n, report): &(usize, FileReport)| {
        let full = wishes.get(*n).is_some_and(|w| w.depth == Depth::Full);
        report.kind == FileKind::Integrity && report.verdict == Verdict::Whole && full
    };
    let lists: Vec<usize> = (0..reports.len())
        .filter(|at| reports.get(*at).is_some_and(is_list))
        .collect();
    for at in lists {
        let Some((n, list)) = reports.get(at) else { continue };
        let Some(path) = wishes.get(*n).map(|w| w.need.path.clone()) else {
            continue;
        };
        let dir = path.parent().unwrap_or(Utf8Path::new("")).to_owned();
        for (name, wanted) in list.facts.integrity.clone() {
            let file = dir.join(&name);
            let finding = match sha256(&root.join(&file), cancelled) {
                Ok(Some(found)) if found != wanted => {
                    let detail = format!("the SHA-256 of {name} is {found}, and integrity.json says {wanted}");
                    Finding::error("integrity_mismatch", Verdict::Damaged, detail)
                }
                // A file that is missing or unreadable is reported where it is required.
                _ => continue,
            };
            let of = |(n, _): &(usize, FileReport)| wishes.get(*n).is_some_and(|w| w.need.path == file);
            let place = reports.iter().position(of).unwrap_or(at);
            if let Some((_, report)) = reports.get_mut(place) {
                report.add(finding);
            }
        }
    }
}

fn sha256(path: &Utf8Path, cancelled: &AtomicBool) -> io::Result<Option<String>> {
    let mut file = open_file(path)?;
    let (mut sum, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => sum.update(chunk.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Some(sum.finalize().iter().map(|b| format!("{b:02x}")).collect()))
}
