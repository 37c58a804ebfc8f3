//! The pickle inside a torch file: protocol 2, no memo, tensors by
//! `torch._utils._rebuild_tensor_v2` over persistent storage ids.

use super::{Storage, Tensor, TorchFileError, Value};

pub(super) fn encode<'a>(value: &'a Value, storages: &mut Vec<&'a Storage>) -> Vec<u8> {
    let mut out = vec![0x80, 2];
    put(&mut out, value, storages);
    out.push(b'.');
    out
}

fn put<'a>(out: &mut Vec<u8>, value: &'a Value, storages: &mut Vec<&'a Storage>) {
    match value {
        Value::None => out.push(b'N'),
        Value::Bool(yes) => out.push(if *yes { 0x88 } else { 0x89 }),
        Value::Int(n) => put_int(out, *n),
        Value::Float(x) => {
            out.push(b'G');
            out.extend_from_slice(&x.to_be_bytes());
        }
        Value::Str(s) => put_str(out, s),
        Value::List(items) => {
            out.extend_from_slice(b"](");
            items.iter().for_each(|item| put(out, item, storages));
            out.push(b'e');
        }
        Value::Tuple(items) => {
            out.push(b'(');
            items.iter().for_each(|item| put(out, item, storages));
            out.push(b't');
        }
        Value::Dict(items) => {
            out.push(b'}');
            put_items(out, items, storages);
        }
        Value::Ordered(items) => {
            out.extend_from_slice(b"ccollections\nOrderedDict\n)R");
            put_items(out, items, storages);
        }
        Value::Tensor(tensor) => put_tensor(out, tensor, storages),
        Value::Object(module, name) => {
            out.extend_from_slice(format!("c{module}\n{name}\n)").as_bytes());
            out.push(0x81);
        }
    }
}

fn put_items<'a>(out: &mut Vec<u8>, items: &'a [(Value, Value)], storages: &mut Vec<&'a Storage>) {
    out.push(b'(');
    for (key, value) in items {
        put(out, key, storages);
        put(out, value, storages);
    }
    out.push(b'u');
}

fn put_int(out: &mut Vec<u8>, n: i64) {
    if let Ok(small) = i32::try_from(n) {
        out.push(b'J');
        out.extend_from_slice(&small.to_le_bytes());
    } else {
        out.extend_from_slice(&[0x8a, 8]);
        out.extend_from_slice(&n.to_le_bytes());
    }
}

fn put_str(out: &mut Vec<u8>, s: &str) {
    out.push(b'X');
    out.extend_from_slice(&(s.len() as u32).to_le_bytes());
    out.extend_from_slice(s.as_bytes());
}

fn put_tensor<'a>(out: &mut Vec<u8>, tensor: &'a Tensor, storages: &mut Vec<&'a Storage>) {
    out.extend_from_slice(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    put_str(out, "storage");
    out.extend_from_slice(format!("ctorch\n{}\n", tensor.storage.class()).as_bytes());
    put_str(out, &storages.len().to_string());
    put_str(out, "cpu");
    put_int(out, tensor.storage.len() as i64);
    out.extend_from_slice(b"tQ");
    put_int(out, 0);
    out.push(b'(');
    tensor.shape.iter().for_each(|n| put_int(out, *n as i64));
    out.extend_from_slice(b"t(");
    for dimension in 0..tensor.shape.len() {
        let stride: usize = tensor.shape[dimension + 1..].iter().product();
        put_int(out, stride as i64);
    }
    out.extend_from_slice(b"t\x89ccollections\nOrderedDict\n)RtR");
    storages.push(&tensor.storage);
}

/// Content of the machine's stack: values, marks, and things on the way to becoming values.
enum Item {
    Value(Value),
    Mark,
    Global(String),
    Storage(Storage),
    /// The arguments of a tensor, where a tuple holds more than values.
    Arguments(Vec<Item>),
}

struct Machine<'a, F> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Item>,
    load: F,
}

pub(super) fn decode<F>(bytes: &[u8], load: F) -> Result<Value, TorchFileError>
where
    F: FnMut(&str, &str, usize) -> Result<Storage, TorchFileError>,
{
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        load,
    };
    loop {
        let at = machine.at;
        match machine.step()? {
            Some(true) => {}
            Some(false) => match (machine.stack.pop(), machine.stack.is_empty()) {
                (Some(Item::Value(value)), true) => return Ok(value),
                _ => return Err(TorchFileError::Pickle(at)),
            },
            None => return Err(TorchFileError::Pickle(at)),
        }
    }
}

