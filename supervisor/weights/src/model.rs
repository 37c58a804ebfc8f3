//! A model's tensors, and where their elements are in which file.

use camino::Utf8PathBuf;
use supervise_checkpoint::{ByteExtent, Dtype};

/// All tensors of a model, in inspected files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelWeights {
    /// The files that chunks refer to.
    pub files: Vec<SourceFile>,
    /// Sorted by name.
    pub tensors: Vec<ModelTensor>,
}

/// A file with elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Relative to the source's directory.
    pub path: Utf8PathBuf,
    /// Length in bytes at inspection.
    pub bytes: u64,
    /// Its checksummed extents, in order of offset.
    pub checked: Vec<ByteExtent>,
}

/// A whole tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTensor {
    /// Name in the checkpoint.
    pub name: String,
    pub dtype: Dtype,
    /// Shape of the whole tensor.
    pub shape: Vec<u64>,
    /// Chunks that tile it.
    pub chunks: Vec<TensorChunk>,
    /// Copies on other ranks, each in chunks that tile the tensor: their bytes must be equal.
    pub copies: Vec<Vec<TensorChunk>>,
    pub fold: Option<Fold>,
}

/// An adapter of a tensor: the product of two others, times a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fold {
    /// Index of `lora_B`, which has as many rows as the tensor.
    pub left: usize,
    /// Index of `lora_A`, which has as many columns.
    pub right: usize,
    pub scaling: f64,
}

/// A box of a tensor, in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorChunk {
    /// Start in each dimension.
    pub offsets: Vec<u64>,
    /// Size in each dimension.
    pub sizes: Vec<u64>,
    /// Index of its file.
    pub file: usize,
    /// Offset of its first element in the file, in bytes.
    pub at: u64,
    /// Strides in elements, per dimension.
    pub stride: Vec<u64>,
}

impl ModelTensor {
    /// Returns the number of elements in the whole tensor.
    #[must_use]
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }
}

/// Returns the number of elements of a shape; `u64::MAX` on overflow.
#[must_use]
pub fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |n, d| n.saturating_mul(*d))
}

/// Returns the strides of a row-major tensor without gaps.
#[must_use]
pub fn row_major(shape: &[u64]) -> Vec<u64> {
    let mut stride = vec![1_u64; shape.len()];
    for d in (1..shape.len()).rev() {
        stride[d - 1] = stride[d].saturating_mul(shape[d].max(1));
    }
    stride
}

impl ModelWeights {
    /// Finds the index of the tensor with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.binary_search_by(|t| t.name.as_str().cmp(name)).ok()
    }
}
