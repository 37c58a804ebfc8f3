//! The values of a pickle: small ones inline, containers by number, strings as ranges of the input.
//!
//! Containers may contain themselves; code that walks them must count steps and depth.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

/// A value. Containers and calls are numbers that [`PickleHeap::object`] resolves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PickleValue {
    None,
    Bool(bool),
    Int(i64),
    /// A larger integer: its bytes in the input.
    BigInt(TextRange),
    Float(f64),
    Str(TextRange),
    Bytes(TextRange),
    ByteArray(TextRange),
    /// An imported name, resolved by [`PickleHeap::global`].
    Global(u32),
    /// A container, a call or a persistent reference.
    Object(u32),
}

/// A range of bytes, in the input or in the pool of decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRange {
    off: u32,
    len: u32,
}

impl TextRange {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether the range is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// A container, a call or a persistent reference.
#[derive(Debug, Clone, PartialEq)]
pub enum PickleObject {
    Tuple(Box<[PickleValue]>),
    List(Vec<PickleValue>),
    Set(Vec<PickleValue>),
    FrozenSet(Box<[PickleValue]>),
    /// In insertion order, including repeated keys.
    Dict(Vec<(PickleValue, PickleValue)>),
    /// The value that a call would return.
    Call(Box<PickleCall>),
    /// The value that the loader's `persistent_load` would return for this ID.
    Persistent(PickleValue),
}

/// The opcode a call came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// REDUCE: `callee(*args)`.
    Reduce,
    /// NEWOBJ: `callee.__new__(callee, *args)`.
    New,
    /// NEWOBJ_EX: the same with keywords.
    NewEx,
    /// INST or OBJ of protocol 0 and 1: `callee(*args)`.
    Instance,
}

/// A call that loading would make, and what would be done to its result.
#[derive(Debug, Clone, PartialEq)]
pub struct PickleCall {
    pub kind: CallKind,
    pub callee: PickleValue,
    pub args: PickleValue,
    pub kwargs: Option<PickleValue>,
    /// The state that BUILD would give its result.
    pub state: Option<PickleValue>,
    /// Values that would be added to its result; boxed, because most calls have none.
    filling: Option<Box<Filling>>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Filling {
    items: Vec<PickleValue>,
    pairs: Vec<(PickleValue, PickleValue)>,
}

impl PickleCall {
    pub(super) fn new(kind: CallKind, callee: PickleValue, args: PickleValue, kwargs: Option<PickleValue>) -> Self {
        Self {
            kind,
            callee,
            args,
            kwargs,
            state: None,
            filling: None,
        }
    }

    /// Returns the values that APPEND and ADDITEMS would add.
    #[must_use]
    pub fn items(&self) -> &[PickleValue] {
        self.filling.as_ref().map_or(&[], |f| &f.items)
    }

    /// Returns the pairs that SETITEM would set.
    #[must_use]
    pub fn pairs(&self) -> &[(PickleValue, PickleValue)] {
        self.filling.as_ref().map_or(&[], |f| &f.pairs)
    }

    pub(super) fn items_mut(&mut self) -> &mut Vec<PickleValue> {
        &mut self.filling.get_or_insert_default().items
    }

    pub(super) fn pairs_mut(&mut self) -> &mut Vec<(PickleValue, PickleValue)> {
        &mut self.filling.get_or_insert_default().pairs
    }
}

/// How a pickle uses an imported name, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GlobalUse {
    /// It is imported and kept.
    Named,
    /// An instance is made: `__new__` runs, and Python insists on a class.
    Made,
    /// It is called, by the pickle or by torch on its behalf.
    Called,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickleGlobal {
    pub module: String,
    /// The name in the module, dotted if it reaches through attributes.
    pub name: String,
    /// Offset of its first use in the pickle.
    pub at: u64,
    /// The highest use.
    pub usage: GlobalUse,
}

/// Values that may be visited in any file.
const WORK: u64 = 16 << 20;

/// All values of one pickle.
#[derive(Debug, Default)]
pub struct PickleHeap {
    input: Vec<u8>,
    pool: Vec<u8>,
    objects: Vec<PickleObject>,
    globals: Vec<PickleGlobal>,
    by_name: HashMap<(String, String), u32>,
    /// Values visited beyond reading them once.
    work: Cell<u64>,
    /// Bytes taken by input and values.
    taken: usize,
}

impl PickleHeap {
    pub(super) fn new(input: Vec<u8>) -> Self {
        Self {
            input,
            ..Self::default()
        }
    }

