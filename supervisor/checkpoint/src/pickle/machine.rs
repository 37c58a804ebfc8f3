//! The pickle machine: stack, marks, memo and budget, and the operations that several opcodes share.

mod judging;

use super::danger;
use super::heap::{CallKind, GlobalUse, PickleCall, PickleHeap, PickleObject, PickleValue};
use super::{OddUse, ParsedPickle, PickleDanger, PickleError};
use crate::limits::InspectLimits;
use crate::raw::shown;
use std::collections::HashMap;

pub(super) type OpResult<T = ()> = Result<T, PickleError>;

/// The most different imported names; real files have some dozens.
const NAMES: usize = 65_536;

/// Longest imported module or name, in bytes.
const NAME: usize = 512;

/// Dangers kept; one is enough to reject the file.
const DANGERS: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// APPEND, APPENDS: Python asks for `append`.
    List,
    /// ADDITEMS: Python asks for `add`.
    Set,
}

pub(super) struct PickleMachine<'l> {
    pub(super) heap: PickleHeap,
    pub(super) at: usize,
    stack: Vec<PickleValue>,
    marks: Vec<usize>,
    memo: Vec<Option<PickleValue>>,
    far_memo: HashMap<u64, PickleValue>,
    memo_len: u64,
    dangers: Vec<PickleDanger>,
    odd: Vec<OddUse>,
    rules: Vec<Option<&'static danger::GlobalRule>>,
    op_at: usize,
    spent: usize,
    /// A fault that not every loader rejects.
    doubt: Option<(usize, PickleError)>,
    limits: &'l InspectLimits,
}

