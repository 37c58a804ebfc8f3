//! The opcodes of protocols 0 to 5.

use super::PickleError;
use super::heap::{CallKind, PickleHeap, PickleObject, PickleValue};
use super::machine::{Growth, OpResult, PickleMachine};

/// The most digits of a decimal integer that Python parses.
const DIGITS: usize = 4300;

/// Runs one opcode; returns the pickle's value at STOP.
pub(super) fn step(m: &mut PickleMachine<'_>) -> OpResult<Option<PickleValue>> {
    let op = take(m, 1).map(|(at, _)| m.heap.input()[at])?;
    match op {
        b'.' => return m.pop().map(Some),
        b'(' => m.mark()?,
        b'0' => m.drop_top()?,
        b'1' => drop(m.pop_mark()?),
        b'2' => m.top().and_then(|v| m.push(v))?,
        0x80 => protocol(m)?,
        0x95 => frame(m)?,
        b'N' => m.push(PickleValue::None)?,
        0x88 => m.push(PickleValue::Bool(true))?,
        0x89 => m.push(PickleValue::Bool(false))?,
        b'I' | b'L' | b'F' | b'J' | b'K' | b'M' | b'G' | 0x8a | 0x8b => number(m, op)?,
        b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e | 0x96 => text(m, op)?,
        b')' | b']' | b'}' | 0x8f | b't' | b'l' | b'd' | 0x85..=0x87 | 0x91 => container(m, op)?,
        b'a' => m.pop().and_then(|v| m.append(vec![v], Growth::List))?,
        b'e' => m.pop_mark().and_then(|items| m.append(items, Growth::List))?,
        0x90 => m.pop_mark().and_then(|items| m.append(items, Growth::Set))?,
        b's' => {
            let (value, key) = (m.pop()?, m.pop()?);
            m.set_items(vec![(key, value)])?;
        }
        b'u' => m.pop_pairs().and_then(|pairs| m.set_items(pairs))?,
        b'p' | b'q' | b'r' | b'g' | b'h' | b'j' | 0x94 => memo(m, op)?,
        b'c' | b'i' | b'o' | b'R' | b'b' | 0x81 | 0x92 | 0x93 | 0x82..=0x84 => object(m, op)?,
        b'P' => {
            let id = line(m).and_then(|(at, n)| range(at, n))?;
            m.push_object(PickleObject::Persistent(PickleValue::Str(id)))?;
        }
        b'Q' => {
            let id = m.pop()?;
            m.push_object(PickleObject::Persistent(id))?;
        }
        0x97 | 0x98 => {
            return Err(PickleError::BadArgument("a buffer that is kept outside the file"));
        }
        other => return Err(PickleError::BadOpcode(other)),
    }
    Ok(None)
}

/// Consumes `n` bytes of the input and returns their range.
fn take(m: &mut PickleMachine<'_>, n: usize) -> OpResult<(usize, usize)> {
    let end =
        m.at.checked_add(n)
            .filter(|end| *end <= m.heap.input().len())
            .ok_or(PickleError::Truncated)?;
    let at = std::mem::replace(&mut m.at, end);
    Ok((at, n))
}

fn uint(m: &mut PickleMachine<'_>, n: usize) -> OpResult<u64> {
    let (at, n) = take(m, n)?;
    Ok(crate::raw::le(m.heap.input(), at, n))
}

fn count(m: &mut PickleMachine<'_>, n: usize) -> OpResult<usize> {
    uint(m, n).and_then(|v| usize::try_from(v).map_err(|_| PickleError::Truncated))
}

/// A frame only says how far to buffer. Python's C loader rejects one that reaches beyond the end; its Python loader does not, so the
/// rest is read anyway to see what it would do.
fn frame(m: &mut PickleMachine<'_>) -> OpResult {
    let len = uint(m, 8)?;
    let left = m.heap.input().len().saturating_sub(m.at);
    if usize::try_from(len).map_or(true, |len| len > left) {
        m.doubt(PickleError::Truncated);
    }
    Ok(())
}

/// Consumes a line; returns its range without the line feed.
fn line(m: &mut PickleMachine<'_>) -> OpResult<(usize, usize)> {
    let rest = &m.heap.input()[m.at..];
    let n = memchr::memchr(b'\n', rest).ok_or(PickleError::Truncated)?;
    let at = m.at;
    m.at += n + 1;
    Ok((at, n))
}

fn line_bytes<'m>(m: &'m mut PickleMachine<'_>) -> OpResult<&'m [u8]> {
    let (at, n) = line(m)?;
    Ok(&m.heap.input()[at..at + n])
}

fn line_text(m: &mut PickleMachine<'_>) -> OpResult<String> {
    line_bytes(m).map(|b| String::from_utf8_lossy(b).into_owned())
}