    pub(super) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Builds a range of the input. The limit on pickles keeps it below 4 GiB.
    pub(super) fn text(off: usize, len: usize) -> Option<TextRange> {
        Some(TextRange {
            off: u32::try_from(off).ok()?,
            len: u32::try_from(len).ok()?,
        })
    }

    pub(super) fn pooled(&mut self, bytes: &[u8]) -> Option<TextRange> {
        let text = Self::text(self.input.len() + self.pool.len(), bytes.len())?;
        self.pool.extend_from_slice(bytes);
        Some(text)
    }

    pub(super) fn add(&mut self, object: PickleObject) -> Option<PickleValue> {
        let id = u32::try_from(self.objects.len()).ok()?;
        self.objects.push(object);
        Some(PickleValue::Object(id))
    }

    /// Bytes of an object's separate allocations.
    pub(super) fn weight(object: &PickleObject) -> usize {
        // Each list of values is a separate allocation, with the allocator's rounding.
        const APART: usize = 32;
        let values = size_of::<PickleValue>();
        match object {
            PickleObject::Tuple(items) | PickleObject::FrozenSet(items) if items.is_empty() => 0,
            PickleObject::Tuple(items) | PickleObject::FrozenSet(items) => APART + items.len() * values,
            PickleObject::List(items) | PickleObject::Set(items) => APART + 4 * values + items.len() * values,
            PickleObject::Dict(pairs) => APART + 8 * values + 2 * pairs.len() * values,
            PickleObject::Call(_) => APART + size_of::<PickleCall>(),
            PickleObject::Persistent(_) => 0,
        }
    }

    /// Bytes of all object slots, including spare capacity.
    pub(super) fn places(&self) -> usize {
        self.objects.capacity() * size_of::<PickleObject>()
    }

    /// Bytes by which one more object would grow that.
    pub(super) fn growth(&self) -> usize {
        match self.objects.len() == self.objects.capacity() {
            true => self.places(),
            false => 0,
        }
    }

    pub(super) fn object_mut(&mut self, id: u32) -> Option<&mut PickleObject> {
        self.objects.get_mut(id as usize)
    }

    pub(super) fn import(&mut self, module: String, name: String, at: u64) -> PickleValue {
        let next = u32::try_from(self.globals.len()).unwrap_or(u32::MAX);
        let id = *self.by_name.entry((module, name)).or_insert_with_key(|(module, name)| {
            self.globals.push(PickleGlobal {
                module: module.clone(),
                name: name.clone(),
                at,
                usage: GlobalUse::Named,
            });
            next
        });
        PickleValue::Global(id)
    }

    pub(super) fn mark(&mut self, id: u32, usage: GlobalUse) {
        if let Some(g) = self.globals.get_mut(id as usize) {
            g.usage = g.usage.max(usage);
        }
    }

    /// Returns all imported names, in order of appearance.
    #[must_use]
    pub fn globals(&self) -> &[PickleGlobal] {
        &self.globals
    }

    /// Returns the imported name that a value stands for.
    #[must_use]
    pub fn global(&self, value: PickleValue) -> Option<&PickleGlobal> {
        match value {
            PickleValue::Global(id) => self.globals.get(id as usize),
            _ => None,
        }
    }

    /// Returns all containers, calls and persistent references, in order of creation.
    #[must_use]
    pub fn objects(&self) -> &[PickleObject] {
        &self.objects
    }

    /// Returns the container or call that a value stands for.
    #[must_use]
    pub fn object(&self, value: PickleValue) -> Option<&PickleObject> {
        match value {
            PickleValue::Object(id) => self.objects.get(id as usize),
            _ => None,
        }
    }

