//! The single pass over the source: read, check, cast, write.

use crate::cast::cast;
use crate::layout::{OutFile, OutTensor, TensorRange};
use crate::model::ModelTensor;
use crate::problem::ModelError;
use crate::read::ModelReader;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Elements that one thread takes at once.
const UNIT: u64 = 4 << 20;
/// Elements that a thread has in memory.
const BLOCK: u64 = 256 << 10;

/// Where the output goes.
pub trait OutputSink: Sync {
    /// Writes all bytes at an offset of the file with this index.
    ///
    /// # Errors
    /// The system's error.
    fn write_at(&self, file: usize, at: u64, bytes: &[u8]) -> io::Result<()>;
}

/// Why writing failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Source(#[from] ModelError),
    #[error("{file} cannot be written: {error}")]
    Target {
        /// The file's name.
        file: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    #[error("it was interrupted")]
    Interrupted,
}

struct WriteUnit {
    file: usize,
    tensor: usize,
    /// Offset in the file, in bytes.
    at: u64,
    /// Range of the output tensor, in elements.
    piece: TensorRange,
}

/// Writes all files, then compares the checksums of everything read. Returns the number of bytes compared. `progress` is called now and
/// then with the output bytes written so far, by one thread at a time.
///
/// # Errors
/// A source that is damaged or cannot be read, an output that cannot be written.
pub fn write(
    reading: ModelReader<'_>,
    tensors: &[OutTensor],
    files: &[OutFile],
    target: &dyn OutputSink,
    threads: usize,
    progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
) -> Result<u64, WriteError> {
    let units = units(tensors, files);
    for (n, file) in files.iter().enumerate() {
        target
            .write_at(n, 0, &file.header)
            .map_err(|error| WriteError::Target {
                file: file.name.clone(),
                error,
            })?;
    }
    let shared = WriteShared {
        next: AtomicUsize::new(0),
        written: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
        progress: Mutex::new(progress),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(|| work(&reading, tensors, files, &units, target, &shared));
        }
        work(&reading, tensors, files, &units, target, &shared);
    });
    match shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failed) => Err(failed),
        None => Ok(reading.settle()?),
    }
}

struct WriteShared<'a> {
    next: AtomicUsize,
    written: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<WriteError>>,
    progress: Mutex<&'a mut (dyn FnMut(u64) -> ControlFlow<()> + Send)>,
}

impl WriteShared<'_> {
    fn fail(&self, failed: WriteError) {
        self.stop.store(true, Ordering::Relaxed);
        let mut slot = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(failed);
    }

    fn tell(&self, more: u64) {
        let written = self.written.fetch_add(more, Ordering::Relaxed) + more;
        // If another thread is reporting, these bytes are reported with the next block.
        if let Ok(mut progress) = self.progress.try_lock()
            && progress(written).is_break()
        {
            self.fail(WriteError::Interrupted);
        }
    }
}

fn units(tensors: &[OutTensor], files: &[OutFile]) -> Vec<WriteUnit> {
    let mut out = Vec::new();
    for (file, of) in files.iter().enumerate() {
        for (tensor, begin) in &of.tensors {
            let size = tensors[*tensor].dtype.size();
            let mut at = *begin;
            for piece in &tensors[*tensor].pieces {
                let mut from = piece.from;
                while from < piece.to {
                    let to = piece.to.min(from + UNIT);
                    let piece = TensorRange { from, to, ..*piece };
                    out.push(WriteUnit {
                        file,
                        tensor: *tensor,
                        at,
                        piece,
                    });
                    at += (to - from) * size;
                    from = to;
                }
            }
        }
    }
    out
}

fn work(
    reading: &ModelReader<'_>,
    tensors: &[OutTensor],
    files: &[OutFile],
    units: &[WriteUnit],
    target: &dyn OutputSink,
    shared: &WriteShared<'_>,
) {
    let mut buffers = Buffers::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(unit) = units.get(shared.next.fetch_add(1, Ordering::Relaxed)) else {
            return;
        };
        let to = &tensors[unit.tensor];
        let source = &reading.weights().tensors[unit.piece.tensor];
        let mut at = unit.at;
        let mut from = unit.piece.from;
        while from < unit.piece.to && !shared.stop.load(Ordering::Relaxed) {
            let n = BLOCK.min(unit.piece.to - from);
            let bytes = match buffers.block(reading, source, from, n, to) {
                Ok(bytes) => bytes,
                Err(problem) => return shared.fail(problem.into()),
            };
            if let Err(error) = target.write_at(unit.file, at, bytes) {
                let file = files[unit.file].name.clone();
                return shared.fail(WriteError::Target { file, error });
            }
            at += bytes.len() as u64;
            from += n;
            shared.tell(bytes.len() as u64);
        }
    }
}

#[derive(Default)]
struct Buffers {
    read: Vec<u8>,
    scratch: Vec<u8>,
    cast: Vec<u8>,
}

impl Buffers {
    /// Elements of a tensor in the output's form.
    fn block(
        &mut self,
        reading: &ModelReader<'_>,
        source: &ModelTensor,
        from: u64,
        n: u64,
        to: &OutTensor,
    ) -> Result<&[u8], ModelError> {
        self.read.resize((n * source.dtype.size()) as usize, 0);
        reading.fill_folded(source, from, &mut self.read, &mut self.scratch)?;
        if source.dtype == to.dtype {
            return Ok(&self.read);
        }
        self.cast.resize((n * to.dtype.size()) as usize, 0);
        cast(&self.read, source.dtype, to.dtype, &mut self.cast);
        Ok(&self.cast)
    }
}
