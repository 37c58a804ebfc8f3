//! Parses `.metadata` as data: the table of tensors and the storage table.
//!
//! Classes are recognized by their names and attributes, as torch 2.1 and later write them. Attributes that a version leaves out are
//! absent, unknown ones are skipped. A pickle can refer to one value many times, so everything built from it is charged to a budget.

use super::findings::FindingCollector;
use super::storage_table::{StorageTable, join};
use super::{ChunkBounds, DcpItem, DcpItemKind, DcpMetadata, DcpTensor, damaged, names, tiling};
use crate::dtype::Dtype;
use crate::limits::InspectLimits;
use crate::megatron::stays_below;
use crate::pickle::{ParsedPickle, PickleHeap, PickleValue};
use crate::raw::shown;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use supervise_core::checkpoint::{Finding, Verdict};

/// Modules that define the table classes; torch 2.0 has one of them elsewhere.
const MODULES: [&str; 3] = [
    "torch.distributed.checkpoint.",
    "torch.distributed._shard.",
    "megatron.core.dist_checkpointing.",
];
/// The most attributes of an object; torch's have five at most.
const ATTRIBUTES: usize = 16;
/// Longest name or path, in bytes.
const NAME: usize = 4096;
/// The most dimensions of a tensor, as in torch.
const DIMS: usize = 64;

/// Bytes per name in a set of names.
const NAMED: usize = 48;

/// Two allocations and their allocator overhead, in bytes.
const APART: usize = 48;

