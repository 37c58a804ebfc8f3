//! Checks that a call has the arguments, and an object the state, that real writers give.
//!
//! Each argument was judged when it was built, so only its kind is checked here: it must not cause a call, a lookup or an allocation.

use super::known::{BuildState, GlobalRule, Signature, rule};
use crate::device::is_device;
use crate::pickle::heap::{PickleCall, PickleGlobal, PickleHeap, PickleObject, PickleValue};

/// The most dimensions of a tensor, or parts of a path; real ones have fewer.
const MANY: usize = 256;

impl Signature {
    fn fits(self, heap: &PickleHeap, args: &[PickleValue]) -> bool {
        self.0.split('/').any(|letters| match letters {
            "Q" => quantized(heap, args),
            "W" => wrapped(heap, args),
            letters => each(heap, letters, args),
        })
    }
}

/// Whether real writers make such a call of the name.
pub(in crate::pickle) fn is_usual(
    heap: &PickleHeap,
    rule: &GlobalRule,
    made: bool,
    args: PickleValue,
    kwargs: Option<PickleValue>,
) -> bool {
    let signature = if made { rule.new } else { rule.call };
    let words = kwargs.is_none_or(|k| matches!(heap.object(k), Some(PickleObject::Dict(pairs)) if pairs.is_empty()));
    let args = tuple(heap, args);
    words && matches!((signature, args), (Some(s), Some(args)) if s.fits(heap, args))
}

/// Whether the object of this call may be given this state.
pub(in crate::pickle) fn is_usual_state(heap: &PickleHeap, rule: &GlobalRule, state: PickleValue) -> bool {
    match rule.state {
        BuildState::Nothing => false,
        BuildState::Attributes => attributes(heap, state),
        BuildState::Data => !matches!(state, PickleValue::Global(_)) && heap.call(state).is_none(),
        BuildState::Array => array(heap, state),
    }
}

/// Whether items (or pairs) may be added to the object of this call.
pub(in crate::pickle) fn may_grow(rule: &GlobalRule, pairs: bool) -> bool {
    if pairs { rule.pairs } else { rule.items }
}

fn each(heap: &PickleHeap, letters: &str, args: &[PickleValue]) -> bool {
    if args.len() > MANY {
        return false;
    }
    let mut args = args.iter();
    let (mut optional, mut last) = (false, b'd');
    for letter in letters.bytes() {
        match letter {
            b'?' => optional = true,
            b'*' => return args.all(|a| is(heap, last, *a)),
            _ => match args.next() {
                Some(a) if is(heap, letter, *a) => last = letter,
                Some(_) => return false,
                None => return optional || letters.ends_with('*') && letters.len() == 2,
            },
        }
    }
    args.next().is_none()
}

fn is(heap: &PickleHeap, letter: u8, value: PickleValue) -> bool {
    match letter {
        b'i' => matches!(value, PickleValue::Int(_)),
        b'b' => matches!(value, PickleValue::Bool(_)),
        b'x' => matches!(value, PickleValue::Str(_)),
        b'y' => matches!(value, PickleValue::Str(t) if str::from_utf8(heap.bytes(t)).is_ok_and(is_device)),
        b'n' => value == PickleValue::None,
        b'v' => !matches!(value, PickleValue::Global(_) | PickleValue::Object(_)),
        b'B' => bytes(heap, value),
        b'l' => matches!(value, PickleValue::Str(t) if [&b"latin1"[..], b"latin-1"].contains(&heap.bytes(t))),
        b't' => numbers(heap, value).is_some(),
        b'z' => tuple(heap, value) == Some(&[PickleValue::Int(0)]),
        b'T' => tuple(heap, value).is_some(),
        b'L' => matches!(
            heap.object(value),
            Some(PickleObject::List(_) | PickleObject::Tuple(_) | PickleObject::Set(_) | PickleObject::FrozenSet(_))
        ),
        b'D' => !matches!(
            heap.object(value),
            None | Some(PickleObject::Call(_) | PickleObject::Persistent(_))
        ),
        b'q' => fraction(heap, value),
        b's' => {
            let made = heap.call(value).is_some_and(|call| call.callee == PickleValue::None);
            made || matches!(heap.object(value), Some(PickleObject::Persistent(_)))
        }
        b'o' => hooks(heap, value),
        b'a' => attributes(heap, value),
        b'f' => value == PickleValue::None || of(heap, value).is_some_and(|r| r.factory),
        b'c' => of(heap, value).is_some_and(|r| r.tensor),
        b'g' => generator(heap, value),
        b'P' => of(heap, value).is_some_and(|r| r.new.is_some_and(|s| s.fits(heap, &[]))),
        b'A' => named(heap, value, "ndarray"),
        b'C' => named(heap, value, "__bit_generator_ctor"),
        b'S' => named(heap, value, "SeedSequence"),
        b'O' => named(heap, value, "object"),
        _ => true,
    }
}

fn of(heap: &PickleHeap, value: PickleValue) -> Option<&'static GlobalRule> {
    heap.global(value).and_then(|g| rule(&g.module, &g.name))
}

/// Whether this is a listed name; no two of the names passed here are spelled alike.
fn named(heap: &PickleHeap, value: PickleValue, name: &str) -> bool {
    let is = |g: &PickleGlobal| g.name == name && rule(&g.module, &g.name).is_some();
    heap.global(value).is_some_and(is)
}