impl<F> Machine<'_, F>
where
    F: FnMut(&str, &str, usize) -> Result<Storage, TorchFileError>,
{
    /// Runs one opcode: `Some(false)` at the end, `None` where the bytes make no sense.
    fn step(&mut self) -> Result<Option<bool>, TorchFileError> {
        if self.bytes.get(self.at) == Some(&b'Q') {
            self.at += 1;
            return self.load_storage();
        }
        Ok(self.simple_step())
    }

    fn simple_step(&mut self) -> Option<bool> {
        let code = self.take::<1>()?[0];
        match code {
            0x80 => (self.take::<1>()?[0] == 2).then_some(())?,
            b'.' => return Some(false),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' => {
                let n = i32::from_le_bytes(self.take()?);
                self.push(Value::Int(n.into()));
            }
            0x8a => {
                (self.take::<1>()?[0] == 8).then_some(())?;
                let n = i64::from_le_bytes(self.take()?);
                self.push(Value::Int(n));
            }
            b'G' => {
                let x = f64::from_be_bytes(self.take()?);
                self.push(Value::Float(x));
            }
            b'X' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                let text = self.bytes.get(self.at..self.at.checked_add(length)?)?;
                self.at += length;
                self.push(Value::Str(String::from_utf8(text.to_vec()).ok()?));
            }
            b'c' => {
                let name = format!("{}.{}", self.line()?, self.line()?);
                self.stack.push(Item::Global(name));
            }
            b'(' => self.stack.push(Item::Mark),
            b')' => self.push(Value::Tuple(vec![])),
            b']' => self.push(Value::List(vec![])),
            b'}' => self.push(Value::Dict(vec![])),
            b't' => self.tuple()?,
            b'e' => self.append()?,
            b'u' => self.set_items()?,
            b'R' => self.reduce()?,
            _ => return None,
        }
        Some(true)
    }

    fn push(&mut self, value: Value) {
        self.stack.push(Item::Value(value));
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(bytes)
    }

    fn line(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|b| *b == b'\n')?;
        self.at += length + 1;
        String::from_utf8(rest[..length].to_vec()).ok()
    }

    /// Everything above the last mark, the mark removed.
    fn above_mark(&mut self) -> Option<Vec<Item>> {
        let mark = self.stack.iter().rposition(|i| matches!(i, Item::Mark))?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(items)
    }

    fn values_above_mark(&mut self) -> Option<Vec<Value>> {
        self.above_mark()?.into_iter().map(Item::into_value).collect()
    }

    fn tuple(&mut self) -> Option<()> {
        let items = self.above_mark()?;
        let plain = items.iter().all(|i| matches!(i, Item::Value(_)));
        self.stack.push(if plain {
            Item::Value(Value::Tuple(items.into_iter().filter_map(Item::into_value).collect()))
        } else {
            Item::Arguments(items)
        });
        Some(())
    }

    fn append(&mut self) -> Option<()> {
        let values = self.values_above_mark()?;
        match self.stack.last_mut()? {
            Item::Value(Value::List(list)) => list.extend(values),
            _ => return None,
        }
        Some(())
    }

    fn set_items(&mut self) -> Option<()> {
        let values = self.values_above_mark()?;
        let (Item::Value(Value::Dict(items)) | Item::Value(Value::Ordered(items))) = self.stack.last_mut()? else {
            return None;
        };
        let mut values = values.into_iter();
        while let Some(key) = values.next() {
            items.push((key, values.next()?));
        }
        Some(())
    }

    fn reduce(&mut self) -> Option<()> {
        let arguments = self.stack.pop()?;
        let Item::Global(name) = self.stack.pop()? else {
            return None;
        };
        let value = match (name.as_str(), arguments) {
            ("collections.OrderedDict", Item::Value(Value::Tuple(empty))) if empty.is_empty() => Value::Ordered(vec![]),
            ("torch._utils._rebuild_tensor_v2", Item::Arguments(arguments)) => tensor(arguments)?,
            _ => return None,
        };
        self.push(value);
        Some(())
    }

    fn load_storage(&mut self) -> Result<Option<bool>, TorchFileError> {
        let Some(Item::Arguments(id)) = self.stack.pop() else {
            return Ok(None);
        };
        let [
            Item::Value(Value::Str(_)),
            Item::Global(class),
            Item::Value(Value::Str(key)),
            Item::Value(Value::Str(_)),
            Item::Value(Value::Int(length)),
        ] = &id[..]
        else {
            return Ok(None);
        };
        let Some(class) = class.strip_prefix("torch.") else {
            return Ok(None);
        };
        let Ok(length) = usize::try_from(*length) else {
            return Ok(None);
        };
        let storage = (self.load)(key, class, length)?;
        self.stack.push(Item::Storage(storage));
        Ok(Some(true))
    }
}

impl Item {
    fn into_value(self) -> Option<Value> {
        match self {
            Item::Value(value) => Some(value),
            _ => None,
        }
    }
}

fn tensor(arguments: Vec<Item>) -> Option<Value> {
    let mut arguments = arguments.into_iter();
    let (Some(Item::Storage(storage)), Some(_offset), Some(Item::Value(Value::Tuple(sizes)))) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return None;
    };
    let shape: Option<Vec<usize>> = sizes
        .iter()
        .map(|n| n.as_int().and_then(|n| usize::try_from(n).ok()))
        .collect();
    Some(Value::Tensor(Tensor { shape: shape?, storage }))
}
