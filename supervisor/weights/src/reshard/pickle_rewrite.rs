//! Writes a pickle again from its values, with some of them changed.
//!
//! Source: the opcodes of CPython 3.13 `Lib/pickletools.py`. The protocol is kept (torch writes 2), so that names keep their meaning.
//! Shared objects stay shared.

use crate::problem::ModelError;
use std::collections::HashMap;
use supervise_checkpoint::pickle::{CallKind, PickleCall, PickleHeap, PickleObject, PickleValue};

/// The deepest nesting in any state that a trainer saves.
const DEPTH: u32 = 400;

pub(super) enum NewValue {
    Int(i64),
    None,
    Tuple(Vec<i64>),
    List(Vec<i64>),
    /// A dict, or an object's state: replaces the values of some keys.
    Keys(Vec<(&'static str, Self)>),
    /// A tensor with another storage and shape; everything else as in the original call.
    Tensor {
        /// Key of its storage.
        storage: String,
        shape: Vec<u64>,
    },
}

pub(super) trait PickleRewrite {
    /// Returns the replacement of an object; `None`: unchanged.
    ///
    /// # Errors
    /// An object whose new form is not known.
    fn change(
        &mut self,
        heap: &PickleHeap,
        object: PickleValue,
        call: &PickleCall,
    ) -> Result<Option<NewValue>, ModelError>;

    /// Returns the replacement of a value in a plain dict; `None`: unchanged.
    ///
    /// # Errors
    /// A value whose new form is not known.
    fn entry(&mut self, _heap: &PickleHeap, _key: &[u8], _value: PickleValue) -> Result<Option<NewValue>, ModelError> {
        Ok(None)
    }
}

/// Writes a value as a whole pickle of protocol 2.
pub(super) fn pickle(
    heap: &PickleHeap,
    root: PickleValue,
    change: &mut dyn PickleRewrite,
) -> Result<Vec<u8>, ModelError> {
    let mut emit = PickleEmitter {
        heap,
        change,
        out: vec![0x80, 2],
        memo: HashMap::new(),
    };
    emit.value(root, 0)?;
    emit.out.push(b'.');
    Ok(emit.out)
}

struct PickleEmitter<'a> {
    heap: &'a PickleHeap,
    change: &'a mut dyn PickleRewrite,
    out: Vec<u8>,
    /// Memo slot of each object written so far.
    memo: HashMap<u32, u32>,
}

impl PickleEmitter<'_> {
    fn value(&mut self, value: PickleValue, depth: u32) -> Result<(), ModelError> {
        if depth > DEPTH {
            return Err(ModelError::unknown("its values nest deeper than those of a real save"));
        }
        match value {
            PickleValue::None => self.out.push(b'N'),
            PickleValue::Bool(b) => self.out.push(if b { 0x88 } else { 0x89 }),
            PickleValue::Int(n) => self.int(n),
            PickleValue::Float(x) => {
                self.out.push(b'G');
                self.out.extend(x.to_be_bytes());
            }
            PickleValue::Str(t) => self.text(self.heap.bytes(t)),
            PickleValue::Bytes(_) | PickleValue::ByteArray(_) | PickleValue::BigInt(_) => {
                return Err(ModelError::unknown(
                    "it holds bytes or integers beyond 64 bits, which no shard of FSDP does",
                ));
            }
            PickleValue::Global(_) => self.global(value)?,
            PickleValue::Object(id) => self.object(id, value, depth)?,
        }
        Ok(())
    }