fn range(at: usize, n: usize) -> OpResult<super::heap::TextRange> {
    PickleHeap::text(at, n).ok_or(PickleError::BadArgument("a string beyond 4 GiB"))
}

fn protocol(m: &mut PickleMachine<'_>) -> OpResult {
    match uint(m, 1)? {
        0..=5 => Ok(()),
        _ => Err(PickleError::BadArgument("a protocol above 5")),
    }
}

fn number(m: &mut PickleMachine<'_>, op: u8) -> OpResult {
    let value = match op {
        b'K' => PickleValue::Int(uint(m, 1)?.cast_signed()),
        b'M' => PickleValue::Int(uint(m, 2)?.cast_signed()),
        b'J' => PickleValue::Int(i64::from((uint(m, 4)? as u32).cast_signed())),
        b'G' => PickleValue::Float(f64::from_bits(uint(m, 8)?.swap_bytes())),
        0x8a => {
            let n = count(m, 1)?;
            long(m, n)?
        }
        0x8b => {
            let n = count(m, 4)?;
            long(m, n)?
        }
        b'F' => {
            let text = line_text(m)?;
            let number: f64 = text.trim().parse().map_err(|_| PickleError::BadArgument("a float"))?;
            // Python accepts `inf`, and raises OverflowError if the digits give a number that is too large.
            if number.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) {
                return Err(PickleError::BadArgument("a float that is too large"));
            }
            PickleValue::Float(number)
        }
        _ => decimal(m, op)?,
    };
    m.push(value)
}

fn long(m: &mut PickleMachine<'_>, n: usize) -> OpResult<PickleValue> {
    let (at, n) = take(m, n)?;
    if n > 8 {
        return range(at, n).map(PickleValue::BigInt);
    }
    let raw = crate::raw::le(m.heap.input(), at, n);
    let unused = 64 - 8 * n as u32;
    Ok(PickleValue::Int(if n == 0 {
        0
    } else {
        (raw << unused).cast_signed() >> unused
    }))
}

fn decimal(m: &mut PickleMachine<'_>, op: u8) -> OpResult<PickleValue> {
    let (at, n) = line(m)?;
    let text = String::from_utf8_lossy(&m.heap.input()[at..at + n]);
    let digits = text.trim().trim_end_matches('L');
    match (op, digits) {
        (b'I', "00") => return Ok(PickleValue::Bool(false)),
        (b'I', "01") => return Ok(PickleValue::Bool(true)),
        _ => {}
    }
    if let Some(v) = digits.parse().ok().filter(|_| digits.len() <= DIGITS) {
        return Ok(PickleValue::Int(v));
    }
    let body = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    if body.is_empty() || !body.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return Err(PickleError::BadArgument("an integer"));
    }
    if body.bytes().filter(u8::is_ascii_digit).count() > DIGITS {
        return Err(PickleError::BadArgument(
            "a whole number of more than 4300 digits, which Python does not read",
        ));
    }
    range(at, n).map(PickleValue::BigInt)
}

fn text(m: &mut PickleMachine<'_>, op: u8) -> OpResult {
    let width = match op {
        b'S' | b'V' => return text_line(m, op),
        b'U' | 0x8c | b'C' => 1,
        b'X' | b'B' | b'T' => 4,
        _ => 8,
    };
    let n = count(m, width)?;
    let (at, n) = take(m, n)?;
    let text = range(at, n)?;
    if matches!(op, b'X' | 0x8c | 0x8d) && !decodes(&m.heap.input()[at..at + n]) {
        return Err(PickleError::BadArgument("a string that is no UTF-8"));
    }
    // Old byte strings become strings, as in Python 3.
    m.push(match op {
        b'B' | b'C' | 0x8e => PickleValue::Bytes(text),
        0x96 => PickleValue::ByteArray(text),
        _ => PickleValue::Str(text),
    })
}

/// Whether Python decodes the bytes: UTF-8 that may contain lone surrogates.
fn decodes(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Err(e) = std::str::from_utf8(rest) {
        match rest.get(e.valid_up_to()..) {
            Some([0xed, 0xa0..=0xbf, 0x80..=0xbf, after @ ..]) => rest = after,
            _ => return false,
        }
    }
    true
}

/// STRING and UNICODE of protocol 0: escapes are resolved, because they may hide a name.
fn text_line(m: &mut PickleMachine<'_>, op: u8) -> OpResult {
    let mut raw = line_bytes(m)?.to_vec();
    if op == b'S' {
        let trimmed = raw.trim_ascii_end();
        let quoted =
            trimmed.len() >= 2 && trimmed[0] == trimmed[trimmed.len() - 1] && matches!(trimmed[0], b'\'' | b'"');
        if !quoted {
            return Err(PickleError::BadArgument("a string without quotes"));
        }
        raw = trimmed[1..trimmed.len() - 1].to_vec();
    }
    let plain = unescape(&raw, op == b'S');
    let text = m
        .heap
        .pooled(&plain)
        .ok_or(PickleError::BadArgument("a string beyond 4 GiB"))?;
    m.push(PickleValue::Str(text))
}

