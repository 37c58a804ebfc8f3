//! Compares two models, number by number.

use crate::cast::{cast, is_float, is_possible};
use crate::layout::OutTensor;
use crate::problem::ModelError;
use crate::read::ModelReader;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use supervise_checkpoint::Dtype;

/// Elements of a tensor in memory at once.
const BLOCK: u64 = 256 << 10;

/// A model to compare, with the names that its tensors would be written under.
pub struct ComparedModel<'a> {
    pub reading: ModelReader<'a>,
    pub tensors: &'a [OutTensor],
}

/// When two numbers count as equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tolerance {
    /// Cast both to this type first.
    pub as_type: Option<Dtype>,
    /// Largest allowed absolute difference.
    pub absolute: f64,
}

/// A tensor that differs between the models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub name: String,
    #[serde(flatten)]
    pub what: DifferenceKind,
}

/// How a tensor differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum DifferenceKind {
    OnlyInFirst,
    OnlyInSecond,
    Shape {
        /// In the first model.
        first: Vec<u64>,
        /// In the second model.
        second: Vec<u64>,
    },
    Dtype {
        /// In the first model.
        first: Dtype,
        /// In the second model.
        second: Dtype,
    },
    Values(Values),
}

/// How the numbers of a tensor differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Values {
    /// Numbers that differ by more than allowed.
    pub different: u64,
    /// Numbers in the tensor.
    pub of: u64,
    /// Index of the first of them, per dimension.
    pub first_at: Vec<u64>,
    /// The first of them in the first model, and in the second.
    pub first_values: [f64; 2],
    pub max_absolute: f64,
    /// The largest difference divided by the larger of the two numbers.
    pub max_relative: f64,
    /// Count of NaNs in the first model and in the second.
    pub nan: [u64; 2],
}

/// Result of a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompareReport {
    pub tensors: u64,
    pub numbers: u64,
    pub differences: Vec<Difference>,
    /// Count of NaNs in the first model and in the second, in tensors that both have.
    pub nan: [u64; 2],
}

/// Compares two models, then the checksums of everything read. `progress` is called with the numbers compared so far and their total.
///
/// # Errors
/// A source that is damaged or cannot be read; `None` if the caller cancelled.
pub fn compare(
    first: ComparedModel<'_>,
    second: ComparedModel<'_>,
    tolerance: Tolerance,
    threads: usize,
    progress: &mut (dyn FnMut(u64, u64) -> ControlFlow<()> + Send),
) -> Result<Option<CompareReport>, ModelError> {
    let mut out = CompareReport::default();
    let mut pairs = Vec::new();
    let others: BTreeMap<&str, &OutTensor> = second.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
    let names: BTreeMap<&str, &OutTensor> = first.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
    for (name, a) in &names {
        let what = match others.get(name) {
            None => DifferenceKind::OnlyInFirst,
            Some(b) if a.shape != b.shape => DifferenceKind::Shape {
                first: a.shape.clone(),
                second: b.shape.clone(),
            },
            Some(b) => {
                out.tensors += 1;
                let types = [source_type(&first, a), source_type(&second, b)];
                let kind = common(types, tolerance.as_type);
                if kind.is_some() {
                    pairs.push((*a, *b, kind.unwrap_or(types[0])));
                    continue;
                }
                DifferenceKind::Dtype {
                    first: types[0],
                    second: types[1],
                }
            }
        };
        out.differences.push(difference(name, what));
    }
    let extra = others.keys().filter(|n| !names.contains_key(*n));
    out.differences
        .extend(extra.map(|n| difference(n, DifferenceKind::OnlyInSecond)));
    let total = pairs.iter().map(|(a, ..)| numbers(a)).sum();
    let shared = CompareShared {
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        total,
        stop: AtomicBool::new(false),
        problem: Mutex::new(None),
        progress: Mutex::new(progress),
        found: Mutex::new(&mut out),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(|| work(&first, &second, &pairs, tolerance.absolute, &shared));
        }
        work(&first, &second, &pairs, tolerance.absolute, &shared);
    });
    let stopped = shared.stop.into_inner();
    if let Some(problem) = shared.problem.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(problem);
    }
    if stopped {
        return Ok(None);
    }
    first.reading.settle()?;
    second.reading.settle()?;
    out.numbers = total;
    out.differences.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(out))
}

