//! Types scalars as PyYAML's `SafeLoader` with OmegaConf's changes does.
//!
//! There are two steps, as there: [`resolve`] gives a plain scalar its tag from its spelling, [`construct`] turns tag and text into a
//! value. The spellings are those of YAML 1.1: `on` is true, `010` is eight, `1:30:00` is 5400, `1_000` is a thousand. OmegaConf adds
//! floats with a bare exponent (`1e-4`) and drops dates. The matchers below accept exactly what the loaders' regular expressions accept.

use crate::tree::ConfigValue;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlTag {
    Null,
    Bool,
    Int,
    Float,
    Str,
    Merge,
    /// A plain `=`.
    Equals,
    Seq,
    Map,
    /// Any other tag: the loader rejects it.
    Other(String),
}

impl YamlTag {
    /// Finds the tag for a full name such as `tag:yaml.org,2002:str`.
    pub(crate) fn named(name: &str) -> Self {
        match name.strip_prefix("tag:yaml.org,2002:") {
            Some("null") => Self::Null,
            Some("bool") => Self::Bool,
            Some("int") => Self::Int,
            Some("float") => Self::Float,
            Some("str") => Self::Str,
            Some("merge") => Self::Merge,
            Some("value") => Self::Equals,
            Some("seq") => Self::Seq,
            Some("map") => Self::Map,
            _ => Self::Other(name.to_owned()),
        }
    }
}

/// Returns the tag of a plain scalar. The order is the loader's: its own float, then int, then OmegaConf's float.
pub(crate) fn resolve(text: &str) -> YamlTag {
    const BOOLS: [&str; 6] = ["yes", "no", "true", "false", "on", "off"];
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return YamlTag::Null,
        "<<" => return YamlTag::Merge,
        "=" => return YamlTag::Equals,
        _ => {}
    }
    if BOOLS.iter().any(|word| cased(text, word)) {
        YamlTag::Bool
    } else if is_base_float(text) {
        YamlTag::Float
    } else if is_int(text) {
        YamlTag::Int
    } else if is_exponent_float(text) {
        YamlTag::Float
    } else {
        YamlTag::Str
    }
}

pub(crate) fn construct(tag: &YamlTag, text: &str) -> Result<ConfigValue, String> {
    match tag {
        YamlTag::Str => Ok(ConfigValue::Str(text.to_owned())),
        YamlTag::Null => Ok(ConfigValue::Null),
        YamlTag::Bool => match text.to_lowercase().as_str() {
            "yes" | "true" | "on" => Ok(ConfigValue::Bool(true)),
            "no" | "false" | "off" => Ok(ConfigValue::Bool(false)),
            _ => Err(format!("'{text}' is not a truth value")),
        },
        YamlTag::Int => whole(text).map(ConfigValue::Int),
        YamlTag::Float => floating(text)
            .map(ConfigValue::Float)
            .ok_or_else(|| format!("'{text}' is not a number")),
        YamlTag::Merge => Err("'<<' merges mappings and cannot be a value".to_owned()),
        YamlTag::Equals => Err("a plain '=' has no meaning as a value".to_owned()),
        YamlTag::Seq => Err("a scalar cannot be tagged as a list".to_owned()),
        YamlTag::Map => Err("a scalar cannot be tagged as a mapping".to_owned()),
        YamlTag::Other(name) => Err(format!("the tag '{name}' is not known to the trainer's loader")),
    }
}

/// Accepts `word`, `Word` or `WORD` only.
fn cased(text: &str, word: &str) -> bool {
    text == word
        || text.len() == word.len()
            && text.eq_ignore_ascii_case(word)
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && (text[1..] == word[1..] || text.bytes().all(|byte| byte.is_ascii_uppercase()))
}

fn whole(text: &str) -> Result<i128, String> {
    let digits = text.replace('_', "");
    let bad = || format!("'{text}' is not a whole number");
    let (sign, digits) = signed(&digits);
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return Err(bad());
    }
    let parsed = if let Some(binary) = digits.strip_prefix("0b") {
        i128::from_str_radix(binary, 2)
    } else if let Some(hex) = digits.strip_prefix("0x") {
        i128::from_str_radix(hex, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        i128::from_str_radix(digits, 8)
    } else if digits.contains(':') {
        return sixty(digits).map(|number| sign * number).ok_or_else(bad);
    } else {
        digits.parse::<i128>()
    };
    parsed.map(|number| sign * number).map_err(|error| match error.kind() {
        std::num::IntErrorKind::PosOverflow => {
            format!("'{text}' is a whole number beyond what is supported")
        }
        _ => bad(),
    })
}

fn sixty(digits: &str) -> Option<i128> {
    digits.split(':').try_fold(0_i128, |sum, part| {
        let part: i128 = part.parse().ok()?;
        sum.checked_mul(60)?.checked_add(part)
    })
}

fn floating(text: &str) -> Option<f64> {
    let lower = text.replace('_', "").to_lowercase();
    let (sign, digits) = signed(&lower);
    let sign = sign as f64;
    match digits {
        ".inf" => return Some(sign * f64::INFINITY),
        ".nan" => return Some(f64::NAN),
        "" => return None,
        _ => {}
    }
    if digits.contains(':') {
        let mut base = 1.0;
        let mut sum = 0.0;
        for part in digits.rsplit(':') {
            sum += python_float(part)? * base;
            base *= 60.0;
        }
        return Some(sign * sum);
    }
    python_float(digits).map(|number| sign * number)
}

