//! Judges calls, states and contents of objects: usual, odd, or dangerous.

use super::super::danger;
use super::super::heap::{GlobalUse, PickleGlobal, PickleObject, PickleValue};
use super::super::{OddUse, PickleError};
use super::{DANGERS, NAME, PickleMachine};
use crate::raw::shown;

/// The most arguments of a rebuilding function to check.
const GIVEN: usize = 64;

/// The most values to check for hashes per opcode.
const HASHED: usize = 1 << 16;

/// The class of a call's result, if its instances are unhashable.
fn made_without_hash(callee: &PickleGlobal) -> Option<&'static str> {
    let classes: &[&'static str] = match callee.module.as_str() {
        "collections" => &["OrderedDict", "defaultdict", "Counter", "deque"],
        "builtins" | "__builtin__" => &["list", "dict", "set", "bytearray"],
        _ => &[],
    };
    classes.iter().copied().find(|class| *class == callee.name)
}

impl PickleMachine<'_> {
    pub(super) fn ruled(&self, callee: PickleValue) -> Option<(u32, &'static danger::GlobalRule)> {
        let PickleValue::Global(id) = callee else { return None };
        Some((id, (*self.rules.get(id as usize)?)?))
    }

    pub(super) fn ruled_target(&self, target: PickleValue) -> Option<(u32, &'static danger::GlobalRule)> {
        self.ruled(self.heap.call(target)?.callee)
    }

    /// Records an odd use of a listed name; only the first of each name is kept.
    pub(super) fn odd(&mut self, global: u32, what: &'static str) {
        if self.odd.len() < DANGERS && self.odd.iter().all(|o| o.global != global) {
            let at = self.op_at as u64;
            self.odd.push(OddUse { at, global, what });
        }
    }

    /// Returns the class that `getattr(Outer, "Inner")` names. Protocols before 4 name a nested class (torch does so in FSDP1 shards) or
    /// an enum member this way; it is read as the import it stands for. Any other use of `getattr` stays a call.
    pub(super) fn nested_class(&self, callee: PickleValue, args: PickleValue) -> Option<(String, String)> {
        self.heap
            .global(callee)
            .filter(|g| danger::is_getattr(&g.module, &g.name))?;
        let [owner, name] = *self.heap.items(args)? else {
            return None;
        };
        if !matches!(name, PickleValue::Str(t) if t.len() <= NAME) {
            return None;
        }
        let (owner, name) = (self.heap.global(owner)?, self.heap.str(name)?);
        let sound = danger::is_class_name(&owner.name) && danger::is_public(&name);
        sound.then(|| (owner.module.clone(), format!("{}.{name}", owner.name)))
    }

    /// Whether this is torch's storage loader with the bytes of exactly one storage.
    pub(super) fn is_storage(&self, callee: PickleValue, args: PickleValue) -> bool {
        let is_loader = |g: &PickleGlobal| danger::is_storage_loader(&g.module, &g.name);
        match self.heap.items(args) {
            Some([PickleValue::Bytes(bytes)]) if matches!(self.heap.object(args), Some(PickleObject::Tuple(_))) => {
                self.heap.global(callee).is_some_and(is_loader) && danger::is_storage(self.heap.bytes(*bytes))
            }
            _ => false,
        }
    }

    /// Only an imported name may be called, and so must be any function that a rebuilding function calls.
    pub(super) fn judge_callee(&mut self, callee: PickleValue, args: PickleValue, usage: GlobalUse) {
        let PickleValue::Global(id) = callee else {
            self.danger("call something that it computes");
            return;
        };
        if !matches!(self.heap.object(args), Some(PickleObject::Tuple(_))) {
            self.danger("call something with arguments that it computes");
        }
        self.heap.mark(id, usage);
        let Some(g) = self.heap.global(callee) else {
            return;
        };
        // By name alone: torch knows some of its modules under older names too.
        let calls_first = matches!(
            g.name.as_str(),
            "_rebuild_from_type_v2" | "_reconstructor" | "_reconstruct" | "defaultdict"
        );
        if !calls_first && !danger::is_rebuilder(&g.name) {
            return;
        }
        let args: Vec<PickleValue> = self
            .heap
            .items(args)
            .unwrap_or_default()
            .iter()
            .take(GIVEN)
            .copied()
            .collect();
        for arg in &args {
            if let PickleValue::Global(inner) = *arg {
                self.heap.mark(inner, GlobalUse::Called);
            }
        }
        if calls_first && !matches!(args.first(), None | Some(PickleValue::Global(_) | PickleValue::None)) {
            self.danger("let torch call something that it computes");
        }
    }

    /// State becomes attributes, and Python looks up some of them by name and calls them.
    pub(super) fn judge_state(&mut self, state: PickleValue, ruled: bool) {
        let parts: Vec<PickleValue> = match self.heap.items(state) {
            Some(parts) => parts.iter().take(2).copied().collect(),
            None => vec![state],
        };
        for part in parts {
            if !ruled
                && let Some(call) = self.heap.call(part)
                && self
                    .heap
                    .global(call.callee)
                    .is_some_and(|g| danger::makes_dict(&g.module, &g.name))
                && self.heap.items(call.args).is_some_and(|args| !args.is_empty())
            {
                self.danger("give an object attributes that it computes");
            }
            let pairs = self.heap.pairs(part).unwrap_or_default();
            self.heap.charge(pairs.len());
            let name = pairs.iter().find_map(|(key, value)| self.method(*key, *value));
            if let Some(name) = name {
                self.danger(format!("give an object a {} of its own", shown(&name)));
            }
        }
    }

    /// The name under which Python would look up a callable, if a pair sets one.
    pub(super) fn method(&self, key: PickleValue, value: PickleValue) -> Option<String> {
        let short = matches!(key, PickleValue::Str(t) if t.len() <= NAME);
        if !short || !matches!(value, PickleValue::Global(_) | PickleValue::Object(_)) {
            return None;
        }
        let name = self.heap.str(key)?;
        (name.starts_with("__") && name.ends_with("__") || matches!(name.as_ref(), "append" | "extend" | "add"))
            .then(|| name.into_owned())
    }

    /// Python hashes every key of a dict and every element of a set, and raises TypeError for an unhashable one.
    pub(in crate::pickle) fn judge_keys(&mut self, keys: impl Iterator<Item = PickleValue>) {
        if let Some(fault) = self.fault_of_keys(keys) {
            self.doubt(fault);
        }
    }

    /// Protocols before 4 build a set from a list of its elements.
    pub(super) fn judge_elements(&mut self, callee: PickleValue, args: PickleValue) {
        let is_set = self.heap.global(callee).is_some_and(|g| {
            matches!(g.module.as_str(), "builtins" | "__builtin__") && matches!(g.name.as_str(), "set" | "frozenset")
        });
        let first = self.heap.items(args).and_then(|args| args.first().copied());
        let elements = first.filter(|_| is_set).and_then(|list| self.heap.items(list));
        if let Some(fault) = elements.and_then(|all| self.fault_of_keys(all.iter().copied())) {
            self.doubt(fault);
        }
    }

    fn fault_of_keys(&self, keys: impl Iterator<Item = PickleValue>) -> Option<PickleError> {
        let mut left = HASHED;
        // Most keys are strings, which cost nothing.
        let mut composed = keys.filter(|key| matches!(key, PickleValue::Object(_) | PickleValue::ByteArray(_)));
        let found = composed.find_map(|key| self.unhashable(key, &mut left));
        self.heap.charge(HASHED - left);
        match found {
            Some(what) => Some(PickleError::Unhashable(what)),
            None => self.heap.is_exhausted().then_some(PickleError::TooMuchWork),
        }
    }

    /// The type of an unhashable value, or of one in a tuple. Anything not known to be unhashable counts as hashable, and so does
    /// everything once `left` values were checked.
    fn unhashable(&self, value: PickleValue, left: &mut usize) -> Option<&'static str> {
        let mut waiting = vec![value];
        while let Some(value) = waiting.pop() {
            *left = left.checked_sub(1)?;
            if let PickleValue::ByteArray(_) = value {
                return Some("bytearray");
            }
            match self.heap.object(value) {
                Some(PickleObject::List(_)) => return Some("list"),
                Some(PickleObject::Dict(_)) => return Some("dict"),
                Some(PickleObject::Set(_)) => return Some("set"),
                Some(PickleObject::Tuple(items)) => waiting.extend(items.iter().take(*left).copied()),
                Some(PickleObject::Call(call)) => {
                    if let Some(what) = self.heap.global(call.callee).and_then(made_without_hash) {
                        return Some(what);
                    }
                }
                Some(PickleObject::FrozenSet(_) | PickleObject::Persistent(_)) | None => {}
            }
        }
        None
    }

    pub(super) fn judge_growth(&mut self, target: PickleValue, pairs: bool) {
        if let Some((id, rule)) = self.ruled_target(target)
            && !danger::may_grow(rule, pairs)
        {
            self.odd(id, "puts items into it, which real writers do not");
        }
    }
}