    /// Returns the call that a value stands for.
    #[must_use]
    pub fn call(&self, value: PickleValue) -> Option<&PickleCall> {
        match self.object(value)? {
            PickleObject::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the elements of a tuple or list.
    #[must_use]
    pub fn items(&self, value: PickleValue) -> Option<&[PickleValue]> {
        match self.object(value)? {
            PickleObject::Tuple(items) => Some(items),
            PickleObject::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the pairs of a dict, or of a call that makes one and fills it (`OrderedDict`).
    #[must_use]
    pub fn pairs(&self, value: PickleValue) -> Option<&[(PickleValue, PickleValue)]> {
        match self.object(value)? {
            PickleObject::Dict(pairs) => Some(pairs),
            PickleObject::Call(call) if !call.pairs().is_empty() || self.makes_dict(call) => Some(call.pairs()),
            _ => None,
        }
    }

    /// Bytes of the input and of decoded text.
    pub(super) fn texts(&self) -> usize {
        self.input.capacity() + self.pool.capacity()
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.taken = bytes;
    }

    /// Bytes of memory for everything.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Counts visited values. Any number of values may share one, so the sum needs a limit.
    pub(crate) fn charge(&self, values: usize) {
        self.work.set(self.work.get().saturating_add(values as u64));
    }

    /// Whether more values were visited than a real file of this size needs.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.work.get() > WORK + 64 * (self.input.len() + self.objects.len()) as u64
    }

    pub(super) fn is_dict_call(&self, value: PickleValue) -> bool {
        self.call(value).is_some_and(|call| self.makes_dict(call))
    }

    fn makes_dict(&self, call: &PickleCall) -> bool {
        self.global(call.callee)
            .is_some_and(|g| g.module == "collections" && g.name != "deque")
    }

    /// Returns the value of a string key; the last one, as in Python.
    #[must_use]
    pub fn get(&self, dict: PickleValue, key: &str) -> Option<PickleValue> {
        let pairs = self.pairs(dict)?;
        self.charge(pairs.len());
        if self.is_exhausted() {
            return None;
        }
        pairs
            .iter()
            .rev()
            .find(|(k, _)| matches!(k, PickleValue::Str(t) if self.bytes(*t) == key.as_bytes()))
            .map(|p| p.1)
    }

    /// Returns an attribute that BUILD set on a call's result: from a dict, or from one part of a slotted state.
    #[must_use]
    pub fn attribute(&self, object: PickleValue, name: &str) -> Option<PickleValue> {
        let state = self.call(object)?.state?;
        match self.items(state) {
            Some(parts) => parts.iter().find_map(|part| self.get(*part, name)),
            None => self.get(state, name),
        }
    }

    /// Whether any container or call contains this imported name.
    #[must_use]
    pub fn holds(&self, global: u32) -> bool {
        let wanted = |v: &PickleValue| *v == PickleValue::Global(global);
        let in_pairs = |pairs: &[(PickleValue, PickleValue)]| pairs.iter().any(|(k, v)| wanted(k) || wanted(v));
        self.objects.iter().any(|object| match object {
            PickleObject::Tuple(items) | PickleObject::FrozenSet(items) => items.iter().any(wanted),
            PickleObject::List(items) | PickleObject::Set(items) => items.iter().any(wanted),
            PickleObject::Dict(pairs) => in_pairs(pairs),
            PickleObject::Persistent(id) => wanted(id),
            PickleObject::Call(c) => {
                let parts = [Some(c.callee), Some(c.args), c.kwargs, c.state];
                parts.iter().flatten().any(wanted) || c.items().iter().any(wanted) || in_pairs(c.pairs())
            }
        })
    }

    /// Returns the bytes of a string or bytes value.
    #[must_use]
    pub fn bytes(&self, text: TextRange) -> &[u8] {
        let (off, len) = (text.off as usize, text.len as usize);
        match off.checked_sub(self.input.len()) {
            None => self.input.get(off..off + len).unwrap_or_default(),
            Some(at) => self.pool.get(at..at + len).unwrap_or_default(),
        }
    }

    /// Returns a string value; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn str(&self, value: PickleValue) -> Option<Cow<'_, str>> {
        match value {
            PickleValue::Str(t) => Some(String::from_utf8_lossy(self.bytes(t))),
            _ => None,
        }
    }

    /// Returns a non-negative integer.
    #[must_use]
    pub fn uint(&self, value: PickleValue) -> Option<u64> {
        match value {
            PickleValue::Int(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }
}
