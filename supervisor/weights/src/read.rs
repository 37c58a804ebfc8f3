//! Reads ranges of whole tensors from their chunks.

use crate::checksums::ChecksumLedger;
use crate::fold;
use crate::layout::{OutTensor, TensorRange};
use crate::model::{ModelTensor, ModelWeights, TensorChunk, row_major};
use crate::problem::ModelError;
use supervise_checkpoint::source::fill;
use supervise_checkpoint::{ByteSource, Dtype};
use supervise_core::checkpoint::Verdict;

/// A file that several threads read.
pub type SharedSource = dyn ByteSource + Send + Sync;

/// A model with open files, and the checksums of everything read so far.
pub struct ModelReader<'a> {
    weights: &'a ModelWeights,
    sources: &'a [Box<SharedSource>],
    /// `None`: checksums are not tracked, because the bytes are read many times.
    ledger: Option<ChecksumLedger<'a>>,
}

impl<'a> ModelReader<'a> {
    /// Starts reading. `sources`: one for each file of the model, in its order.
    #[must_use]
    pub fn new(weights: &'a ModelWeights, sources: &'a [Box<SharedSource>]) -> Self {
        Self {
            weights,
            sources,
            ledger: Some(ChecksumLedger::new(&weights.files)),
        }
    }

    /// The same files, without checksums.
    pub(crate) fn unnoted(&self) -> Self {
        Self {
            weights: self.weights,
            sources: self.sources,
            ledger: None,
        }
    }

    /// Returns the model.
    #[must_use]
    pub fn weights(&self) -> &'a ModelWeights {
        self.weights
    }

    /// Fills `buf` with the elements of a tensor from `from`, in row-major order over the whole tensor, without its adapter.
    ///
    /// # Errors
    /// Bytes that cannot be read, or elements that no chunk contains.
    pub fn fill(
        &self,
        tensor: &ModelTensor,
        from: u64,
        buf: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        self.fill_from(tensor, &tensor.chunks, from, buf, scratch)
    }

    /// Like [`fill`](Self::fill), with the tensor's adapter; also compares the copies of other ranks.
    ///
    /// # Errors
    /// As [`fill`](Self::fill), and ranks that disagree.
    pub fn fill_folded(
        &self,
        tensor: &ModelTensor,
        from: u64,
        buf: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        self.fill(tensor, from, buf, scratch)?;
        let mut other = Vec::new();
        for copy in &tensor.copies {
            other.resize(buf.len(), 0);
            self.fill_from(tensor, copy, from, &mut other, scratch)?;
            if other != buf {
                let file = copy.first().map(|c| &self.weights.files[c.file].path);
                let text = format!(
                    "{}: {} is not what the first rank holds, though every rank should hold the same",
                    file.map(|f| f.as_str()).unwrap_or_default(),
                    tensor.name
                );
                return Err(ModelError::damaged(text));
            }
        }
        fold::add(self, tensor, from, buf)
    }

    fn fill_from(
        &self,
        tensor: &ModelTensor,
        chunks: &[TensorChunk],
        from: u64,
        buf: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        if buf.is_empty() {
            return Ok(());
        }
        let to = from + buf.len() as u64 / tensor.dtype.size();
        let mut filled = 0;
        for chunk in chunks {
            // A tensor may have tens of thousands of chunks: experts of all layers.
            let (first, end) = span(&tensor.shape, chunk);
            if first < to && from < end {
                filled += self.take_from(tensor, chunk, from..to, buf, scratch)?;
            }
        }
        if filled != to - from {
            let text = format!(
                "{}: its chunks hold {filled} of the {} elements from {from}",
                tensor.name,
                to - from
            );
            return Err(ModelError::damaged(text));
        }
        Ok(())
    }

    /// Reads `n` elements from `from` of a tensor with several ranges into `buf`. Returns their type.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub fn fill_pieces(
        &self,
        tensor: &OutTensor,
        from: u64,
        n: u64,
        buf: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<Dtype, ModelError> {
        let source = |piece: &TensorRange| &self.weights.tensors[piece.tensor];
        let dtype = tensor.pieces.first().map_or(tensor.dtype, |p| source(p).dtype);
        let size = dtype.size();
        buf.resize((n * size) as usize, 0);
        let (mut begin, mut done) = (0, 0);
        for piece in &tensor.pieces {
            let end = begin + (piece.to - piece.from);
            let (lo, hi) = (begin.max(from), end.min(from + n));
            if lo < hi {
                let place = &mut buf[((lo - from) * size) as usize..((hi - from) * size) as usize];
                self.fill_folded(source(piece), piece.from + (lo - begin), place, scratch)?;
                done += hi - lo;
            }
            begin = end;
        }
        match done == n {
            true => Ok(dtype),
            false => Err(ModelError::damaged(format!(
                "{}: its pieces hold {done} of {n} elements",
                tensor.name
            ))),
        }
    }

    /// Reads the chunk's elements in the range into `buf`, and returns how many they are.
    fn take_from(
        &self,
        tensor: &ModelTensor,
        chunk: &TensorChunk,
        want: std::ops::Range<u64>,
        buf: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<u64, ModelError> {
        let size = tensor.dtype.size();
        let runs = ChunkRuns::of(&tensor.shape, chunk);
        let first = runs.first_after(want.start);
        let last = runs.first_after(want.end - 1).min(runs.count);
        // The run with the last wanted element counts if it begins before the end.
        let last = match last < runs.count && runs.global(last) < want.end {
            true => last + 1,
            false => last,
        };
        if first >= last {
            return Ok(0);
        }
        let part = |n: u64| {
            let begin = runs.global(n);
            let (lo, hi) = (begin.max(want.start), (begin + runs.len).min(want.end));
            (lo, hi, runs.stored(n) + (lo - begin))
        };
        let (_, _, at) = part(first);
        let (lo, hi, end) = part(last - 1);
        let span = (end + (hi - lo)).checked_sub(at);
        let needed: u64 = (first..last).map(|n| part(n).1 - part(n).0).sum();
        if let Some(span) = span.filter(|span| last - first > 1 && *span == needed && runs.ascend) {
            // One range of the file, in many ranges of the tensor.
            scratch.resize((span * size) as usize, 0);
            self.read(chunk.file, chunk.at + at * size, scratch)?;
            for n in first..last {
                let (lo, hi, place) = part(n);
                let bytes = &scratch[((place - at) * size) as usize..((place - at + hi - lo) * size) as usize];
                buf[((lo - want.start) * size) as usize..((hi - want.start) * size) as usize].copy_from_slice(bytes);
            }
            return Ok(needed);
        }
        for n in first..last {
            let (lo, hi, place) = part(n);
            let buf = &mut buf[((lo - want.start) * size) as usize..((hi - want.start) * size) as usize];
            self.read(chunk.file, chunk.at + place * size, buf)?;
        }
        Ok(needed)
    }

    fn read(&self, file: usize, at: u64, buf: &mut [u8]) -> Result<(), ModelError> {
        let known = &self.weights.files[file];
        if at.checked_add(buf.len() as u64).is_none_or(|end| end > known.bytes) {
            return Err(ModelError::damaged(format!(
                "{}: a tensor reaches beyond its end",
                known.path
            )));
        }
        fill(self.sources[file].as_ref(), known.bytes, at, buf)
            .map_err(|e| ModelError::new(Verdict::Unreadable, format!("{}: {e}", known.path)))?;
        if let Some(ledger) = &self.ledger {
            ledger.note(file, at, buf);
        }
        Ok(())
    }

    /// Compares the checksums of everything read. Returns the number of bytes compared.
    ///
    /// # Errors
    /// A wrong checksum.
    pub fn settle(self) -> Result<u64, ModelError> {
        fold::read_adapters(&self)?;
        match self.ledger {
            Some(ledger) => ledger.settle(self.sources),
            None => Ok(0),
        }
    }
}

