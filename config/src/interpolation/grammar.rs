//! The grammar of interpolations: parses text into [`TextPart`]s.
//!
//! There are three modes, as in OmegaConf: top-level text, the inside of `${`, and values (a resolver's arguments). Backslashes matter
//! only before `${` and before the closing quote: an odd number escapes it, and each pair stands for one backslash.

use crate::literal::{self, TokenKind};
use crate::tree::{ConfigValue, MapKey};

const MAX_NESTING: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TextPart {
    Text(String),
    Inter(Interpolation),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Interpolation {
    /// `${a.b}`, `${.a}`, `${a[b]}`; brackets are kept, the path is split later.
    Node { path: Vec<TextPart> },
    /// `${name:arguments}`.
    Resolver {
        name: Vec<TextPart>,
        arguments: Vec<ArgumentElement>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ArgumentElement {
    Plain(ConfigValue),
    /// Words mixed with interpolations.
    Unquoted(Vec<TextPart>),
    Quoted(Vec<TextPart>),
    List(Vec<ArgumentElement>),
    Map(Vec<(MapKey, ArgumentElement)>),
}

pub(super) fn parse(text: &str) -> Result<Vec<TextPart>, String> {
    let mut parser = GrammarParser { rest: text, depth: 0 };
    let parts = parser.text(None)?;
    if parser.rest.is_empty() {
        Ok(parts)
    } else {
        Err(parser.unexpected())
    }
}

/// Parses a single value, as `oc.decode` does.
pub(super) fn parse_element(text: &str) -> Result<ArgumentElement, String> {
    let mut parser = GrammarParser { rest: text, depth: 0 };
    let element = parser.element()?;
    if parser.rest.is_empty() {
        Ok(element)
    } else {
        Err(parser.unexpected())
    }
}

struct GrammarParser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> GrammarParser<'a> {
    /// Parses text up to the closing quote, or to the end if `quote` is `None`.
    fn text(&mut self, quote: Option<char>) -> Result<Vec<TextPart>, String> {
        let mut parts = Vec::new();
        let mut out = String::new();
        loop {
            let slashes = self.rest.len() - self.rest.trim_start_matches('\\').len();
            let after = &self.rest[slashes..];
            let closing = quote.is_some_and(|quote| after.starts_with(quote));
            if after.starts_with("${") || closing {
                out.push_str(&self.rest[..slashes / 2]);
                self.rest = after;
                if slashes % 2 == 1 {
                    let kept = if closing { 1 } else { 2 };
                    out.push_str(&after[..kept]);
                    self.rest = &after[kept..];
                } else if closing {
                    self.rest = &after[1..];
                    break;
                } else {
                    push_text(&mut parts, &mut out);
                    parts.push(TextPart::Inter(self.inter()?));
                }
                continue;
            }
            out.push_str(&self.rest[..slashes]);
            match after.chars().next() {
                Some(c) => {
                    out.push(c);
                    self.rest = &after[c.len_utf8()..];
                }
                None if quote.is_some() => return Err("a quote is not closed".to_owned()),
                None => {
                    self.rest = after;
                    break;
                }
            }
        }
        push_text(&mut parts, &mut out);
        Ok(parts)
    }

    fn inter(&mut self) -> Result<Interpolation, String> {
        self.deeper()?;
        self.expect("${")?;
        self.spaces();
        let dots = self.rest.len() - self.rest.trim_start_matches('.').len();
        let mut path = Vec::new();
        let mut plain = dots == 0;
        if dots > 0 {
            path.push(TextPart::Text(self.take(dots).to_owned()));
        }
        plain &= self.path_key(&mut path)?;
        while self.rest.starts_with(['.', '[']) {
            if self.rest.starts_with('.') {
                path.push(TextPart::Text(self.take(1).to_owned()));
                if self.rest.starts_with('[') {
                    return Err(self.unexpected());
                }
            }
            plain &= self.path_key(&mut path)?;
        }
        self.spaces();
        let inter = if self.rest.starts_with('}') {
            self.take(1);
            Interpolation::Node { path }
        } else if self.rest.starts_with(':') && plain {
            self.take(1);
            self.spaces();
            let arguments = self.sequence('}')?;
            Interpolation::Resolver { name: path, arguments }
        } else {
            return Err(self.unexpected());
        };
        self.depth -= 1;
        Ok(inter)
    }

    /// Parses one key of a path. Returns whether it could also be part of a resolver's name.
    fn path_key(&mut self, path: &mut Vec<TextPart>) -> Result<bool, String> {
        if self.rest.starts_with("${") {
            path.push(TextPart::Inter(self.inter()?));
            return Ok(true);
        }
        let bracket = self.rest.starts_with('[');
        if bracket {
            path.push(TextPart::Text(self.take(1).to_owned()));
        }
        if bracket && self.rest.starts_with("${") {
            path.push(TextPart::Inter(self.inter()?));
        } else {
            let length = self
                .rest
                .find(|c| "\\{}()[]:. \t'\"".contains(c))
                .unwrap_or(self.rest.len());
            if length == 0 {
                return Err(self.unexpected());
            }
            let key = self.take(length).to_owned();
            let plain = is_id(&key);
            path.push(TextPart::Text(key));
            if !bracket {
                return Ok(plain);
            }
        }
        if !self.rest.starts_with(']') {
            return Err(self.unexpected());
        }
        path.push(TextPart::Text(self.take(1).to_owned()));
        Ok(false)
    }

    /// Parses arguments up to the closing character. A missing one is an empty string.
    fn sequence(&mut self, close: char) -> Result<Vec<ArgumentElement>, String> {
        let mut items = Vec::new();
        let mut wanting = false;
        loop {
            self.spaces();
            if self.rest.starts_with(close) {
                if wanting {
                    items.push(ArgumentElement::Plain(ConfigValue::Str(String::new())));
                }
                self.take(1);
                return Ok(items);
            }
            if self.rest.starts_with(',') {
                if wanting || items.is_empty() {
                    items.push(ArgumentElement::Plain(ConfigValue::Str(String::new())));
                }
                self.take(1);
                wanting = true;
                continue;
            }
            if !wanting && !items.is_empty() {
                return Err(self.unexpected());
            }
            items.push(self.element()?);
            wanting = false;
        }
    }

    fn element(&mut self) -> Result<ArgumentElement, String> {
        self.deeper()?;
        let element = match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                self.take(1);
                ArgumentElement::Quoted(self.text(Some(quote))?)
            }
            Some('[') => {
                self.take(1);
                ArgumentElement::List(self.sequence(']')?)
            }
            Some('{') => {
                self.take(1);
                self.mapping()?
            }
            _ => self.words()?,
        };
        self.depth -= 1;
        Ok(element)
    }

    fn mapping(&mut self) -> Result<ArgumentElement, String> {
        let mut entries = Vec::new();
        self.spaces();
        while !self.rest.starts_with('}') {
            if !entries.is_empty() {
                self.expect(",")?;
                self.spaces();
            }
            let key = self.key()?;
            self.spaces();
            self.expect(":")?;
            self.spaces();
            entries.push((key, self.element()?));
            self.spaces();
        }
        self.take(1);
        Ok(ArgumentElement::Map(entries))
    }

    fn key(&mut self) -> Result<MapKey, String> {
        let mut words = Vec::new();
        while let Some((kind, length)) = literal::word(self.rest) {
            words.push((kind, self.take(length)));
        }
        while words.last().is_some_and(|(kind, _)| *kind == TokenKind::Space) {
            words.pop();
        }
        if words.is_empty() {
            return Err(self.unexpected());
        }
        match literal::value(&words)? {
            ConfigValue::Str(text) => Ok(MapKey::Str(text)),
            ConfigValue::Int(number) => Ok(MapKey::Int(number)),
            ConfigValue::Float(number) => Ok(MapKey::Float(number)),
            ConfigValue::Bool(value) => Ok(MapKey::Bool(value)),
            _ => Err("a key cannot be null".to_owned()),
        }
    }

    /// Parses a run of words, colons and interpolations. Spaces before the terminator belong to the terminator.
    fn words(&mut self) -> Result<ArgumentElement, String> {
        let mut words: Vec<(TokenKind, &'a str)> = Vec::new();
        let mut parts = Vec::new();
        let mut mixed = false;
        loop {
            let ahead = self.rest.trim_start_matches([' ', '\t']);
            if ahead.is_empty() && self.rest.len() == ahead.len() || ahead.starts_with([',', '}', ']']) {
                break;
            }
            if let Some(after) = ahead.strip_prefix(':') {
                let after = after.trim_start_matches([' ', '\t']);
                let length = self.rest.len() - after.len();
                // A colon is a word of its own; two in a row make a string like any other run.
                words.push((TokenKind::Mark, self.take(length)));
            } else if self.rest.starts_with("${") {
                mixed = true;
                parts.extend(
                    words
                        .drain(..)
                        .map(|(kind, text)| TextPart::Text(literal::unescaped(kind, text))),
                );
                parts.push(TextPart::Inter(self.inter()?));
            } else if let Some((kind, length)) = literal::word(self.rest) {
                words.push((kind, self.take(length)));
            } else {
                return Err(self.unexpected());
            }
        }
        if mixed {
            parts.extend(
                words
                    .drain(..)
                    .map(|(kind, text)| TextPart::Text(literal::unescaped(kind, text))),
            );
            return Ok(ArgumentElement::Unquoted(parts));
        }
        if words.is_empty() {
            return Err(self.unexpected());
        }
        literal::value(&words).map(ArgumentElement::Plain)
    }

    fn deeper(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            Err(format!("nested deeper than {MAX_NESTING} levels"))
        } else {
            Ok(())
        }
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.unexpected()),
        }
    }

    fn unexpected(&self) -> String {
        match self.rest.chars().next() {
            Some(c) => format!("unexpected {c:?}"),
            None => "it ends too early".to_owned(),
        }
    }
}

fn push_text(parts: &mut Vec<TextPart>, out: &mut String) {
    if !out.is_empty() {
        parts.push(TextPart::Text(std::mem::take(out)));
    }
}

fn is_id(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}
