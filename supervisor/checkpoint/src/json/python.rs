//! JSON as Python's `json` parses it, which is more than the standard allows: `NaN`, `Infinity` and `-Infinity` are numbers, a number too
//! large for a float is infinite, lone surrogates are accepted, and the last of repeated keys counts.
//!
//! The whole text is checked. Unneeded values are dropped immediately; kept ones are charged to a budget.

use super::value::JsonValue;
use std::collections::BTreeMap;

/// The most nested lists and objects; Python gives up before a thousand.
const DEPTH: u32 = 500;
/// The most digits of an integer that Python parses.
const DIGITS: usize = 4300;

/// Allocator overhead of a separate allocation, in bytes.
const APART: usize = 32;

/// Bytes that a map takes for its first entries.
const NODE: usize = 12 * (size_of::<JsonValue>() + size_of::<String>());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonErrorKind {
    Ended,
    /// What was expected instead.
    Wrong(&'static str),
    Deep,
    /// The kept part takes too much memory.
    Big,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) at: usize,
    pub(super) why: JsonErrorKind,
}

/// Parses a whole UTF-8 text into at most `budget` bytes.
pub(super) fn read(text: &[u8], budget: usize) -> Result<JsonValue, JsonError> {
    JsonParser::new(text, budget).document(true)
}

/// Parses a whole UTF-8 text and keeps only the keys of the top-level object, with null for each value.
pub(super) fn keys(text: &[u8], budget: usize) -> Result<JsonValue, JsonError> {
    let mut parser = JsonParser::new(text, budget);
    parser.space();
    let outermost = match parser.peek() {
        Some(b'{') => parser.object(RetainMode::Keys, 0)?,
        _ => parser.value(RetainMode::Nothing, 0)?,
    };
    parser.end(outermost)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetainMode {
    All,
    Keys,
    Nothing,
}

pub(super) struct JsonParser<'t> {
    text: &'t [u8],
    at: usize,
    budget: usize,
}

/// Parses one of many values at the parser's position.
type Each<'e, 't> = &'e mut dyn FnMut(&mut JsonParser<'t>) -> Result<(), JsonError>;
/// Parses the value of a key at the parser's position.
type EachOf<'e, 't> = &'e mut dyn FnMut(&mut JsonParser<'t>, String) -> Result<(), JsonError>;

impl<'t> JsonParser<'t> {
    pub(super) fn new(text: &'t [u8], budget: usize) -> Self {
        Self::from(text, 0, budget)
    }