fn difference(name: &str, what: DifferenceKind) -> Difference {
    Difference {
        name: name.to_owned(),
        what,
    }
}

fn numbers(tensor: &OutTensor) -> u64 {
    crate::model::elements(&tensor.shape)
}

fn source_type(side: &ComparedModel<'_>, tensor: &OutTensor) -> Dtype {
    let piece = tensor
        .pieces
        .first()
        .map(|p| side.reading.weights().tensors[p.tensor].dtype);
    piece.unwrap_or(tensor.dtype)
}

/// The type to compare in; `None` if the types differ and no type was requested.
fn common(types: [Dtype; 2], wanted: Option<Dtype>) -> Option<Dtype> {
    match wanted.filter(|to| types.iter().all(|from| is_possible(*from, *to))) {
        None if types[0] == types[1] => Some(types[0]),
        wanted => wanted,
    }
}

struct CompareShared<'a> {
    next: AtomicUsize,
    done: AtomicU64,
    total: u64,
    stop: AtomicBool,
    problem: Mutex<Option<ModelError>>,
    progress: Mutex<&'a mut (dyn FnMut(u64, u64) -> ControlFlow<()> + Send)>,
    found: Mutex<&'a mut CompareReport>,
}

fn work(
    first: &ComparedModel<'_>,
    second: &ComparedModel<'_>,
    pairs: &[(&OutTensor, &OutTensor, Dtype)],
    allowed: f64,
    shared: &CompareShared<'_>,
) {
    let mut buffers = [Buffer::default(), Buffer::default()];
    while !shared.stop.load(Ordering::Relaxed) {
        let Some((a, b, kind)) = pairs.get(shared.next.fetch_add(1, Ordering::Relaxed)) else {
            return;
        };
        let mut seen = TensorDiff::new(allowed);
        let (all, mut from) = (numbers(a), 0);
        while from < all && !shared.stop.load(Ordering::Relaxed) {
            let n = BLOCK.min(all - from);
            let [one, two] = &mut buffers;
            let read = one
                .fill(&first.reading, a, from, n, *kind)
                .and_then(|x| Ok((x, two.fill(&second.reading, b, from, n, *kind)?)));
            match read {
                Ok((x, y)) => seen.look(x, y, *kind, from),
                Err(problem) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    shared
                        .problem
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(problem);
                    return;
                }
            }
            from += n;
            let done = shared.done.fetch_add(n, Ordering::Relaxed) + n;
            if let Ok(mut progress) = shared.progress.try_lock()
                && progress(done, shared.total).is_break()
            {
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
        let mut found = shared.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, n) in found.nan.iter_mut().zip(seen.nan) {
            *sum += n;
        }
        if let Some(values) = seen.values(&a.shape) {
            found
                .differences
                .push(difference(&a.name, DifferenceKind::Values(values)));
        }
    }
}

#[derive(Default)]
struct Buffer {
    read: Vec<u8>,
    cast: Vec<u8>,
    scratch: Vec<u8>,
}

impl Buffer {
    fn fill(
        &mut self,
        reading: &ModelReader<'_>,
        tensor: &OutTensor,
        from: u64,
        n: u64,
        kind: Dtype,
    ) -> Result<&[u8], ModelError> {
        let own = reading.fill_pieces(tensor, from, n, &mut self.read, &mut self.scratch)?;
        if own == kind {
            return Ok(&self.read);
        }
        self.cast.resize((n * kind.size()) as usize, 0);
        cast(&self.read, own, kind, &mut self.cast);
        Ok(&self.cast)
    }
}

struct TensorDiff {
    allowed: f64,
    different: u64,
    first: Option<(u64, [f64; 2])>,
    max_absolute: f64,
    max_relative: f64,
    nan: [u64; 2],
}

