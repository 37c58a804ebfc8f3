//! The machine: stack, marks, memo and budget, and the acts that several opcodes share.

mod judging;

use super::danger;
use super::heap::{Call, CallKind, Heap, Object, Use, Value};
use super::{Danger, Odd, Pickle, PickleError};
use crate::limits::Limits;
use crate::raw::shown;
use std::collections::HashMap;

pub(super) type Step<T = ()> = Result<T, PickleError>;

/// Different imported names; real files have some dozens.
const NAMES: usize = 65_536;

/// Bytes of an imported module or name.
const NAME: usize = 512;

/// Dangers kept; one is enough to condemn.
const DANGERS: usize = 32;

/// How an opcode adds elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// APPEND, APPENDS: Python asks for `append`.
    List,
    /// ADDITEMS: Python asks for `add`.
    Set,
}

pub(super) struct Machine<'l> {
    pub(super) heap: Heap,
    pub(super) at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    far_memo: HashMap<u64, Value>,
    memo_len: u64,
    dangers: Vec<Danger>,
    odd: Vec<Odd>,
    /// Verdict of the list on each imported name.
    rules: Vec<Option<&'static danger::Rule>>,
    op_at: usize,
    spent: usize,
    /// A fault that not every loader stumbles over.
    doubt: Option<(usize, PickleError)>,
    limits: &'l Limits,
}

