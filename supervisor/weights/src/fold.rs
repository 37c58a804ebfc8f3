//! Adds adapters to their tensors, as peft's `merge_and_unload` does on a CPU.
//!
//! Source: peft 0.21 `tuners/lora/layer.py`. It loads adapters as float32 whatever type they have. The product and the factor are
//! computed in float32 and added to the tensor, and the sum is rounded to the tensor's type once. Within the product, each step rounds
//! once, in the order of the LoRA rank's dimension, as torch's kernels do for ranks up to some hundreds.

use crate::cast::cast;
use crate::model::{Fold, ModelTensor};
use crate::problem::ModelError;
use crate::read::ModelReader;
use supervise_checkpoint::Dtype;

/// Elements in memory at once.
const BLOCK: u64 = 256 << 10;

/// Adds the tensor's adapter, if it has one, to the elements from `from`.
pub(crate) fn add(
    reading: &ModelReader<'_>,
    tensor: &ModelTensor,
    from: u64,
    buf: &mut [u8],
) -> Result<(), ModelError> {
    let (Some(fold), &[_, columns]) = (tensor.fold, tensor.shape.as_slice()) else {
        return Ok(());
    };
    let size = tensor.dtype.size();
    let reading = reading.unnoted();
    let adding = Adding {
        reading: &reading,
        tensor,
        fold,
        columns,
    };
    let end = from + buf.len() as u64 / size;
    let mut at = from;
    while at < end {
        // Rows longer than a block are processed in parts.
        let to = match columns > BLOCK {
            true => end.min(at - at % columns + columns).min(at + BLOCK),
            false => end.min(at + BLOCK),
        };
        adding.block(
            at,
            to,
            &mut buf[((at - from) * size) as usize..((to - from) * size) as usize],
        )?;
        at = to;
    }
    Ok(())
}

/// Reads all adapters once, for their checksums.
pub(crate) fn read_adapters(reading: &ModelReader<'_>) -> Result<(), ModelError> {
    let weights = reading.weights();
    let (mut buf, mut scratch) = (Vec::new(), Vec::new());
    for fold in weights.tensors.iter().filter_map(|t| t.fold) {
        for tensor in [&weights.tensors[fold.left], &weights.tensors[fold.right]] {
            let (all, mut at) = (tensor.elements(), 0);
            while at < all {
                let n = BLOCK.min(all - at);
                buf.resize((n * tensor.dtype.size()) as usize, 0);
                reading.fill(tensor, at, &mut buf, &mut scratch)?;
                at += n;
            }
        }
    }
    Ok(())
}

struct Adding<'a> {
    reading: &'a ModelReader<'a>,
    tensor: &'a ModelTensor,
    fold: Fold,
    columns: u64,
}

impl Adding<'_> {
    /// Adds the product to the elements `from..to`: of one row, or of rows no longer than a block.
    fn block(&self, from: u64, to: u64, buf: &mut [u8]) -> Result<(), ModelError> {
        let tensors = &self.reading.weights().tensors;
        let (left, right) = (&tensors[self.fold.left], &tensors[self.fold.right]);
        let (first, last) = (from / self.columns, (to - 1) / self.columns);
        let (rows, rank) = (last - first + 1, right.shape[0]);
        // The needed columns: all, if there are several rows.
        let (lo, hi) = match rows {
            1 => (from % self.columns, from % self.columns + (to - from)),
            _ => (0, self.columns),
        };
        let mut sum = vec![0_f32; (to - from) as usize];
        let at_once = (BLOCK / rows).clamp(1, rank.max(1));
        let (mut factors, mut row) = (Vec::new(), Vec::new());
        let mut begin = 0;
        while begin < rank {
            let end = rank.min(begin + at_once);
            factors.clear();
            for n in first..=last {
                self.floats(left, n * rank + begin, end - begin, &mut factors)?;
            }
            for k in begin..end {
                row.clear();
                self.floats(right, k * self.columns + lo, hi - lo, &mut row)?;
                for n in first..=last {
                    let factor = factors[((n - first) * (end - begin) + (k - begin)) as usize];
                    let (a, b) = (from.max(n * self.columns), to.min((n + 1) * self.columns));
                    let own = &row[(a - n * self.columns - lo) as usize..(b - n * self.columns - lo) as usize];
                    step(&mut sum[(a - from) as usize..(b - from) as usize], factor, own);
                }
            }
            begin = end;
        }
        self.put(&sum, buf);
        Ok(())
    }

    fn floats(&self, tensor: &ModelTensor, from: u64, n: u64, out: &mut Vec<f32>) -> Result<(), ModelError> {
        let mut bytes = vec![0; (n * tensor.dtype.size()) as usize];
        self.reading.fill(tensor, from, &mut bytes, &mut Vec::new())?;
        out.extend(as_floats(&bytes, tensor.dtype));
        Ok(())
    }

    /// Adds the product times the factor to the numbers in `buf`.
    fn put(&self, sum: &[f32], buf: &mut [u8]) {
        // torch multiplies by the factor in the product's type.
        let scaling = self.fold.scaling as f32;
        let own = as_floats(buf, self.tensor.dtype);
        let both = own.iter().zip(sum);
        let total: Vec<u8> = both.flat_map(|(w, x)| (w + x * scaling).to_le_bytes()).collect();
        cast(&total, Dtype::F32, self.tensor.dtype, buf);
    }
}

/// `sum += factor * row`, each rounded once: a product of two floats is exact as a double.
fn step(sum: &mut [f32], factor: f32, row: &[f32]) {
    let factor = f64::from(factor);
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum = (factor * f64::from(*x) + f64::from(*sum)) as f32;
    }
}

fn as_floats(bytes: &[u8], dtype: Dtype) -> Vec<f32> {
    let mut wide = vec![0; bytes.len() / dtype.size() as usize * 4];
    cast(bytes, dtype, Dtype::F32, &mut wide);
    let (floats, _) = wide.as_chunks::<4>();
    floats.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
