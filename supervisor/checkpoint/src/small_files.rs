//! Small files beside weights as whoever makes something of them reads them: judged as in any proof, and within the same limits.

use crate::detail::FileDescription;
use crate::inspect::{InspectedFile, inspect};
use crate::json::{self, FsdpConfig};
use crate::kind::FileKind;
use crate::limits::InspectLimits;
use crate::safetensors::Index;
use crate::source::{ByteSource, FileReader};
use std::sync::Arc;
use supervise_core::checkpoint::{Finding, Verdict};

/// Bytes of memory that each byte of a text takes at the most where all its values are kept for whoever asks: a list of lists of a number.
const EACH: usize = 128;

/// The text of a JSON object of this kind, small enough for all its values to be kept.
///
/// # Errors
/// What speaks against it: it is not whole, or larger than the limits allow.
pub fn read_text(kind: FileKind, src: &dyn ByteSource, limits: &InspectLimits) -> Result<Vec<u8>, Box<Finding>> {
    sound(kind, src, limits)?;
    let file = FileReader::open(src, 0)?;
    let need = usize::try_from(file.len()).unwrap_or(usize::MAX).saturating_mul(EACH);
    match need <= limits.memory {
        true => json::bytes(&file, limits),
        false => Err(Box::new(json::too_big(need, limits))),
    }
}

/// `fsdp_config.json`.
///
/// # Errors
/// What speaks against it.
pub fn read_fsdp_config(src: &dyn ByteSource, limits: &InspectLimits) -> Result<FsdpConfig, Box<Finding>> {
    let file = FileReader::open(src, 0)?;
    json::fsdp_config(&file, limits)
}

/// An index such as `model.safetensors.index.json`, with its text.
///
/// # Errors
/// What speaks against it: it is not whole, or larger than the limits allow.
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