/// Runs `step`, an opcode at a time, to STOP, the first fault or a limit.
pub(super) fn run(bytes: Vec<u8>, limits: &Limits, step: impl Fn(&mut Machine<'_>) -> Step<Option<Value>>) -> Pickle {
    let mut m = Machine {
        heap: Heap::new(bytes),
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        far_memo: HashMap::new(),
        memo_len: 0,
        dangers: Vec::new(),
        odd: Vec::new(),
        rules: Vec::new(),
        op_at: 0,
        spent: 0,
        doubt: None,
        limits,
    };
    let mut opcodes = 0;
    let (root, error) = loop {
        m.op_at = m.at;
        if opcodes == limits.pickle_opcodes {
            break (None, Some(PickleError::TooLong(opcodes)));
        }
        opcodes += 1;
        match step(&mut m) {
            Ok(None) => {}
            Ok(Some(root)) => break (Some(root), None),
            Err(e) => break (None, Some(e)),
        }
    };
    let error = error.map(|e| (m.op_at, e)).or(m.doubt).map(|(at, e)| (at as u64, e));
    Pickle {
        heap: m.heap,
        root: root.filter(|_| error.is_none()),
        error,
        dangers: m.dangers,
        odd: m.odd,
        used: m.at,
    }
}

impl Machine<'_> {
    pub(super) fn danger(&mut self, what: impl Into<String>) {
        if self.dangers.len() < DANGERS {
            self.dangers.push(Danger {
                at: self.op_at as u64,
                what: what.into(),
            });
        }
    }

    /// Goes on, but the pickle is not sound.
    pub(super) fn doubt(&mut self, fault: PickleError) {
        self.doubt.get_or_insert((self.op_at, fault));
    }

    /// Charges memory to the budget.
    fn spend(&mut self, bytes: usize) -> Step {
        self.spent = self.spent.saturating_add(bytes);
        self.fits()
    }

    /// Input, values and stacks together.
    fn fits(&mut self) -> Step {
        self.has_room(0)
    }

    /// There is room for so many bytes more, which are needed for a moment.
    fn has_room(&mut self, more: usize) -> Step {
        let stacks = self.stack.capacity() * size_of::<Value>() + self.marks.capacity() * size_of::<usize>();
        let held = self.limits.held + self.heap.places() + self.heap.texts();
        let taken = held.saturating_add(self.spent).saturating_add(stacks);
        self.heap.take(taken);
        match taken.saturating_add(more) {
            all if all > self.limits.memory => Err(self.too_big(all)),
            _ => Ok(()),
        }
    }

    /// Memory that the whole pickle would need, if the rest is like what was read.
    fn too_big(&self, taken: usize) -> PickleError {
        let (read, all) = (self.at.max(1) as u128, self.heap.input().len() as u128);
        let values = taken.saturating_sub(self.heap.input().len()) as u128;
        let need = all + values * all / read;
        PickleError::TooBig {
            need: usize::try_from(need).unwrap_or(usize::MAX),
            limit: self.limits.memory,
        }
    }

    pub(super) fn push(&mut self, value: Value) -> Step {
        // The stack grows by doubling, so it is looked at where it does.
        if self.stack.len() == self.stack.capacity() {
            self.has_room(self.stack.capacity() * size_of::<Value>())?;
        }
        self.stack.push(value);
        Ok(())
    }

    pub(super) fn push_object(&mut self, object: Object) -> Step {
        self.spent = self.spent.saturating_add(Heap::weight(&object));
        self.has_room(self.heap.growth())?;
        let value = self
            .heap
            .add(object)
            .ok_or(PickleError::BadArgument("more than four thousand million values"))?;
        self.push(value)
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn pop(&mut self) -> Step<Value> {
        if self.stack.len() <= self.floor() {
            return Err(PickleError::Underflow);
        }
        self.stack.pop().ok_or(PickleError::Underflow)
    }

    /// POP: drops a value, or a mark that lies on top.
    pub(super) fn drop_top(&mut self) -> Step {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    pub(super) fn top(&self) -> Step<Value> {
        if self.stack.len() <= self.floor() {
            return Err(PickleError::Underflow);
        }
        self.stack.last().copied().ok_or(PickleError::Underflow)
    }

    pub(super) fn mark(&mut self) -> Step {
        if self.marks.len() == self.marks.capacity() {
            self.has_room(self.marks.capacity() * size_of::<usize>())?;
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Takes everything above the last mark.
    pub(super) fn pop_mark(&mut self) -> Step<Vec<Value>> {
        let at = self.marks.pop().ok_or(PickleError::Underflow)?;
        let count = self.stack.len().checked_sub(at).ok_or(PickleError::Underflow)?;
        // They stand in the stack, apart from it, and in what they become.
        self.has_room(2 * count * size_of::<Value>())?;
        Ok(self.stack.split_off(at))
    }

    pub(super) fn pop_pairs(&mut self) -> Step<Vec<(Value, Value)>> {
        let items = self.pop_mark()?;
        if !items.len().is_multiple_of(2) {
            return Err(PickleError::BadArgument("an odd number of keys and values"));
        }
        Ok(items.chunks_exact(2).map(|p| (p[0], p[1])).collect())
    }

    pub(super) fn store(&mut self, slot: u64) -> Step {
        let value = self.top()?;
        let near = usize::try_from(slot).ok().filter(|s| *s <= self.memo.len() + 1024);
        let old = match near {
            Some(s) => {
                if s >= self.memo.len() {
                    let before = self.memo.capacity();
                    if s >= before {
                        let more = (s + 1).max(2 * before) - before;
                        self.spend(more * size_of::<Option<Value>>())?;
                        self.memo.reserve_exact(before + more - self.memo.len());
                    }
                    self.memo.resize(s + 1, None);
                }
                let before = self.memo[s].replace(value);
                match self.far_memo.is_empty() {
                    true => before,
                    false => before.or_else(|| self.far_memo.remove(&slot)),
                }
            }
            None => {
                self.spend(4 * size_of::<Value>())?;
                self.far_memo.insert(slot, value)
            }
        };
        self.memo_len += u64::from(old.is_none());
        Ok(())
    }

    /// MEMOIZE: the next slot is the number of slots filled.
    pub(super) fn memoize(&mut self) -> Step {
        self.store(self.memo_len)
    }

    pub(super) fn recall(&mut self, slot: u64) -> Step {
        let near = usize::try_from(slot)
            .ok()
            .and_then(|s| self.memo.get(s).copied().flatten());
        let value = near
            .or_else(|| self.far_memo.get(&slot).copied())
            .ok_or(PickleError::NoMemo(slot))?;
        self.push(value)
    }

    pub(super) fn import(&mut self, module: String, name: String) -> Step {
        self.spend(2 * (module.len() + name.len()) + 128)?;
        if module.len().max(name.len()) > NAME {
            return self.too_long();
        }
        let rule = danger::rule(&module, &name);
        let value = self.heap.import(module, name, self.op_at as u64);
        if self.heap.globals().len() > self.rules.len() {
            self.rules.push(rule);
        }
        if self.heap.globals().len() > NAMES {
            return Err(PickleError::TooManyNames(NAMES));
        }
        self.push(value)
    }

    fn too_long(&mut self) -> Step {
        self.danger("import a name that is longer than any");
        Err(PickleError::BadArgument("a name that is longer than any"))
    }

    /// STACK_GLOBAL: module and name come from the stack and must be plain strings.
    pub(super) fn import_from_stack(&mut self) -> Step {
        let (name, module) = (self.pop()?, self.pop()?);
        if [name, module]
            .iter()
            .any(|v| matches!(v, Value::Str(t) if t.len() > NAME))
        {
            return self.too_long();
        }
        match (self.heap.str(module), self.heap.str(name)) {
            (Some(module), Some(name)) => {
                let (module, name) = (module.into_owned(), name.into_owned());
                self.import(module, name)
            }
            _ => {
                self.danger("import a name that it computes");
                Err(PickleError::BadArgument("an import whose name is no string"))
            }
        }
    }

    pub(super) fn call(&mut self, kind: CallKind, callee: Value, args: Value, kwargs: Option<Value>) -> Step {
        if let Some((module, name)) = self.nested_class(callee, args).filter(|_| kind == CallKind::Reduce) {
            return self.import(module, name);
        }
        if kind == CallKind::Reduce && self.is_storage(callee, args) {
            // Nothing that a pickle writes has this form: a call of what is no name is dangerous.
            let storage = Call::new(kind, Value::None, args, kwargs);
            return self.push_object(Object::Call(Box::new(storage)));
        }
        let usage = match kind {
            CallKind::New | CallKind::NewEx => Use::Made,
            CallKind::Reduce | CallKind::Instance => Use::Called,
        };
        self.judge_callee(callee, args, usage);
        if let Some((id, rule)) = self.ruled(callee)
            && !danger::is_usual(&self.heap, rule, usage == Use::Made, args, kwargs)
        {
            self.odd(id, "calls it with other arguments than real writers do");
        }
        self.judge_elements(callee, args);
        let call = Call::new(kind, callee, args, kwargs);
        self.push_object(Object::Call(Box::new(call)))
    }

    /// BUILD: state for the object on top.
    pub(super) fn build(&mut self, state: Value) -> Step {
        let target = self.top()?;
        self.judge_state(state, self.ruled_target(target).is_some());
        if let Some((id, rule)) = self.ruled_target(target)
            && !danger::is_usual_state(&self.heap, rule, state)
        {
            self.odd(id, "gives it another state than real writers do");
        }
        if self.heap.is_exhausted() {
            return Err(PickleError::TooMuchWork);
        }
        let object = match target {
            Value::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(Object::Call(call)) => {
                // A second state replaces what later readers see, never the record of the first call.
                call.state = Some(state);
            }
            Some(_) => {
                return Err(PickleError::BadArgument("state for something that has none"));
            }
            None => self.changes_import(target, "state")?,
        }
        Ok(())
    }

    pub(super) fn append(&mut self, mut items: Vec<Value>, growth: Growth) -> Step {
        let target = self.top()?;
        if growth == Growth::Set && matches!(self.heap.object(target), Some(Object::Set(_))) {
            self.judge_keys(items.iter().copied());
        }
        self.spend(2 * items.len() * size_of::<Value>())?;
        self.judge_growth(target, false);
        let object = match target {
            Value::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(Object::List(list)) if growth == Growth::List => list.append(&mut items),
            Some(Object::Set(list)) if growth == Growth::Set => list.append(&mut items),
            // Python looks at nothing where there is nothing to add.
            Some(Object::List(_) | Object::Set(_)) if items.is_empty() => {}
            Some(Object::Call(call)) => call.items_mut().append(&mut items),
            Some(_) => {
                return Err(PickleError::BadArgument("appending to something that cannot take it"));
            }
            None => self.changes_import(target, "elements")?,
        }
        Ok(())
    }

    pub(super) fn set_items(&mut self, mut pairs: Vec<(Value, Value)>) -> Step {
        let target = self.top()?;
        self.spend(4 * pairs.len() * size_of::<Value>())?;
        self.judge_growth(target, true);
        if matches!(self.heap.object(target), Some(Object::Dict(_))) || self.heap.is_dict_call(target) {
            self.judge_keys(pairs.iter().map(|(key, _)| *key));
        }
        let object = match target {
            Value::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(Object::Dict(dict)) => dict.append(&mut pairs),
            Some(Object::Call(call)) => call.pairs_mut().append(&mut pairs),
            Some(Object::List(list)) => {
                for (key, value) in pairs {
                    let at = self_index(key, list.len());
                    let slot = at
                        .and_then(|i| list.get_mut(i))
                        .ok_or(PickleError::BadArgument("an index outside its list"))?;
                    *slot = value;
                }
            }
            Some(_) => {
                return Err(PickleError::BadArgument("setting items of something that is no dict"));
            }
            None => self.changes_import(target, "items")?,
        }
        Ok(())
    }

    /// An imported module, class or function would be changed for the whole process.
    fn changes_import(&mut self, target: Value, what: &str) -> Step {
        let Some(g) = self.heap.global(target) else {
            return Err(PickleError::BadArgument("changing a value that cannot change"));
        };
        let name = format!("{}.{}", shown(&g.module), shown(&g.name));
        self.danger(format!("change {name} itself by setting its {what}"));
        Ok(())
    }
}

fn self_index(key: Value, len: usize) -> Option<usize> {
    match key {
        Value::Int(i) if i < 0 => len.checked_sub(usize::try_from(i.unsigned_abs()).ok()?),
        Value::Int(i) => usize::try_from(i).ok(),
        _ => None,
    }
}
