//! Values in a `torch.save` file: dicts, sizes, tensors and the locations of their numbers.

use crate::fsdp::FsdpShard;
use crate::problem::ModelError;
use crate::read::SharedSource;
use std::collections::BTreeMap;
use supervise_checkpoint::pickle::{self, ParsedPickle, PickleHeap, PickleObject, PickleValue};
use supervise_checkpoint::source::FileReader;
use supervise_checkpoint::{Dtype, InspectLimits, zip};
use supervise_core::checkpoint::Verdict;

/// The most wrappers around a tensor.
const WRAPPED: usize = 4;

/// A file, parsed except for its numbers.
pub(super) struct TorchState<'a> {
    pub(super) path: &'a str,
    /// Its index among the files.
    pub(super) file: usize,
    heap: PickleHeap,
    pub(super) root: PickleValue,
    /// Offset and length in bytes of each storage, by key.
    places: BTreeMap<&'a str, (u64, u64)>,
}

/// A tensor in a file, with consecutive numbers.
#[derive(Debug, Clone)]
pub(super) struct StoredTensor {
    pub(super) file: usize,
    /// Offset of its first number in the file, in bytes.
    pub(super) at: u64,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
}

impl<'a> TorchState<'a> {
    pub(super) fn read(
        file: usize,
        shard: &'a FsdpShard,
        bytes: &SharedSource,
        limits: &InspectLimits,
    ) -> Result<Self, ModelError> {
        let path = shard.path.as_str();
        let found = &shard.found;
        if let Some(worst) = found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
            return Err(ModelError::found(path, worst));
        }
        if found
            .facts
            .torch
            .as_ref()
            .is_some_and(|t| t.byteorder.as_deref() == Some("big"))
        {
            return Err(ModelError::unknown(format!(
                "{path}: its numbers are in big-endian order"
            )));
        }
        let reader = FileReader::open(bytes, zip::TAIL).map_err(|e| ModelError::found(path, &e.finding()))?;
        let archive = zip::read(&reader, limits, &mut Vec::new()).map_err(|f| ModelError::found(path, &f))?;
        let entry = archive.entries.iter().find(|e| e.name.ends_with("/data.pkl"));
        let pickled = entry
            .filter(|e| e.size <= limits.pickle_bytes)
            .and_then(|e| Some((e.data, usize::try_from(e.size).ok()?)))
            .ok_or_else(|| ModelError::damaged(format!("{path}: its data.pkl is missing or too large")))?;
        let pickled = reader
            .bytes(pickled.0, pickled.1)
            .map_err(|e| ModelError::found(path, &e.finding()))?;
        let ParsedPickle { heap, root, error, .. } = pickle::read(pickled, limits);
        let (Some(root), None) = (root, error) else {
            return Err(ModelError::damaged(format!("{path}: its data.pkl cannot be read")));
        };
        let key = |what: &'a str| what.split_once("/data/").map(|(_, key)| key);
        let places = found
            .plan
            .extents
            .iter()
            .filter_map(|e| Some((key(&e.what)?, (e.off, e.len))))
            .collect();
        Ok(Self {
            path,
            file,
            heap,
            root,
            places,
        })
    }

    pub(super) fn strange(&self, what: &str) -> ModelError {
        ModelError::unknown(format!("{}: {what} is not of the form that is known here", self.path))
    }

    /// The value of a key; no value if it is Python's `None`.
    pub(super) fn get(&self, dict: PickleValue, key: &str) -> Option<PickleValue> {
        self.heap.get(dict, key).filter(|v| *v != PickleValue::None)
    }

    pub(super) fn want(&self, dict: PickleValue, key: &str) -> Result<PickleValue, ModelError> {
        self.get(dict, key).ok_or_else(|| self.strange(key))
    }

    pub(super) fn items(&self, value: PickleValue, what: &str) -> Result<&[PickleValue], ModelError> {
        self.heap.items(value).ok_or_else(|| self.strange(what))
    }

    /// A dict's values by name, in its order.
    pub(super) fn pairs(&self, value: PickleValue, what: &str) -> Result<Vec<(String, PickleValue)>, ModelError> {
        let pairs = self.heap.pairs(value).ok_or_else(|| self.strange(what))?;
        let named = pairs.iter().map(|(k, v)| Some((self.heap.str(*k)?.into_owned(), *v)));
        named.collect::<Option<_>>().ok_or_else(|| self.strange(what))
    }

    pub(super) fn text(&self, value: PickleValue) -> Option<String> {
        self.heap.str(value).map(std::borrow::Cow::into_owned)
    }

    /// A number, or a member of an enumeration built from one.
    pub(super) fn number(&self, value: PickleValue) -> Option<u64> {
        let called = self
            .heap
            .call(value)
            .and_then(|c| self.heap.items(c.args)?.first().copied());
        self.heap.uint(called.unwrap_or(value))
    }

    pub(super) fn size(&self, value: PickleValue, what: &str) -> Result<Vec<u64>, ModelError> {
        let inner = self
            .heap
            .call(value)
            .and_then(|c| self.heap.items(c.args)?.first().copied());
        let items = self.items(inner.unwrap_or(value), what)?;
        let numbers: Option<Vec<u64>> = items.iter().map(|v| self.heap.uint(*v)).collect();
        numbers.ok_or_else(|| self.strange(what))
    }

    /// Unwraps a tensor: from a parameter, from attributes.
    pub(super) fn tensor(&self, value: PickleValue, what: &str) -> Result<StoredTensor, ModelError> {
        let strange = || self.strange(what);
        let call = self.heap.call(value).ok_or_else(strange)?;
        let (mut callee, mut args) = (call.callee, call.args);
        for _ in 0..WRAPPED {
            let name = self.heap.global(callee).ok_or_else(strange)?;
            let items = self.heap.items(args).ok_or_else(strange)?;
            match (name.module.as_str(), name.name.as_str(), items) {
                ("torch._utils", "_rebuild_tensor_v2", items) => return self.rebuilt(items, what),
                ("torch._tensor", "_rebuild_from_type_v2", [inner, _, of, ..]) => (callee, args) = (*inner, *of),
                ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state", [inner, ..]) => {
                    let call = self.heap.call(*inner).ok_or_else(strange)?;
                    (callee, args) = (call.callee, call.args);
                }
                _ => return Err(strange()),
            }
        }
        Err(strange())
    }

    /// The tensor that `_rebuild_tensor_v2` makes from these arguments.
    fn rebuilt(&self, items: &[PickleValue], what: &str) -> Result<StoredTensor, ModelError> {
        let strange = || self.strange(what);
        let [storage, offset, size, stride, ..] = *items else {
            return Err(strange());
        };
        let Some(PickleObject::Persistent(id)) = self.heap.object(storage) else {
            return Err(strange());
        };
        let [_, class, key, ..] = *self.heap.items(*id).ok_or_else(strange)? else {
            return Err(strange());
        };
        let class = self.heap.global(class).ok_or_else(strange)?;
        let dtype = storage_type(&class.name).ok_or_else(strange)?;
        let (shape, stride) = (self.size(size, what)?, self.size(stride, what)?);
        let elements = crate::model::elements(&shape);
        let follows = elements < 2 || stride == crate::model::row_major(&shape);
        let offset = self.heap.uint(offset).filter(|_| follows).ok_or_else(strange)?;
        if elements == 0 {
            return Ok(StoredTensor {
                file: self.file,
                at: 0,
                dtype,
                shape,
            });
        }
        let key = self.heap.str(key).ok_or_else(strange)?;
        let (at, len) = self
            .places
            .get(key.as_ref())
            .copied()
            .ok_or_else(|| ModelError::damaged(format!("{}: the numbers of {what} are not there", self.path)))?;
        let end = offset.checked_add(elements).and_then(|n| n.checked_mul(dtype.size()));
        if end.is_none_or(|end| end > len) {
            let text = format!("{}: {what} reaches beyond its storage", self.path);
            return Err(ModelError::damaged(text));
        }
        Ok(StoredTensor {
            file: self.file,
            at: at + offset * dtype.size(),
            dtype,
            shape,
        })
    }
}

fn storage_type(class: &str) -> Option<Dtype> {
    Some(match class {
        "DoubleStorage" => Dtype::F64,
        "FloatStorage" => Dtype::F32,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::Bf16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ShortStorage" => Dtype::I16,
        "CharStorage" => Dtype::I8,
        "ByteStorage" => Dtype::U8,
        "BoolStorage" => Dtype::Bool,
        _ => return None,
    })
}