    pub(super) fn from(text: &'t [u8], at: usize, budget: usize) -> Self {
        Self { text, at, budget }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn document(&mut self, keep: bool) -> Result<JsonValue, JsonError> {
        let keep = if keep { RetainMode::All } else { RetainMode::Nothing };
        let value = self.value(keep, 0)?;
        self.end(value)
    }

    fn end(&mut self, value: JsonValue) -> Result<JsonValue, JsonError> {
        self.space();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.wrong("the end of the text")),
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fault(&self, why: JsonErrorKind) -> JsonError {
        JsonError { at: self.at, why }
    }

    /// The error for an unexpected token or the end of the text.
    fn wrong(&self, wanted: &'static str) -> JsonError {
        match self.peek() {
            None => self.fault(JsonErrorKind::Ended),
            Some(_) => self.fault(JsonErrorKind::Wrong(wanted)),
        }
    }

    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), JsonError> {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| self.fault(JsonErrorKind::Big))?;
        Ok(())
    }

    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    /// Returns memory to the budget after a value was dropped.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_add(bytes);
    }

    pub(super) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn value(&mut self, keep: RetainMode, depth: u32) -> Result<JsonValue, JsonError> {
        self.space();
        if depth > DEPTH {
            return Err(self.fault(JsonErrorKind::Deep));
        }
        match self.peek() {
            Some(b'{') => self.object(keep, depth),
            Some(b'[') => self.list(keep, depth),
            Some(b'"') => {
                let text = self.string(keep == RetainMode::All)?;
                if keep == RetainMode::All {
                    self.spend(APART)?;
                }
                Ok(if keep == RetainMode::All {
                    JsonValue::Text(text)
                } else {
                    JsonValue::Null
                })
            }
            Some(b't') => self.word(b"true", JsonValue::Bool(true)),
            Some(b'f') => self.word(b"false", JsonValue::Bool(false)),
            Some(b'n') => self.word(b"null", JsonValue::Null),
            Some(b'N') => self.word(b"NaN", JsonValue::Float(f64::NAN)),
            Some(b'I') => self.word(b"Infinity", JsonValue::Float(f64::INFINITY)),
            Some(b'-') if self.text.get(self.at + 1) == Some(&b'I') => {
                self.word(b"-Infinity", JsonValue::Float(f64::NEG_INFINITY))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.wrong("a value")),
        }
    }

    fn word(&mut self, word: &'static [u8], means: JsonValue) -> Result<JsonValue, JsonError> {
        let there = self.text.get(self.at..).unwrap_or_default();
        if there.starts_with(word) {
            self.at += word.len();
            return Ok(means);
        }
        if word.starts_with(there) {
            self.at = self.text.len();
        }
        Err(self.wrong("a value"))
    }

    fn list(&mut self, keep: RetainMode, depth: u32) -> Result<JsonValue, JsonError> {
        let (mut out, inner) = (Vec::new(), below(keep));
        self.items(&mut |p| {
            let value = p.value(inner, depth + 1)?;
            if keep == RetainMode::All {
                if out.len() == out.capacity() {
                    let first = if out.is_empty() { APART } else { 0 };
                    p.spend(out.capacity().max(4) * size_of::<JsonValue>() + first)?;
                }
                out.push(value);
            }
            Ok(())
        })?;
        Ok(JsonValue::List(out))
    }

    fn object(&mut self, keep: RetainMode, depth: u32) -> Result<JsonValue, JsonError> {
        let (mut out, inner) = (BTreeMap::new(), below(keep));
        self.members(keep != RetainMode::Nothing, &mut |p, key| {
            let value = p.value(inner, depth + 1)?;
            if keep != RetainMode::Nothing {
                let node = if out.is_empty() { NODE } else { 0 };
                p.spend(node + 2 * (size_of::<JsonValue>() + size_of::<String>()) + APART)?;
                out.insert(key, value);
            }
            Ok(())
        })?;
        Ok(JsonValue::Object(out))
    }

    /// Calls `each` for every value of the list that begins here.
    pub(super) fn items(&mut self, each: Each<'_, 't>) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            each(self)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.wrong("`,` or `]`")),
            }
        }
    }

    /// Calls `each` for every key of the object that begins here; keys are empty unless `wanted`.
    pub(super) fn members(&mut self, wanted: bool, each: EachOf<'_, 't>) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in quotes"));
            }
            let key = self.string(wanted)?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.wrong("`:`"));
            }
            self.at += 1;
            each(self, key)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.wrong("`,` or `}`")),
            }
        }
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<JsonValue, JsonError> {
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let leading = self.peek();
        let digits = self.digits();
        if digits == 0 {
            return Err(self.wrong("a digit"));
        }
        if leading == Some(b'0') && digits > 1 {
            self.at -= digits - 1;
            return Err(self.wrong("no digit after a leading zero"));
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            whole = false;
            if self.digits() == 0 {
                return Err(self.wrong("a digit"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            whole = false;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(self.wrong("a digit"));
            }
        }
        // A number with a fraction or an exponent becomes a float, however many digits it has.
        if whole && digits > DIGITS {
            self.at = from;
            return Err(self.wrong("a whole number of at most 4300 digits, which is what Python reads"));
        }
        let text = self.text.get(from..self.at).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        if let Some(n) = whole.then(|| text.parse().ok()).flatten() {
            return Ok(JsonValue::Whole(n));
        }
        Ok(JsonValue::Float(text.parse().unwrap_or(f64::NAN)))
    }

    fn string(&mut self, keep: bool) -> Result<String, JsonError> {
        let mut out = String::new();
        self.at += 1;
        let mut from = self.at;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(n) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)) else {
                self.at = self.text.len();
                return Err(self.fault(JsonErrorKind::Ended));
            };
            self.at += n;
            if keep {
                self.spend(self.at - from)?;
                let piece = self.text.get(from..self.at).unwrap_or_default();
                out.push_str(&String::from_utf8_lossy(piece));
            }
            match rest.get(n) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    if keep {
                        self.spend(c.len_utf8())?;
                        out.push(c);
                    }
                }
                _ => return Err(self.wrong("no control character in a string")),
            }
            from = self.at;
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'u') => return self.code_point(),
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.wrong("an escape that JSON knows")),
        };
        self.at += 1;
        Ok(c)
    }

    /// Parses one character of one or two units. A lone surrogate is not a Rust character and becomes the replacement character.
    fn code_point(&mut self) -> Result<char, JsonError> {
        let high = self.unit()?;
        if !(0xd800..0xdc00).contains(&high) || self.text.get(self.at..self.at + 2) != Some(b"\\u") {
            return Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let after = self.at;
        self.at += 1;
        let low = self.unit()?;
        if (0xdc00..0xe000).contains(&low) {
            let c = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            return Ok(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        self.at = after;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    /// Parses the four digits after `u`.
    fn unit(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut out = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            out = out << 4 | digit.ok_or_else(|| self.wrong("four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(out)
    }
}

fn below(keep: RetainMode) -> RetainMode {
    if keep == RetainMode::All {
        RetainMode::All
    } else {
        RetainMode::Nothing
    }
}