pub(crate) fn read_metadata(
    pickle: &ParsedPickle,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<Option<DcpMetadata>, Box<Finding>> {
    names::classes(pickle, findings);
    let table = |root| table(&pickle.heap, root, limits, findings);
    pickle.root.map(table).transpose()
}

fn table(
    heap: &PickleHeap,
    root: PickleValue,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<DcpMetadata, Box<Finding>> {
    let mut reading = MetadataReader {
        heap,
        budget: limits.memory.saturating_sub(heap.taken()),
        names: HashMap::new(),
        said: FindingCollector::default(),
        strange: RefCell::default(),
    };
    let items = reading.items(root)?;
    let places = reading.places(root)?;
    if let Some(planner) = reading.field(root, "planner_data", 1) {
        ways(&mut reading, planner)?;
    }
    let written_for = reading
        .field(root, "storage_meta", 3)
        .and_then(|meta| reading.path(reading.field(meta, "checkpoint_id", 0)?));
    if let Some(name) = reading.strange.take() {
        let detail = format!("it gives an object the attribute {name}, which no table of torch or Megatron does");
        findings.push(Finding::error("unknown_table_class", Verdict::Unknown, detail));
    }
    let mut said = reading.said;
    let mut dcp = DcpMetadata {
        written_for,
        ..DcpMetadata::default()
    };
    for item in &items {
        match &item.what {
            DcpItemKind::Bytes => dcp.objects += 1,
            DcpItemKind::Tensor { dtype, shape, chunks } => {
                tiling::check(&item.name, shape, chunks, limits.corners, &mut said);
                dcp.tensors.push(DcpTensor {
                    name: Arc::clone(&item.name),
                    dtype: *dtype,
                    shape: shape.clone(),
                    chunks: chunks.len(),
                });
            }
        }
    }
    dcp.parts = join(items, places, &mut said);
    findings.extend(said.into_findings());
    Ok(dcp)
}

struct MetadataReader<'h> {
    heap: &'h PickleHeap,
    budget: usize,
    names: HashMap<Arc<str>, usize>,
    said: FindingCollector,
    /// The first attribute that no table class has.
    strange: RefCell<Option<String>>,
}

impl<'h> MetadataReader<'h> {
    fn items(&mut self, root: PickleValue) -> Result<Vec<DcpItem>, Box<Finding>> {
        let pairs = self.table(root, "state_dict_metadata", 0)?;
        let mut out: Vec<DcpItem> = Vec::new();
        for (key, value) in pairs {
            self.spend(size_of::<DcpItem>() + size_of::<DcpTensor>())?;
            let name: Arc<str> = self.word(*key, "a value has no usable name")?.into();
            let what = self.kind(*value, &name)?;
            let item = DcpItem {
                name: Arc::clone(&name),
                what,
            };
            // As in Python, the last of repeated keys counts.
            match self.names.get(&name).and_then(|at| out.get_mut(*at)) {
                Some(before) => *before = item,
                None => {
                    self.spend(2 * name.len())?;
                    self.names.insert(name, out.len());
                    out.push(item);
                }
            }
        }
        Ok(out)
    }

    fn kind(&mut self, value: PickleValue, name: &str) -> Result<DcpItemKind, Box<Finding>> {
        let heap = self.heap;
        let class = heap.call(value).and_then(|c| heap.global(c.callee));
        let class = class.filter(|g| MODULES.iter().any(|m| g.module.starts_with(m)));
        let class = class.map_or("", |g| g.name.as_str());
        match class {
            "TensorStorageMetadata" => self.tensor(value, name),
            "BytesStorageMetadata" => Ok(DcpItemKind::Bytes),
            _ => {
                let detail = format!("{} is of the unknown kind {}", shown(name), shown(class));
                Err(Box::new(Finding::error("dcp_unknown", Verdict::Unknown, detail)))
            }
        }
    }

    fn tensor(&mut self, value: PickleValue, name: &str) -> Result<DcpItemKind, Box<Finding>> {
        let bad = |what: &str| damaged("dcp_metadata", format!("tensor {} {what}", shown(name)));
        let size = self.field(value, "size", 1).ok_or_else(|| bad("has no size"))?;
        let shape = self.numbers(size)?.ok_or_else(|| bad("has no sound size"))?;
        let list = self
            .field(value, "chunks", 2)
            .and_then(|v| self.heap.items(v))
            .ok_or_else(|| bad("has no chunks"))?;
        let mut chunks = Vec::new();
        for chunk in list {
            self.spend(size_of::<ChunkBounds>() + APART)?;
            let offsets = self.field(*chunk, "offsets", 0).map(|v| self.numbers(v)).transpose()?;
            let sizes = self.field(*chunk, "sizes", 1).map(|v| self.numbers(v)).transpose()?;
            let (Some(Some(offsets)), Some(Some(sizes))) = (offsets, sizes) else {
                return Err(bad("has a chunk without a sound place and size"));
            };
            chunks.push(ChunkBounds {
                offsets: offsets.into(),
                sizes: sizes.into(),
            });
        }
        let properties = self.field(value, "properties", 0);
        let state = properties
            .and_then(|p| self.heap.call(p)?.state)
            .and_then(|s| self.heap.items(s));
        if let Some(wrong) = state.and_then(|s| names::properties(self.heap, s)) {
            return Err(bad(wrong));
        }
        let dtype = properties
            .and_then(|p| self.dtype(p))
            .ok_or_else(|| bad("has no type"))?;
        if dtype.is_err() {
            self.said.add(Finding::error(
                "dcp_unknown",
                Verdict::Unknown,
                format!("tensor {} has elements of an unknown type", shown(name)),
            ));
        }
        Ok(DcpItemKind::Tensor {
            dtype: dtype.ok(),
            shape,
            chunks,
        })
    }

    /// The first of the properties, or the named attribute in older versions. `Err` if the type is unknown.
    fn dtype(&self, properties: PickleValue) -> Option<Result<Dtype, ()>> {
        let state = self.heap.call(properties)?.state;
        let first = match state.and_then(|s| self.heap.items(s)) {
            Some(items) => items.first().copied(),
            None => self.field(properties, "dtype", 0),
        };
        let global = self.heap.global(first?).filter(|g| g.module == "torch")?;
        Some(Dtype::from_torch(&global.name).ok_or(()))
    }

    fn places(&mut self, root: PickleValue) -> Result<StorageTable, Box<Finding>> {
        let mut out = StorageTable::default();
        for (key, value) in self.table(root, "storage_data", 2)? {
            self.spend(super::storage_table::WEIGHT)?;
            let fqn = self
                .field(*key, "fqn", 0)
                .ok_or_else(|| damaged("dcp_metadata", "a place has no name".to_owned()))?;
            let fqn = self.word(fqn, "a place has no usable name")?;
            let offsets = match self.field(*key, "offset", 1).filter(|v| *v != PickleValue::None) {
                Some(v) => Some(self.numbers(v)?.ok_or_else(|| no_place(&fqn))?.into()),
                None => None,
            };
            let number = |name: &str, at| self.field(*value, name, at).and_then(|v| self.heap.uint(v));
            let (Some(off), Some(len)) = (number("offset", 1), number("length", 2)) else {
                return Err(no_place(&fqn));
            };
            let path = self.field(*value, "relative_path", 0).ok_or_else(|| no_place(&fqn))?;
            let path = self.word(path, "a file has no usable name")?;
            if !stays_below(&path) {
                let detail = format!("{} should lie outside the directory: {}", shown(&fqn), shown(&path));
                return Err(damaged("dcp_path", detail));
            }
            let encoded = self
                .field(*value, "transform_descriptors", 3)
                .is_some_and(|v| self.heap.items(v).is_none_or(|list| !list.is_empty()) && v != PickleValue::None);
            self.spend(fqn.len() + path.len())?;
            out.add(&fqn, offsets, &path, (off, len, encoded));
        }
        Ok(out)
    }

    fn table(
        &self,
        root: PickleValue,
        name: &str,
        at: usize,
    ) -> Result<&'h [(PickleValue, PickleValue)], Box<Finding>> {
        self.field(root, name, at)
            .and_then(|v| self.heap.pairs(v))
            .ok_or_else(|| {
                damaged(
                    "dcp_metadata",
                    format!("it has no table {name}: torch did not write it"),
                )
            })
    }

    /// The attribute set by BUILD, or the argument at its position; only for classes of torch and Megatron.
    fn field(&self, object: PickleValue, name: &str, at: usize) -> Option<PickleValue> {
        let call = self.heap.call(object)?;
        let module = &self.heap.global(call.callee)?.module;
        if !MODULES.iter().any(|m| module.starts_with(m)) {
            return None;
        }
        let parts = call.state.map(|s| self.heap.items(s).unwrap_or_default());
        for dict in call.state.iter().chain(parts.unwrap_or_default().iter().take(2)) {
            let few = self.heap.pairs(*dict).is_some_and(|p| p.len() <= ATTRIBUTES);
            if let Some(pairs) = self.heap.pairs(*dict).filter(|_| few) {
                let mut strange = self.strange.borrow_mut();
                if strange.is_none() {
                    *strange = names::strange_attribute(self.heap, pairs);
                }
            }
            if let Some(v) = few.then(|| self.heap.get(*dict, name)).flatten() {
                return Some(v);
            }
        }
        self.heap.items(call.args)?.get(at).copied()
    }

    /// A tuple or list of numbers, or a `torch.Size` built from one.
    fn numbers(&mut self, value: PickleValue) -> Result<Option<Vec<u64>>, Box<Finding>> {
        let heap = self.heap;
        let inner = match heap.call(value) {
            Some(call) => {
                let size = heap.global(call.callee).is_some_and(|g| g.name == "Size");
                heap.items(call.args).filter(|_| size).and_then(|a| a.first().copied())
            }
            None => Some(value),
        };
        let Some(items) = inner.and_then(|v| heap.items(v)).filter(|i| i.len() <= DIMS) else {
            return Ok(None);
        };
        self.spend(items.len() * size_of::<u64>())?;
        Ok(items.iter().map(|v| heap.uint(*v)).collect())
    }

    fn word(&self, value: PickleValue, what: &str) -> Result<String, Box<Finding>> {
        let text = match value {
            PickleValue::Str(t) if t.len() <= NAME => std::str::from_utf8(self.heap.bytes(t)).ok(),
            _ => None,
        };
        text.map(str::to_owned)
            .ok_or_else(|| damaged("dcp_metadata", what.to_owned()))
    }

    /// A path: a string, or a `pathlib` object built from its parts.
    fn path(&self, value: PickleValue) -> Option<String> {
        let Some(call) = self.heap.call(value) else {
            return self.word(value, "").ok();
        };
        let module = &self.heap.global(call.callee)?.module;
        let parts = self
            .heap
            .items(call.args)
            .filter(|p| module.starts_with("pathlib") && p.len() <= DIMS)?;
        let parts: Option<Vec<String>> = parts.iter().map(|p| self.word(*p, "").ok()).collect();
        Some(parts?.join("/"))
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Box<Finding>> {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| {
            let detail = "what it describes takes more memory than is given to it";
            Box::new(Finding::error("limit_reached", Verdict::Unknown, detail))
        })?;
        Ok(())
    }
}