/// `float(text)`: Rust accepts no more than Python does.
fn python_float(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn signed(text: &str) -> (i128, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes() }
    }

    fn end(&self) -> bool {
        self.rest.is_empty()
    }

    fn one(&mut self, set: impl Fn(u8) -> bool) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if set(*first) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn many(&mut self, set: impl Fn(u8) -> bool) -> usize {
        let taken = self.rest.iter().take_while(|byte| set(**byte)).count();
        self.rest = &self.rest[taken..];
        taken
    }

    fn sign(&mut self) -> bool {
        self.one(|byte| matches!(byte, b'+' | b'-'))
    }

    /// Consumes `[eE]`, a sign (required or optional) and digits.
    fn exponent(&mut self, sign_needed: bool) -> bool {
        if !self.one(|byte| matches!(byte, b'e' | b'E')) {
            return false;
        }
        let signed = self.sign();
        (signed || !sign_needed) && self.many(digit) > 0
    }

    /// Consumes one or more `:` with a number below sixty each.
    fn sixties(&mut self) -> bool {
        let mut seen = 0;
        while self.one(|byte| byte == b':') {
            let digits = self.rest.iter().take(2).take_while(|byte| digit(**byte)).count();
            let fits = digits == 1 || digits == 2 && self.rest[0] < b'6';
            if !fits {
                return false;
            }
            self.rest = &self.rest[digits..];
            seen += 1;
        }
        seen > 0
    }
}

fn digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

fn digit_or_line(byte: u8) -> bool {
    digit(byte) || byte == b'_'
}

fn any(text: &str, shapes: &[fn(&mut Cursor<'_>) -> bool]) -> bool {
    shapes.iter().any(|shape| {
        let mut cursor = Cursor::new(text);
        shape(&mut cursor) && cursor.end()
    })
}

fn is_int(text: &str) -> bool {
    any(
        text,
        &[
            |c| prefixed(c, b'b') && c.many(|byte| matches!(byte, b'0' | b'1' | b'_')) > 0,
            |c| {
                c.sign();
                c.one(|byte| byte == b'0') && c.many(|byte| matches!(byte, b'0'..=b'7' | b'_')) > 0
            },
            |c| {
                c.sign();
                c.one(|byte| byte == b'0') || nonzero(c)
            },
            |c| prefixed(c, b'x') && c.many(|byte| byte.is_ascii_hexdigit() || byte == b'_') > 0,
            |c| {
                c.sign();
                nonzero(c) && c.sixties()
            },
        ],
    )
}

fn prefixed(cursor: &mut Cursor<'_>, letter: u8) -> bool {
    cursor.sign();
    cursor.one(|byte| byte == b'0') && cursor.one(|byte| byte == letter)
}

fn nonzero(cursor: &mut Cursor<'_>) -> bool {
    let first = cursor.one(|byte| matches!(byte, b'1'..=b'9'));
    cursor.many(digit_or_line);
    first
}

fn is_base_float(text: &str) -> bool {
    any(
        text,
        &[
            |c| {
                c.sign();
                digits_and_lines(c) && point(c, true)
            },
            |c| c.one(|byte| byte == b'.') && digits_and_lines(c) && optional_exponent(c, true),
            |c| {
                c.sign();
                digits_and_lines(c) && c.sixties() && c.one(|byte| byte == b'.') && {
                    c.many(digit_or_line);
                    true
                }
            },
            |c| {
                c.sign();
                word(c, &[b".inf", b".Inf", b".INF"])
            },
            |c| word(c, &[b".nan", b".NaN", b".NAN"]),
        ],
    )
}

fn is_exponent_float(text: &str) -> bool {
    any(
        text,
        &[
            |c| {
                c.sign();
                grouped_digits(c) && point(c, false)
            },
            |c| {
                c.sign();
                grouped_digits(c) && c.exponent(false)
            },
        ],
    )
}

fn digits_and_lines(cursor: &mut Cursor<'_>) -> bool {
    let first = cursor.one(digit);
    cursor.many(digit_or_line);
    first
}

/// Digits with single underscores between groups. If an underscore does not separate two groups, what follows cannot match either.
fn grouped_digits(cursor: &mut Cursor<'_>) -> bool {
    if cursor.many(digit) == 0 {
        return false;
    }
    while cursor.one(|byte| byte == b'_') {
        if cursor.many(digit) == 0 {
            return false;
        }
    }
    true
}

fn point(cursor: &mut Cursor<'_>, sign_needed: bool) -> bool {
    cursor.one(|byte| byte == b'.') && {
        cursor.many(digit_or_line);
        optional_exponent(cursor, sign_needed)
    }
}

fn optional_exponent(cursor: &mut Cursor<'_>, sign_needed: bool) -> bool {
    cursor.end() || cursor.exponent(sign_needed)
}

fn word(cursor: &mut Cursor<'_>, words: &[&[u8]]) -> bool {
    match words.iter().find(|word| cursor.rest == **word) {
        Some(_) => {
            cursor.rest = &[];
            true
        }
        None => false,
    }
}
