//! Tensors of a model, and where in which file their elements lie.

use camino::Utf8PathBuf;
use supervise_checkpoint::{ByteExtent, Dtype};

/// All tensors of a model, in files that were looked into.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelWeights {
    /// Files that chunks refer to.
    pub files: Vec<SourceFile>,
    /// Tensors, sorted by name.
    pub tensors: Vec<ModelTensor>,
}

/// A file that holds elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path, relative to the source's directory.
    pub path: Utf8PathBuf,
    /// Its length in bytes when it was looked into.
    pub bytes: u64,
    /// Its extents that have a checksum, in order of place.
    pub checked: Vec<ByteExtent>,
}

/// A tensor, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTensor {
    /// Its name in the checkpoint.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its whole shape.
    pub shape: Vec<u64>,
    /// Parts that tile it.
    pub chunks: Vec<TensorChunk>,
    /// The same tensor again, as other ranks hold it, each time in parts that tile it: its bytes have to be equal.
    pub copies: Vec<Vec<TensorChunk>>,
    /// An adapter that is added to it.
    pub fold: Option<Fold>,
}

/// An adapter of a tensor: the product of two others, times a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fold {
    /// Index of the tensor `lora_B`: as many rows as the one it is added to.
    pub left: usize,
    /// Index of the tensor `lora_A`: as many columns.
    pub right: usize,
    /// The factor.
    pub scaling: f64,
}

/// A box of a tensor that lies in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorChunk {
    /// Place where it begins in each dimension.
    pub offsets: Vec<u64>,
    /// How far it reaches in each dimension.
    pub sizes: Vec<u64>,
    /// Index of its file.
    pub file: usize,
    /// Place of its first element in the file, in bytes.
    pub at: u64,
    /// Distance of neighbours in each dimension, in elements.
    pub stride: Vec<u64>,
}

impl ModelTensor {
    /// Elements of the whole tensor.
    #[must_use]
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }
}

/// Elements of a shape; `u64::MAX` where that is more than any file holds.
#[must_use]
pub fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |n, d| n.saturating_mul(*d))
}

/// Strides of a tensor whose elements follow each other, last dimension first.
#[must_use]
pub fn row_major(shape: &[u64]) -> Vec<u64> {
    let mut stride = vec![1_u64; shape.len()];
    for d in (1..shape.len()).rev() {
        stride[d - 1] = stride[d].saturating_mul(shape[d].max(1));
    }
    stride
}

impl ModelWeights {
    /// The tensor with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tensors.binary_search_by(|t| t.name.as_str().cmp(name)).ok()
    }
}