/// Checks `planner_data`, which maps each name to its path in the nested dict: the name is that path, joined by dots. Planners other than
/// torch's store other things there, which are not checked.
fn ways(reading: &mut MetadataReader<'_>, planner: PickleValue) -> Result<(), Box<Finding>> {
    let heap = reading.heap;
    let pairs = heap.pairs(planner).unwrap_or_default();
    let ways = pairs.iter().filter(|p| is_way(heap, **p)).count();
    if 2 * ways <= pairs.len() {
        return Ok(());
    }
    if ways < pairs.len() {
        let detail = format!(
            "{} of {} names have no way that they were made of",
            pairs.len() - ways,
            pairs.len()
        );
        return Err(damaged("dcp_names", detail));
    }
    let mut named: HashSet<&[u8]> = HashSet::new();
    let mut absent = None;
    for (key, way) in pairs {
        let (PickleValue::Str(text), Some(parts)) = (*key, heap.items(*way)) else {
            continue;
        };
        let name = heap.bytes(text);
        if !joins(heap, name, parts) {
            let name = String::from_utf8_lossy(name);
            let detail = format!("the name {} is not the way that it was made of", shown(&name));
            return Err(damaged("dcp_names", detail));
        }
        reading.spend(NAMED)?;
        named.insert(name);
        if !std::str::from_utf8(name).is_ok_and(|n| reading.names.contains_key(n)) {
            absent.get_or_insert(name);
        }
    }
    let lacking = reading.names.keys().filter(|n| !named.contains(n.as_bytes())).min();
    let odd = absent.map(String::from_utf8_lossy);
    if let Some(name) = odd.as_deref().or(lacking.map(|n| &**n)) {
        let detail = format!(
            "planner_data and the values do not have the same names: {}",
            shown(name)
        );
        reading.said.add(Finding::error("dcp_names", Verdict::Unknown, detail));
    }
    Ok(())
}

fn is_way(heap: &PickleHeap, (key, way): (PickleValue, PickleValue)) -> bool {
    let plain = |v: &PickleValue| matches!(v, PickleValue::Str(_) | PickleValue::Int(_));
    // Check only as many parts as can fit in the name.
    let room = |t: crate::pickle::TextRange| t.len() + 1;
    matches!(key, PickleValue::Str(t) if t.len() <= NAME && heap.items(way).is_some_and(|w| w.iter().take(room(t)).all(plain)))
}

/// Whether the parts, joined by dots, give the name.
fn joins(heap: &PickleHeap, name: &[u8], parts: &[PickleValue]) -> bool {
    let mut rest = name;
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            match rest.strip_prefix(b".") {
                Some(after) => rest = after,
                None => return false,
            }
        }
        let after = match part {
            PickleValue::Str(t) => rest.strip_prefix(heap.bytes(*t)),
            PickleValue::Int(i) => rest.strip_prefix(i.to_string().as_bytes()),
            _ => None,
        };
        match after {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

fn no_place(fqn: &str) -> Box<Finding> {
    damaged("dcp_metadata", format!("{} has no sound place", shown(fqn)))
}