impl TensorDiff {
    fn new(allowed: f64) -> Self {
        Self {
            allowed,
            different: 0,
            first: None,
            max_absolute: 0.0,
            max_relative: 0.0,
            nan: [0; 2],
        }
    }

    fn look(&mut self, x: &[u8], y: &[u8], kind: Dtype, from: u64) {
        if x == y && !is_float(kind) {
            return;
        }
        let Some(number) = reader(kind) else {
            // Types without arithmetic are compared as bytes.
            let size = kind.size() as usize;
            for (n, (a, b)) in x
                .chunks(size)
                .zip(y.chunks(size))
                .enumerate()
                .filter(|(_, (a, b))| a != b)
            {
                self.count(from + n as u64, [f64::from(a[0]), f64::from(b[0])], f64::INFINITY);
            }
            return;
        };
        let size = kind.size() as usize;
        if x == y {
            let n = x.chunks_exact(size).filter(|b| number(b).is_nan()).count() as u64;
            self.nan[0] += n;
            self.nan[1] += n;
            return;
        }
        let floats = is_float(kind);
        for (n, (x, y)) in x.chunks_exact(size).zip(y.chunks_exact(size)).enumerate() {
            let (a, b) = (number(x), number(y));
            self.nan[0] += u64::from(a.is_nan());
            self.nan[1] += u64::from(b.is_nan());
            if x == y || (floats && (a == b || (a.is_nan() && b.is_nan()))) {
                continue;
            }
            let off = (a - b).abs();
            // Large integers differ even if the conversion hides it.
            let off = if off.is_nan() {
                f64::INFINITY
            } else if floats {
                off
            } else {
                off.max(1.0)
            };
            self.count(from + n as u64, [a, b], off);
        }
    }

    fn count(&mut self, at: u64, values: [f64; 2], off: f64) {
        self.max_absolute = self.max_absolute.max(off);
        let larger = values[0].abs().max(values[1].abs());
        let relative = if off.is_finite() && larger > 0.0 {
            off / larger
        } else {
            off
        };
        self.max_relative = self.max_relative.max(relative);
        if off > self.allowed {
            self.different += 1;
            self.first.get_or_insert((at, values));
        }
    }

    fn values(&self, shape: &[u64]) -> Option<Values> {
        let (at, first_values) = self.first?;
        let mut rest = at;
        let mut first_at: Vec<u64> = shape
            .iter()
            .rev()
            .map(|n| {
                let here = rest % n;
                rest /= n;
                here
            })
            .collect();
        first_at.reverse();
        Some(Values {
            different: self.different,
            of: crate::model::elements(shape),
            first_at,
            first_values,
            max_absolute: self.max_absolute,
            max_relative: self.max_relative,
            nan: self.nan,
        })
    }
}

/// Returns a function that reads a number of this type.
fn reader(kind: Dtype) -> Option<fn(&[u8]) -> f64> {
    fn bytes<const N: usize>(b: &[u8]) -> [u8; N] {
        b.try_into().unwrap_or([0; N])
    }
    Some(match kind {
        Dtype::F64 => |b| f64::from_le_bytes(bytes(b)),
        Dtype::F32 => |b| f64::from(f32::from_le_bytes(bytes(b))),
        Dtype::F16 => |b| f64::from(crate::cast::from_f16(u16::from_le_bytes(bytes(b)))),
        Dtype::Bf16 => |b| f64::from(crate::cast::from_bf16(u16::from_le_bytes(bytes(b)))),
        Dtype::I64 => |b| i64::from_le_bytes(bytes(b)) as f64,
        Dtype::I32 => |b| f64::from(i32::from_le_bytes(bytes(b))),
        Dtype::I16 => |b| f64::from(i16::from_le_bytes(bytes(b))),
        Dtype::I8 => |b| f64::from(i8::from_le_bytes(bytes(b))),
        Dtype::U8 | Dtype::Bool => |b| f64::from(u8::from_le_bytes(bytes(b))),
        _ => return None,
    })
}