    fn int(&mut self, n: i64) {
        if let Ok(small) = u8::try_from(n) {
            self.out.extend([b'K', small]);
        } else if let Ok(four) = i32::try_from(n) {
            self.out.push(b'J');
            self.out.extend(four.to_le_bytes());
        } else {
            self.out.extend([0x8a, 8]);
            self.out.extend(n.to_le_bytes());
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        self.out.push(b'X');
        // The limit on pickles keeps a text below 4 GiB.
        self.out.extend((bytes.len() as u32).to_le_bytes());
        self.out.extend_from_slice(bytes);
    }

    fn global(&mut self, value: PickleValue) -> Result<(), ModelError> {
        let global = self
            .heap
            .global(value)
            .ok_or_else(|| ModelError::damaged("a name is missing"))?;
        // Protocol 2 cannot express a name with a dot in it.
        if global.name.contains('.') || [&global.module, &global.name].iter().any(|s| s.contains('\n')) {
            return Err(ModelError::unknown(format!(
                "it names {}.{}, whose form for other ranks is not known here",
                global.module, global.name
            )));
        }
        self.out.push(b'c');
        for word in [&global.module, &global.name] {
            self.out.extend(word.as_bytes());
            self.out.push(b'\n');
        }
        Ok(())
    }

    /// Fetches an object from the memo; returns whether it was there.
    fn fetched(&mut self, id: u32) -> bool {
        let Some(place) = self.memo.get(&id) else { return false };
        self.out.push(b'j');
        self.out.extend(place.to_le_bytes());
        true
    }

    fn remember(&mut self, id: u32) {
        let place = self.memo.len() as u32;
        self.memo.insert(id, place);
        self.out.push(b'r');
        self.out.extend(place.to_le_bytes());
    }

    fn object(&mut self, id: u32, value: PickleValue, depth: u32) -> Result<(), ModelError> {
        if self.fetched(id) {
            return Ok(());
        }
        let heap = self.heap;
        match heap.object(value) {
            Some(PickleObject::Tuple(items)) => {
                self.tuple(items, depth)?;
                self.remember(id);
            }
            Some(PickleObject::List(items)) => {
                self.out.push(b']');
                self.remember(id);
                self.marked(items, b'e', depth)?;
            }
            Some(PickleObject::Dict(pairs)) => {
                self.out.push(b'}');
                self.remember(id);
                self.pairs(pairs, &[], depth)?;
            }
            Some(PickleObject::Persistent(persistent)) => {
                self.value(*persistent, depth + 1)?;
                self.out.push(b'Q');
                self.remember(id);
            }
            Some(PickleObject::Call(call)) => self.call(id, value, call, depth)?,
            Some(PickleObject::Set(_) | PickleObject::FrozenSet(_)) => {
                return Err(ModelError::unknown("it holds a set, which no shard of FSDP does"));
            }
            None => return Err(ModelError::damaged("a value is missing")),
        }
        Ok(())
    }

    fn tuple(&mut self, items: &[PickleValue], depth: u32) -> Result<(), ModelError> {
        if items.is_empty() {
            self.out.push(b')');
            return Ok(());
        }
        self.out.push(b'(');
        for item in items {
            self.value(*item, depth + 1)?;
        }
        self.out.push(b't');
        Ok(())
    }

    fn marked(&mut self, items: &[PickleValue], end: u8, depth: u32) -> Result<(), ModelError> {
        if items.is_empty() {
            return Ok(());
        }
        self.out.push(b'(');
        for item in items {
            self.value(*item, depth + 1)?;
        }
        self.out.push(end);
        Ok(())
    }

    fn pairs(
        &mut self,
        pairs: &[(PickleValue, PickleValue)],
        others: &[(&'static str, NewValue)],
        depth: u32,
    ) -> Result<(), ModelError> {
        if pairs.is_empty() {
            return Ok(());
        }
        self.out.push(b'(');
        for (key, value) in pairs {
            self.value(*key, depth + 1)?;
            let name = match key {
                PickleValue::Str(t) => self.heap.bytes(*t),
                _ => b"",
            };
            let named = others
                .iter()
                .find(|(k, _)| k.as_bytes() == name)
                .map(|(_, other)| other);
            let entry = match named {
                Some(_) => None,
                None => self.change.entry(self.heap, name, *value)?,
            };
            match named.or(entry.as_ref()) {
                Some(other) => self.other(*value, other, depth + 1)?,
                None => self.value(*value, depth + 1)?,
            }
        }
        self.out.push(b'u');
        Ok(())
    }

    fn call(&mut self, id: u32, value: PickleValue, call: &PickleCall, depth: u32) -> Result<(), ModelError> {
        if let Some(other) = self.change.change(self.heap, value, call)? {
            self.changed(Some(id), call, &other, depth)?;
            return Ok(());
        }
        self.made(call, depth)?;
        self.remember(id);
        self.marked(call.items(), b'e', depth)?;
        self.pairs(call.pairs(), &[], depth)?;
        if let Some(state) = call.state {
            self.value(state, depth + 1)?;
            self.out.push(b'b');
        }
        Ok(())
    }

    /// Writes an object before anything is put into it.
    fn made(&mut self, call: &PickleCall, depth: u32) -> Result<(), ModelError> {
        self.value(call.callee, depth + 1)?;
        self.value(call.args, depth + 1)?;
        match call.kind {
            CallKind::Reduce | CallKind::Instance => self.out.push(b'R'),
            CallKind::New => self.out.push(0x81),
            CallKind::NewEx => {
                return Err(ModelError::unknown(
                    "it makes an object with keywords, which no shard of FSDP does",
                ));
            }
        }
        Ok(())
    }

    fn changed(&mut self, id: Option<u32>, call: &PickleCall, other: &NewValue, depth: u32) -> Result<(), ModelError> {
        match other {
            NewValue::Keys(keys) => {
                let pairs = call.state.and_then(|state| self.heap.pairs(state));
                let pairs = pairs.ok_or_else(|| ModelError::unknown("an object's state is no dict"))?;
                self.made(call, depth)?;
                if let Some(id) = id {
                    self.remember(id);
                }
                self.out.push(b'}');
                self.pairs(pairs, keys, depth + 1)?;
                self.out.push(b'b');
            }
            NewValue::Tensor { storage, shape } => {
                self.tensor(call, storage, shape, depth)?;
                if let Some(id) = id {
                    self.remember(id);
                }
            }
            NewValue::Int(_) | NewValue::None | NewValue::Tuple(_) | NewValue::List(_) => self.plain(other),
        }
        Ok(())
    }

    fn other(&mut self, before: PickleValue, other: &NewValue, depth: u32) -> Result<(), ModelError> {
        match (other, self.heap.call(before)) {
            (NewValue::Int(_) | NewValue::None | NewValue::Tuple(_) | NewValue::List(_), _) => {
                self.plain(other);
                Ok(())
            }
            // Not memoized: the original object may also occur elsewhere.
            (other, Some(call)) => self.changed(None, call, other, depth),
            (_, None) => Err(ModelError::unknown("an object is not of the form that is known")),
        }
    }

    fn plain(&mut self, other: &NewValue) {
        match other {
            NewValue::Int(n) => self.int(*n),
            NewValue::Tuple(all) if all.is_empty() => self.out.push(b')'),
            NewValue::Tuple(all) => {
                self.out.push(b'(');
                for n in all {
                    self.int(*n);
                }
                self.out.push(b't');
            }
            NewValue::List(all) => {
                self.out.extend(b"](");
                for n in all {
                    self.int(*n);
                }
                self.out.push(b'e');
            }
            _ => self.out.push(b'N'),
        }
    }

    /// `_rebuild_tensor_v2(storage, offset, size, stride, …)` with another storage.
    fn tensor(&mut self, call: &PickleCall, key: &str, shape: &[u64], depth: u32) -> Result<(), ModelError> {
        let strange = || ModelError::unknown("a tensor is rebuilt in a way that is not known");
        let args = self.heap.items(call.args).ok_or_else(strange)?;
        let [storage, _, _, _, rest @ ..] = args else {
            return Err(strange());
        };
        let Some(PickleObject::Persistent(persistent)) = self.heap.object(*storage) else {
            return Err(strange());
        };
        let parts = self.heap.items(*persistent).ok_or_else(strange)?;
        let [kind, class, _, location, _] = parts else {
            return Err(strange());
        };
        self.value(call.callee, depth + 1)?;
        self.out.extend(b"((");
        self.value(*kind, depth + 1)?;
        self.value(*class, depth + 1)?;
        self.text(key.as_bytes());
        self.value(*location, depth + 1)?;
        self.int(crate::model::elements(shape) as i64);
        self.out.extend(b"tQ");
        self.int(0);
        let numbers = |all: &[u64]| NewValue::Tuple(all.iter().map(|n| *n as i64).collect());
        self.plain(&numbers(shape));
        self.plain(&numbers(&crate::model::row_major(shape)));
        for value in rest {
            self.value(*value, depth + 1)?;
        }
        self.out.extend(b"tR");
        Ok(())
    }
}