fn unescape(raw: &[u8], all: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&b, tail)) = rest.split_first() {
        rest = tail;
        let Some((&kind, after)) = tail.split_first().filter(|_| b == b'\\') else {
            out.push(b);
            continue;
        };
        let digits = match kind {
            b'u' => 4,
            b'U' => 8,
            b'x' if all => 2,
            _ => 0,
        };
        let code = after
            .get(..digits)
            .filter(|_| digits > 0)
            .and_then(hex)
            .and_then(char::from_u32);
        if let Some(c) = code {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            rest = &after[digits..];
        } else if let Some((byte, n)) = octal(tail).filter(|_| all) {
            out.push(byte);
            rest = &tail[n..];
        } else if let Some(plain) = simple(kind).filter(|_| all) {
            out.push(plain);
            rest = after;
        } else {
            out.push(b);
        }
    }
    out
}

fn hex(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn octal(text: &[u8]) -> Option<(u8, usize)> {
    let n = text.iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
    let value = text[..n].iter().fold(0_u32, |v, b| v * 8 + u32::from(b - b'0'));
    (n > 0).then_some((value as u8, n))
}

fn simple(kind: u8) -> Option<u8> {
    Some(match kind {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'\\' | b'\'' | b'"' => kind,
        _ => return None,
    })
}

fn container(m: &mut PickleMachine<'_>, op: u8) -> OpResult {
    let object = match op {
        b')' => PickleObject::Tuple(Box::default()),
        b']' => PickleObject::List(Vec::new()),
        b'}' => PickleObject::Dict(Vec::new()),
        0x8f => PickleObject::Set(Vec::new()),
        b't' => PickleObject::Tuple(m.pop_mark()?.into_boxed_slice()),
        b'l' => PickleObject::List(m.pop_mark()?),
        b'd' => {
            let pairs = m.pop_pairs()?;
            m.judge_keys(pairs.iter().map(|(key, _)| *key));
            PickleObject::Dict(pairs)
        }
        0x91 => {
            let items = m.pop_mark()?;
            m.judge_keys(items.iter().copied());
            PickleObject::FrozenSet(items.into_boxed_slice())
        }
        _ => {
            let n = usize::from(op - 0x84);
            let mut items = Vec::with_capacity(n);
            for _ in 0..n {
                items.push(m.pop()?);
            }
            items.reverse();
            PickleObject::Tuple(items.into_boxed_slice())
        }
    };
    m.push_object(object)
}

fn memo(m: &mut PickleMachine<'_>, op: u8) -> OpResult {
    let slot = match op {
        0x94 => return m.memoize(),
        b'q' | b'h' => uint(m, 1)?,
        b'r' | b'j' => uint(m, 4)?,
        _ => line_text(m)?
            .trim()
            .parse()
            .map_err(|_| PickleError::BadArgument("a memo slot"))?,
    };
    if matches!(op, b'p' | b'q' | b'r') {
        m.store(slot)
    } else {
        m.recall(slot)
    }
}

fn object(m: &mut PickleMachine<'_>, op: u8) -> OpResult {
    match op {
        b'c' => {
            let (module, name) = (line_text(m)?, line_text(m)?);
            m.import(module, name)
        }
        0x93 => m.import_from_stack(),
        b'R' => {
            let (args, callee) = (m.pop()?, m.pop()?);
            m.call(CallKind::Reduce, callee, args, None)
        }
        0x81 => {
            let (args, class) = (m.pop()?, m.pop()?);
            m.call(CallKind::New, class, args, None)
        }
        0x92 => {
            let (kwargs, args, class) = (m.pop()?, m.pop()?, m.pop()?);
            m.call(CallKind::NewEx, class, args, Some(kwargs))
        }
        b'i' => {
            let (module, name) = (line_text(m)?, line_text(m)?);
            let items = m.pop_mark()?;
            m.import(module, name)?;
            let class = m.pop()?;
            instance(m, class, items)
        }
        b'o' => {
            let mut items = m.pop_mark()?;
            if items.is_empty() {
                return Err(PickleError::Underflow);
            }
            let class = items.remove(0);
            instance(m, class, items)
        }
        b'b' => {
            let state = m.pop()?;
            m.build(state)
        }
        _ => {
            m.danger("take a name from the extension registry, which no trainer uses");
            Err(PickleError::BadArgument("an extension code"))
        }
    }
}

fn instance(m: &mut PickleMachine<'_>, class: PickleValue, items: Vec<PickleValue>) -> OpResult {
    m.push_object(PickleObject::Tuple(items.into_boxed_slice()))?;
    let args = m.pop()?;
    m.call(CallKind::Instance, class, args, None)
}