/// The first element of a chunk in the whole tensor, and the end after its last.
fn span(shape: &[u64], chunk: &TensorChunk) -> (u64, u64) {
    if chunk.sizes.contains(&0) {
        return (0, 0);
    }
    let (mut first, mut last, mut stride) = (0, 0, 1);
    for d in (0..shape.len()).rev() {
        first += chunk.offsets[d] * stride;
        last += (chunk.offsets[d] + chunk.sizes[d] - 1) * stride;
        stride *= shape[d];
    }
    (first, last + 1)
}

/// The elements of a chunk as runs that are consecutive both in the whole tensor and in the file.
struct ChunkRuns<'a> {
    chunk: &'a TensorChunk,
    /// Dimensions to iterate over; those after them make one run.
    outer: usize,
    /// Strides of the whole tensor, in elements.
    strides: Vec<u64>,
    len: u64,
    count: u64,
    /// Whether runs are in file order.
    ascend: bool,
}

impl<'a> ChunkRuns<'a> {
    fn of(shape: &[u64], chunk: &'a TensorChunk) -> Self {
        let strides = row_major(shape);
        let sizes = &chunk.sizes;
        let own = row_major(sizes);
        let mut outer = shape.len();
        // A dimension joins the run if all after it are whole, and have the same layout in file and tensor.
        while outer > 0 {
            let d = outer - 1;
            let whole = outer == shape.len() || sizes[outer] == shape[outer];
            let packed = sizes[d] == 1 || chunk.stride[d] == own[d];
            if !(whole && packed) {
                break;
            }
            outer = d;
        }
        let len = sizes[outer..].iter().product();
        Self {
            outer,
            len,
            count: if len == 0 { 0 } else { sizes[..outer].iter().product() },
            ascend: chunk.stride.is_sorted_by(|a, b| a >= b),
            strides,
            chunk,
        }
    }

    fn index(&self, run: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut rest = run;
        (0..self.outer).rev().map(move |d| {
            let at = rest % self.chunk.sizes[d];
            rest /= self.chunk.sizes[d];
            (d, at)
        })
    }

    /// Offset of a run in the whole tensor, in elements.
    fn global(&self, run: u64) -> u64 {
        let inner: u64 = (self.outer..self.strides.len())
            .map(|d| self.chunk.offsets[d] * self.strides[d])
            .sum();
        self.index(run)
            .map(|(d, at)| (self.chunk.offsets[d] + at) * self.strides[d])
            .sum::<u64>()
            + inner
    }

    /// Offset of a run from the chunk's first element in the file, in elements.
    fn stored(&self, run: u64) -> u64 {
        self.index(run).map(|(d, at)| at * self.chunk.stride[d]).sum()
    }

    /// The first run that ends after an element of the whole tensor; runs are in the tensor's order.
    fn first_after(&self, element: u64) -> u64 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.global(mid) + self.len > element {
                high = mid;
            } else {
                low = mid + 1;
            }
        }
        low
    }
}
