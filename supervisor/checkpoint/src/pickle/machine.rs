//! The machine: stack, marks, memo and budget, and the acts that several opcodes share.

use super::danger::{self, Use};
use super::heap::{Call, CallKind, Heap, Object, Value};
use super::{Danger, Pickle, PickleError, ops, shown};
use crate::limits::Limits;
use std::collections::HashMap;

pub(super) type Step<T = ()> = Result<T, PickleError>;

/// Different imported names; real files have some dozens.
const NAMES: usize = 65_536;

/// Arguments of a rebuilding function that are looked at.
const GIVEN: usize = 64;

/// Dangers kept; one is enough to condemn.
const DANGERS: usize = 32;

pub(super) struct Machine<'l> {
    pub(super) heap: Heap,
    pub(super) at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    far_memo: HashMap<u64, Value>,
    memo_len: u64,
    dangers: Vec<Danger>,
    op_at: usize,
    spent: usize,
    /// A fault that not every loader stumbles over.
    doubt: Option<(usize, PickleError)>,
    limits: &'l Limits,
}

/// Runs to STOP, the first fault or a limit.
pub(super) fn run(bytes: Vec<u8>, limits: &Limits) -> Pickle {
    let mut m = Machine {
        heap: Heap::new(bytes),
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        far_memo: HashMap::new(),
        memo_len: 0,
        dangers: Vec::new(),
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
        match ops::step(&mut m) {
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
        if self.spent > self.limits.pickle_memory {
            Err(PickleError::TooBig(self.limits.pickle_memory))
        } else {
            Ok(())
        }
    }

    /// The stacks may take as much again as the values.
    fn fits(&self, bytes: usize) -> Step {
        if bytes > self.limits.pickle_memory {
            Err(PickleError::TooBig(self.limits.pickle_memory))
        } else {
            Ok(())
        }
    }

    pub(super) fn push(&mut self, value: Value) -> Step {
        self.stack.push(value);
        self.fits(self.stack.len() * size_of::<Value>())
    }

    pub(super) fn push_object(&mut self, object: Object) -> Step {
        self.spend(Heap::weight(&object))?;
        let value = self
            .heap
            .add(object)
            .ok_or(PickleError::TooBig(self.limits.pickle_memory))?;
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
        self.marks.push(self.stack.len());
        self.fits(self.marks.len() * size_of::<usize>())
    }

    /// Takes everything above the last mark.
    pub(super) fn pop_mark(&mut self) -> Step<Vec<Value>> {
        let at = self.marks.pop().ok_or(PickleError::Underflow)?;
        if at > self.stack.len() {
            return Err(PickleError::Underflow);
        }
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
                    self.spend((s + 1 - self.memo.len()) * size_of::<Value>())?;
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
        let value = self.heap.import(module, name, self.op_at as u64);
        if self.heap.globals().len() > NAMES {
            return Err(PickleError::TooManyNames(NAMES));
        }
        self.push(value)
    }

    /// STACK_GLOBAL: module and name come from the stack and must be plain strings.
    pub(super) fn import_from_stack(&mut self) -> Step {
        let (name, module) = (self.pop()?, self.pop()?);
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
        let usage = match kind {
            CallKind::New | CallKind::NewEx => Use::Made,
            CallKind::Reduce | CallKind::Instance => Use::Called,
        };
        self.judge_callee(callee, args, usage);
        let call = Call::new(kind, callee, args, kwargs);
        self.push_object(Object::Call(Box::new(call)))
    }

    /// `getattr(Outer, "Inner")` is how protocols before 4 name a class inside a class (torch does so in FSDP1
    /// shards) or a member of an enum; it is read as the import it stands for. Anything else that is done with
    /// `getattr` stays a call.
    fn nested_class(&self, callee: Value, args: Value) -> Option<(String, String)> {
        self.heap
            .global(callee)
            .filter(|g| danger::is_getattr(&g.module, &g.name))?;
        let [owner, name] = *self.heap.items(args)? else {
            return None;
        };
        let (owner, name) = (self.heap.global(owner)?, self.heap.str(name)?);
        let sound = danger::is_class_name(&owner.name) && danger::is_public(&name);
        sound.then(|| (owner.module.clone(), format!("{}.{name}", owner.name)))
    }

    /// Only an imported name may be called; what a rebuilding function calls for us must be one, too.
    fn judge_callee(&mut self, callee: Value, args: Value, usage: Use) {
        let Value::Global(id) = callee else {
            self.danger("call something that it computes");
            return;
        };
        self.heap.mark(id, usage);
        let Some(g) = self.heap.global(callee) else {
            return;
        };
        // By name alone: torch knows some of its modules under older names, too.
        let calls_first = matches!(
            g.name.as_str(),
            "_rebuild_from_type_v2" | "_reconstructor" | "_reconstruct" | "defaultdict"
        );
        if !calls_first && !danger::is_rebuilder(&g.name) {
            return;
        }
        let args: Vec<Value> = self
            .heap
            .items(args)
            .unwrap_or_default()
            .iter()
            .take(GIVEN)
            .copied()
            .collect();
        for arg in &args {
            if let Value::Global(inner) = *arg {
                self.heap.mark(inner, Use::Called);
            }
        }
        if calls_first && !matches!(args.first(), None | Some(Value::Global(_) | Value::None)) {
            self.danger("let torch call something that it computes");
        }
    }

    /// BUILD: state for the object on top.
    pub(super) fn build(&mut self, state: Value) -> Step {
        let target = self.top()?;
        self.judge_state(state);
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

    /// State becomes attributes, and Python asks the object for some of them by name and calls what it gets.
    fn judge_state(&mut self, state: Value) {
        let parts: Vec<Value> = match self.heap.items(state) {
            Some(parts) => parts.iter().take(2).copied().collect(),
            None => vec![state],
        };
        for part in parts {
            if let Some(call) = self.heap.call(part)
                && self
                    .heap
                    .global(call.callee)
                    .is_some_and(|g| danger::makes_dict(&g.module, &g.name))
                && self.heap.items(call.args).is_some_and(|args| !args.is_empty())
            {
                self.danger("give an object attributes that it computes");
            }
            let pairs = self.heap.pairs(part).unwrap_or_default();
            let name = pairs.iter().find_map(|(key, value)| self.method(*key, *value));
            if let Some(name) = name {
                self.danger(format!("give an object a {} of its own", shown(&name)));
            }
        }
    }

    /// The name under which Python would look for something to call, where a pair puts something there.
    fn method(&self, key: Value, value: Value) -> Option<String> {
        if !matches!(value, Value::Global(_) | Value::Object(_)) {
            return None;
        }
        let name = self.heap.str(key)?;
        (name.starts_with("__") || matches!(name.as_ref(), "append" | "extend" | "add")).then(|| name.into_owned())
    }

    pub(super) fn append(&mut self, mut items: Vec<Value>) -> Step {
        let target = self.top()?;
        self.spend(2 * items.len() * size_of::<Value>())?;
        let object = match target {
            Value::Object(id) => self.heap.object_mut(id),
            _ => None,
        };
        match object {
            Some(Object::List(list) | Object::Set(list)) => list.append(&mut items),
            Some(Object::Call(call)) => call.items_mut().append(&mut items),
            Some(_) => {
                return Err(PickleError::BadArgument("appending to something that is no list"));
            }
            None => self.changes_import(target, "elements")?,
        }
        Ok(())
    }

    pub(super) fn set_items(&mut self, mut pairs: Vec<(Value, Value)>) -> Step {
        let target = self.top()?;
        self.spend(4 * pairs.len() * size_of::<Value>())?;
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