/// Runs `step`, one opcode at a time, to STOP, the first fault or a limit.
pub(super) fn run(
    bytes: Vec<u8>,
    limits: &InspectLimits,
    step: impl Fn(&mut PickleMachine<'_>) -> OpResult<Option<PickleValue>>,
) -> ParsedPickle {
    let mut m = PickleMachine {
        heap: PickleHeap::new(bytes),
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
    ParsedPickle {
        heap: m.heap,
        root: root.filter(|_| error.is_none()),
        error,
        dangers: m.dangers,
        odd: m.odd,
        used: m.at,
    }
}

impl PickleMachine<'_> {
    pub(super) fn danger(&mut self, what: impl Into<String>) {
        if self.dangers.len() < DANGERS {
            self.dangers.push(PickleDanger {
                at: self.op_at as u64,
                what: what.into(),
            });
        }
    }

    /// Continues, but marks the pickle as faulty.
    pub(super) fn doubt(&mut self, fault: PickleError) {
        self.doubt.get_or_insert((self.op_at, fault));
    }

    fn spend(&mut self, bytes: usize) -> OpResult {
        self.spent = self.spent.saturating_add(bytes);
        self.fits()
    }

    fn fits(&mut self) -> OpResult {
        self.has_room(0)
    }

    /// Checks that this many more bytes are available, which are needed briefly.
    fn has_room(&mut self, more: usize) -> OpResult {
        let stacks = self.stack.capacity() * size_of::<PickleValue>() + self.marks.capacity() * size_of::<usize>();
        let held = self.limits.held + self.heap.places() + self.heap.texts();
        let taken = held.saturating_add(self.spent).saturating_add(stacks);
        self.heap.take(taken);
        match taken.saturating_add(more) {
            all if all > self.limits.memory => Err(self.too_big(all)),
            _ => Ok(()),
        }
    }

    /// Estimates the memory for the whole pickle, assuming that the rest is like the part already read.
    fn too_big(&self, taken: usize) -> PickleError {
        let (read, all) = (self.at.max(1) as u128, self.heap.input().len() as u128);
        let values = taken.saturating_sub(self.heap.input().len()) as u128;
        let need = all + values * all / read;
        PickleError::TooBig {
            need: usize::try_from(need).unwrap_or(usize::MAX),
            limit: self.limits.memory,
        }
    }

    pub(super) fn push(&mut self, value: PickleValue) -> OpResult {
        // The stack grows by doubling, so it is checked only then.
        if self.stack.len() == self.stack.capacity() {
            self.has_room(self.stack.capacity() * size_of::<PickleValue>())?;
        }
        self.stack.push(value);
        Ok(())
    }

    pub(super) fn push_object(&mut self, object: PickleObject) -> OpResult {
        self.spent = self.spent.saturating_add(PickleHeap::weight(&object));
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

    pub(super) fn pop(&mut self) -> OpResult<PickleValue> {
        if self.stack.len() <= self.floor() {
            return Err(PickleError::Underflow);
        }
        self.stack.pop().ok_or(PickleError::Underflow)
    }

    /// POP: drops a value, or a mark on top of the stack.
    pub(super) fn drop_top(&mut self) -> OpResult {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    pub(super) fn top(&self) -> OpResult<PickleValue> {
        if self.stack.len() <= self.floor() {
            return Err(PickleError::Underflow);
        }
        self.stack.last().copied().ok_or(PickleError::Underflow)
    }

    pub(super) fn mark(&mut self) -> OpResult {
        if self.marks.len() == self.marks.capacity() {
            self.has_room(self.marks.capacity() * size_of::<usize>())?;
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    pub(super) fn pop_mark(&mut self) -> OpResult<Vec<PickleValue>> {
        let at = self.marks.pop().ok_or(PickleError::Underflow)?;
        let count = self.stack.len().checked_sub(at).ok_or(PickleError::Underflow)?;
        // They are in the stack, in the split-off copy, and in the new value.
        self.has_room(2 * count * size_of::<PickleValue>())?;
        Ok(self.stack.split_off(at))
    }

    pub(super) fn pop_pairs(&mut self) -> OpResult<Vec<(PickleValue, PickleValue)>> {
        let items = self.pop_mark()?;
        if !items.len().is_multiple_of(2) {
            return Err(PickleError::BadArgument("an odd number of keys and values"));
        }
        Ok(items.chunks_exact(2).map(|p| (p[0], p[1])).collect())
    }

    pub(super) fn store(&mut self, slot: u64) -> OpResult {
        let value = self.top()?;
        let near = usize::try_from(slot).ok().filter(|s| *s <= self.memo.len() + 1024);
        let old = match near {
            Some(s) => {
                if s >= self.memo.len() {
                    let before = self.memo.capacity();
                    if s >= before {
                        let more = (s + 1).max(2 * before) - before;
                        self.spend(more * size_of::<Option<PickleValue>>())?;
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
                self.spend(4 * size_of::<PickleValue>())?;
                self.far_memo.insert(slot, value)
            }
        };
        self.memo_len += u64::from(old.is_none());
        Ok(())
    }

    /// MEMOIZE: the next slot is the number of filled slots.
    pub(super) fn memoize(&mut self) -> OpResult {
        self.store(self.memo_len)
    }

    pub(super) fn recall(&mut self, slot: u64) -> OpResult {
        let near = usize::try_from(slot)
            .ok()
            .and_then(|s| self.memo.get(s).copied().flatten());
        let value = near
            .or_else(|| self.far_memo.get(&slot).copied())
            .ok_or(PickleError::NoMemo(slot))?;
        self.push(value)
    }

    pub(super) fn import(&mut self, module: String, name: String) -> OpResult {
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

    fn too_long(&mut self) -> OpResult {
        self.danger("import a name that is longer than any");
        Err(PickleError::BadArgument("a name that is longer than any"))
    }

    /// STACK_GLOBAL: module and name come from the stack and must be plain strings.
    pub(super) fn import_from_stack(&mut self) -> OpResult {
        let (name, module) = (self.pop()?, self.pop()?);
        if [name, module]
            .iter()
            .any(|v| matches!(v, PickleValue::Str(t) if t.len() > NAME))
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

    pub(super) fn call(
        &mut self,
        kind: CallKind,
        callee: PickleValue,
        args: PickleValue,
        kwargs: Option<PickleValue>,
    ) -> OpResult {
        if let Some((module, name)) = self.nested_class(callee, args).filter(|_| kind == CallKind::Reduce) {
            return self.import(module, name);
        }
        if kind == CallKind::Reduce && self.is_storage(callee, args) {
            // No opcode writes this form: calling something that is not a name is dangerous.
            let storage = PickleCall::new(kind, PickleValue::None, args, kwargs);
            return self.push_object(PickleObject::Call(Box::new(storage)));
        }
        let usage = match kind {
            CallKind::New | CallKind::NewEx => GlobalUse::Made,
            CallKind::Reduce | CallKind::Instance => GlobalUse::Called,
        };
        self.judge_callee(callee, args, usage);
        if let Some((id, rule)) = self.ruled(callee)
            && !danger::is_usual(&self.heap, rule, usage == GlobalUse::Made, args, kwargs)
        {
            self.odd(id, "calls it with other arguments than real writers do");
        }
        self.judge_elements(callee, args);
        let call = PickleCall::new(kind, callee, args, kwargs);
        self.push_object(PickleObject::Call(Box::new(call)))
    }

    /// BUILD: sets the state of the object on top.
    pub(super) fn build(&mut self, state: PickleValue) -> OpResult {
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
            PickleValue::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(PickleObject::Call(call)) => {
                // A second state replaces what later readers see, but not the record of the call.
                call.state = Some(state);
            }
            Some(_) => {
                return Err(PickleError::BadArgument("state for something that has none"));
            }
            None => self.changes_import(target, "state")?,
        }
        Ok(())
    }

    pub(super) fn append(&mut self, mut items: Vec<PickleValue>, growth: Growth) -> OpResult {
        let target = self.top()?;
        if growth == Growth::Set && matches!(self.heap.object(target), Some(PickleObject::Set(_))) {
            self.judge_keys(items.iter().copied());
        }
        self.spend(2 * items.len() * size_of::<PickleValue>())?;
        self.judge_growth(target, false);
        let object = match target {
            PickleValue::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(PickleObject::List(list)) if growth == Growth::List => list.append(&mut items),
            Some(PickleObject::Set(list)) if growth == Growth::Set => list.append(&mut items),
            // Python checks nothing if there is nothing to add.
            Some(PickleObject::List(_) | PickleObject::Set(_)) if items.is_empty() => {}
            Some(PickleObject::Call(call)) => call.items_mut().append(&mut items),
            Some(_) => {
                return Err(PickleError::BadArgument("appending to something that cannot take it"));
            }
            None => self.changes_import(target, "elements")?,
        }
        Ok(())
    }

    pub(super) fn set_items(&mut self, mut pairs: Vec<(PickleValue, PickleValue)>) -> OpResult {
        let target = self.top()?;
        self.spend(4 * pairs.len() * size_of::<PickleValue>())?;
        self.judge_growth(target, true);
        if matches!(self.heap.object(target), Some(PickleObject::Dict(_))) || self.heap.is_dict_call(target) {
            self.judge_keys(pairs.iter().map(|(key, _)| *key));
        }
        let object = match target {
            PickleValue::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(PickleObject::Dict(dict)) => dict.append(&mut pairs),
            Some(PickleObject::Call(call)) => call.pairs_mut().append(&mut pairs),
            Some(PickleObject::List(list)) => {
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

    /// Reports a change to an imported module, class or function, which affects the whole process.
    fn changes_import(&mut self, target: PickleValue, what: &str) -> OpResult {
        let Some(g) = self.heap.global(target) else {
            return Err(PickleError::BadArgument("changing a value that cannot change"));
        };
        let name = format!("{}.{}", shown(&g.module), shown(&g.name));
        self.danger(format!("change {name} itself by setting its {what}"));
        Ok(())
    }
}

fn self_index(key: PickleValue, len: usize) -> Option<usize> {
    match key {
        PickleValue::Int(i) if i < 0 => len.checked_sub(usize::try_from(i.unsigned_abs()).ok()?),
        PickleValue::Int(i) => usize::try_from(i).ok(),
        _ => None,
    }
}
