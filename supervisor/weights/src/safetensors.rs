//! Weights in Hugging Face's format, in one file or several.

use crate::model::{ModelTensor, ModelWeights, SourceFile, TensorChunk, row_major};
use crate::problem::ModelError;
use camino::Utf8PathBuf;
use supervise_checkpoint::InspectedFile;
use supervise_core::checkpoint::Verdict;

/// Assembles inspected files.
///
/// # Errors
/// A file that is not whole, or a tensor in two files.
pub fn gather(files: &[(Utf8PathBuf, InspectedFile)]) -> Result<ModelWeights, ModelError> {
    let mut out = ModelWeights::default();
    for (n, (path, found)) in files.iter().enumerate() {
        if let Some(worst) = found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
            return Err(ModelError::found(path.as_str(), worst));
        }
        if found.facts.tensors != Some(found.inventory.len() as u64) {
            return Err(ModelError::unknown(format!(
                "{path}: it holds more tensors than are listed (limit)"
            )));
        }
        out.files.push(SourceFile {
            path: path.clone(),
            bytes: found.bytes,
            checked: Vec::new(),
        });
        // Both are in file order.
        let places = found.plan.extents.iter().filter(|e| !e.is_gap() && e.dtype.is_some());
        for (part, place) in found.inventory.iter().zip(places) {
            let (Some(dtype), true) = (part.dtype, part.name == place.what) else {
                return Err(ModelError::unknown(format!(
                    "{path}: the type of {} is not known",
                    part.name
                )));
            };
            out.tensors.push(ModelTensor {
                name: part.name.clone(),
                dtype,
                shape: part.shape.clone(),
                chunks: vec![TensorChunk {
                    offsets: vec![0; part.shape.len()],
                    sizes: part.shape.clone(),
                    file: n,
                    at: place.off,
                    stride: row_major(&part.shape),
                }],
                copies: Vec::new(),
                fold: None,
            });
        }
    }
    out.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    match out.tensors.windows(2).find(|w| w[0].name == w[1].name) {
        Some(twice) => Err(ModelError::damaged(format!("{} is in two files", twice[0].name))),
        None => Ok(out),
    }
}
