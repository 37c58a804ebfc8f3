//! Small files next to weights, read for merging: judged as in any proof, and within the same limits.

use crate::detail::FileDescription;
use crate::inspect::{InspectedFile, inspect};
use crate::json::{self, FsdpConfig};
use crate::kind::FileKind;
use crate::limits::InspectLimits;
use crate::safetensors::Index;
use crate::source::{ByteSource, FileReader};
use std::sync::Arc;
use supervise_core::checkpoint::{Finding, Verdict};

/// The most bytes of memory per byte of text if all values are kept: for a list of one-number lists.
const EACH: usize = 128;

/// Reads the text of a JSON object of this kind, small enough to keep all its values.
///
/// # Errors
/// If it is not whole, or larger than the limits allow.
pub fn read_text(kind: FileKind, src: &dyn ByteSource, limits: &InspectLimits) -> Result<Vec<u8>, Box<Finding>> {
    sound(kind, src, limits)?;
    let file = FileReader::open(src, 0)?;
    let need = usize::try_from(file.len()).unwrap_or(usize::MAX).saturating_mul(EACH);
    match need <= limits.memory {
        true => json::bytes(&file, limits),
        false => Err(Box::new(json::too_big(need, limits))),
    }
}

/// Reads `fsdp_config.json`.
///
/// # Errors
/// If it is not whole, or larger than the limits allow.
pub fn read_fsdp_config(src: &dyn ByteSource, limits: &InspectLimits) -> Result<FsdpConfig, Box<Finding>> {
    let file = FileReader::open(src, 0)?;
    json::fsdp_config(&file, limits)
}

/// Reads an index such as `model.safetensors.index.json`, with its text.
///
/// # Errors
/// If it is not whole, or larger than the limits allow.
pub fn read_index(src: &dyn ByteSource, limits: &InspectLimits) -> Result<(Index, Vec<u8>), Box<Finding>> {
    let found = sound(FileKind::SafetensorsIndex, src, limits)?;
    let file = FileReader::open(src, 0)?;
    let text = json::bytes(&file, limits)?;
    match found.description.and_then(Arc::into_inner) {
        Some(FileDescription::Weights(index)) => Ok((index, text)),
        _ => Ok((Index::default(), text)),
    }
}

fn sound(kind: FileKind, src: &dyn ByteSource, limits: &InspectLimits) -> Result<InspectedFile, Box<Finding>> {
    let mut found = inspect(kind, src, limits);
    match found.findings.iter().position(|f| f.effect() != Verdict::Whole) {
        Some(bad) => Err(Box::new(found.findings.swap_remove(bad))),
        None => Ok(found),
    }
}