fn tuple(heap: &PickleHeap, value: PickleValue) -> Option<&[PickleValue]> {
    match heap.object(value)? {
        PickleObject::Tuple(items) => Some(items),
        _ => None,
    }
}

fn callee<'h>(heap: &'h PickleHeap, call: &PickleCall) -> Option<&'h str> {
    heap.global(call.callee).map(|g| g.name.as_str())
}

/// Bytes, or bytes as protocols before 3 write them.
fn bytes(heap: &PickleHeap, value: PickleValue) -> bool {
    let made = |call: &PickleCall| matches!(callee(heap, call), Some("encode" | "bytes" | "bytearray"));
    matches!(value, PickleValue::Bytes(_) | PickleValue::ByteArray(_)) || heap.call(value).is_some_and(made)
}

fn fraction(heap: &PickleHeap, value: PickleValue) -> bool {
    match value {
        PickleValue::Int(_) | PickleValue::BigInt(_) => true,
        // `1e999999999` is a short text and a long number.
        PickleValue::Str(t) => {
            heap.bytes(t)
                .iter()
                .take(MANY)
                .all(|b| b.is_ascii_digit() || b"-/".contains(b))
                && t.len() < MANY
        }
        _ => false,
    }
}

/// The numbers of a tuple, or of a `torch.Size` built from one.
fn numbers(heap: &PickleHeap, value: PickleValue) -> Option<&[PickleValue]> {
    let items = match heap.call(value) {
        Some(call) if callee(heap, call) == Some("Size") => tuple(heap, *tuple(heap, call.args)?.first()?)?,
        Some(_) => return None,
        None => tuple(heap, value)?,
    };
    (items.len() <= MANY && items.iter().all(|v| matches!(v, PickleValue::Int(_)))).then_some(items)
}

/// torch calls whatever it finds there; writers leave it empty.
fn hooks(heap: &PickleHeap, value: PickleValue) -> bool {
    let empty = |call: &PickleCall| callee(heap, call) == Some("OrderedDict") && call.pairs().is_empty();
    value == PickleValue::None || heap.call(value).is_some_and(empty)
}

fn generator(heap: &PickleHeap, value: PickleValue) -> bool {
    let made = |call: &PickleCall| callee(heap, call) == Some("__bit_generator_ctor");
    matches!(value, PickleValue::Str(_))
        || of(heap, value).is_some_and(|r| r.bits)
        || heap.call(value).is_some_and(made)
}

/// A dict with literal keys, or a pair of that and a dict of slots; each may be missing.
fn attributes(heap: &PickleHeap, state: PickleValue) -> bool {
    let one = |value: PickleValue| match heap.object(value) {
        None => value == PickleValue::None,
        Some(PickleObject::Dict(pairs)) => {
            heap.charge(pairs.len());
            pairs.iter().all(|(key, _)| matches!(key, PickleValue::Str(_)))
        }
        Some(_) => false,
    };
    match tuple(heap, state) {
        Some([first, second]) => one(*first) && one(*second),
        Some(_) => false,
        None => one(state),
    }
}

/// Shape, type, order and elements. For a list of elements, numpy allocates memory before it counts them.
fn array(heap: &PickleHeap, state: PickleValue) -> bool {
    let Some([.., shape, _, _, elements]) = tuple(heap, state) else {
        return false;
    };
    match heap.object(*elements) {
        Some(PickleObject::List(items)) => product(heap, *shape) == Some(items.len() as u64),
        _ => bytes(heap, *elements) && numbers(heap, *shape).is_some(),
    }
}

fn product(heap: &PickleHeap, shape: PickleValue) -> Option<u64> {
    let mut sizes = numbers(heap, shape)?.iter();
    sizes.try_fold(1_u64, |n, size| n.checked_mul(heap.uint(*size)?))
}

/// Storage, offset, size, stride, kind, gradient, hooks. torch allocates memory for the size before it compares it with the storage.
fn quantized(heap: &PickleHeap, args: &[PickleValue]) -> bool {
    let [storage, _, size, ..] = *args else {
        return false;
    };
    let Some(PickleObject::Persistent(id)) = heap.object(storage) else {
        return false;
    };
    let held = heap.items(*id).and_then(|parts| heap.uint(*parts.get(4)?));
    each(heap, "sittTbo", args) && matches!((product(heap, size), held), (Some(n), Some(held)) if n <= held)
}

/// Function, class, arguments, state: torch calls the function with the arguments.
fn wrapped(heap: &PickleHeap, args: &[PickleValue]) -> bool {
    let [function, class, inner, state] = *args else {
        return false;
    };
    // It sets its state in its own way.
    let own = named(heap, class, "ShardedTensor") && tuple(heap, state).is_some();
    let rebuilds = |g: &&PickleGlobal| g.module == "torch._utils";
    let rule = heap
        .global(function)
        .filter(rebuilds)
        .and_then(|g| rule(&g.module, &g.name));
    let usual = each(heap, "dcT", &args[..3]) && (own || attributes(heap, state));
    usual && rule.is_some_and(|r| is_usual(heap, r, false, inner, None))
}
