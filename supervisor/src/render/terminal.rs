//! Untrusted text on a terminal: escapes everything that could move the cursor, or hide or forge a line.
//!
//! File names, arguments, variables, worker output and system messages pass through here before they are shown;
//! likely secrets are removed. Escaped are control characters (including ESC, C1 and DEL), bidirectional text marks,
//! and separators that some terminals treat as a newline.

use std::borrow::Cow;
use std::fmt::Write as _;
use supervise_config::{redact_text, redacted};

/// Larger integers become strings in JSON: readers that use floating point would round them.
const EXACT: u64 = 1 << 53;

/// Escapes a single line, including newlines.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Escapes our own lines: newlines stay.
#[must_use]
pub fn block(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

/// Escapes a line with indented continuation lines of our own: no other newline stays.
#[must_use]
pub fn paragraph(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, piece) in text.split('\n').enumerate() {
        if at > 0 {
            out.push_str(if piece.starts_with("  ") { "\n" } else { "\\n" });
        }
        out.push_str(&line(piece));
    }
    out
}

/// Escapes one line and removes likely secrets.
#[must_use]
pub fn shown(text: &str) -> String {
    let open = redacted(text);
    let escaped = match line(&open) {
        Cow::Owned(escaped) => Some(escaped),
        Cow::Borrowed(_) => None,
    };
    escaped.unwrap_or_else(|| open.into_owned())
}

/// A line as a terminal would leave it, without colors: of a redrawn progress bar only the last state.
#[must_use]
pub fn as_printed(line: &str) -> String {
    let last = line.rsplit('\r').find(|l| !l.is_empty()).unwrap_or_default();
    let mut out = String::with_capacity(last.len());
    let mut rest = last;
    while let Some(at) = rest.find("\x1b[") {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let body = &after[2..];
        let end = body.find(|c: char| !matches!(c, '0'..='9' | ';' | ':'));
        match end.filter(|end| body[*end..].starts_with('m')) {
            Some(end) => rest = &body[end + 1..],
            // Not a color sequence: it is shown as an escape.
            None => {
                out.push_str(&after[..2]);
                rest = body;
            }
        }
    }
    out + rest
}

fn escaped(text: &str, stays: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| moves(c) && !stays(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if moves(c) && !stays(c) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns true if a terminal does more with the character than display it in place.
fn moves(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(c: char, out: &mut String) {
    // Writing into a String cannot fail.
    let _ = match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c if u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// Prepares JSON for printing: removes secrets, escapes what a terminal would obey, makes large integers strings.
#[must_use]
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' => string_length(rest),
            '-' | '0'..='9' => rest
                .find(|c: char| !matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9'))
                .unwrap_or(rest.len()),
            _ => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        match c {
            '"' => out.push_str(&json_string(token)),
            '-' | '0'..='9' if is_large(token) => {
                out.push('"');
                out.push_str(token);
                out.push('"');
            }
            _ => out.push_str(token),
        }
        rest = after;
    }
    out
}

fn string_length(text: &str) -> usize {
    let mut skip = false;
    for (at, b) in text.bytes().enumerate().skip(1) {
        match b {
            _ if skip => skip = false,
            b'\\' => skip = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_large(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let whole = digits.bytes().all(|b| b.is_ascii_digit());
    whole && digits.parse::<u64>().map_or(!digits.is_empty(), |n| n > EXACT)
}

fn json_string(quoted: &str) -> String {
    let plain: Option<String> = serde_json::from_slice(quoted.as_bytes()).ok();
    let hidden = plain.as_deref().map(redact_text).filter(|h| Some(h) != plain.as_ref());
    let text = hidden.and_then(|h| serde_json::to_string(&h).ok());
    let text = text.as_deref().unwrap_or(quoted);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if moves(c) {
            // All these characters are below U+10000, where JSON has a single escape for each.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Parser state between two pieces of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Within {
    #[default]
    Text,
    Escape,
    Sequence,
}

/// Longest parameter sequence that may set a color.
const PARAMETERS: usize = 32;

/// Filters worker output for a terminal: only colors pass.
#[derive(Debug, Default)]
pub struct OutputFilter {
    within: Within,
    /// Bytes of an unfinished escape sequence or character.
    held: Vec<u8>,
    coloured: bool,
    returned: bool,
}

impl OutputFilter {
    /// Filters the next piece.
    #[must_use]
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 16);
        for b in bytes {
            self.byte(*b, &mut out);
        }
        out
    }

    /// Returns what is left at the end, and resets the colors.
    #[must_use]
    pub fn end(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.give_up(&mut out);
        if std::mem::take(&mut self.returned) {
            out.push(b'\n');
        }
        if std::mem::take(&mut self.coloured) {
            out.extend_from_slice(b"\x1b[0m");
        }
        out
    }

    fn byte(&mut self, b: u8, out: &mut Vec<u8>) {
        // A carriage return would overwrite the line: start a new line instead.
        if std::mem::take(&mut self.returned) && b != b'\r' {
            out.push(b'\n');
            if b == b'\n' {
                return;
            }
        }
        match (self.within, b) {
            (Within::Escape, b'[') => {
                self.held.push(b);
                self.within = Within::Sequence;
            }
            (Within::Sequence, b'0'..=b'9' | b';' | b':') if self.held.len() < PARAMETERS => self.held.push(b),
            (Within::Sequence, b'm') => {
                self.held.push(b);
                out.append(&mut self.held);
                self.within = Within::Text;
                self.coloured = true;
            }
            (Within::Escape | Within::Sequence, _) => {
                self.give_up(out);
                self.byte(b, out);
            }
            (Within::Text, _) => self.text(b, out),
        }
    }

    fn text(&mut self, b: u8, out: &mut Vec<u8>) {
        if !self.held.is_empty() && !(0x80..0xc0).contains(&b) {
            self.give_up(out);
        }
        match b {
            b'\n' | b'\t' | b' '..=b'~' => out.push(b),
            b'\r' => self.returned = true,
            0x1b => {
                self.held.push(b);
                self.within = Within::Escape;
            }
            0x80.. => self.wide(b, out),
            _ => out.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
        }
    }

    fn wide(&mut self, b: u8, out: &mut Vec<u8>) {
        self.held.push(b);
        match std::str::from_utf8(&self.held) {
            Ok(whole) => {
                out.extend_from_slice(line(whole).as_bytes());
                self.held.clear();
            }
            Err(e) if e.error_len().is_some() => self.give_up(out),
            Err(_) => {}
        }
    }

    /// The held bytes may not pass: show them escaped.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.within = Within::Text;
        for b in self.held.drain(..) {
            match b {
                b' '..=b'~' => out.push(b),
                _ => out.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_as_an_escape() {
        let hostile = "a\x1b[2J\r\n\t\u{9b}x\u{7f}\u{202e}b\u{2028}ä";
        assert_eq!(line(hostile), r"a\x1b[2J\r\n\t\x9bx\x7f\u{202e}b\u{2028}ä");
        assert_eq!(block("a\nb\x07"), "a\nb\\x07");
        assert_eq!(paragraph("a\n  b\x07\nforged"), "a\n  b\\x07\\nforged");
        assert!(matches!(line("plain ä 漢"), Cow::Borrowed(_)));
        assert_eq!(shown("x=hf_abcdefghijklmnopqrst\n"), r"x=***\n");
    }

    #[test]
    fn json_stays_json_and_says_the_same() {
        let value = serde_json::json!({
            "big": u64::MAX, "small": 1_u64 << 53, "negative": i64::MIN, "float": 1.5e300,
            "text": "a\u{9b}\u{202e}\"\\\n", "digits": "18446744073709551615", "key": "ghp_abcdefghijklmnop",
        });
        let printed = json(&value.to_string());
        assert!(!printed.chars().any(moves), "{printed}");
        let back: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(back["big"], "18446744073709551615");
        assert_eq!(back["negative"], "-9223372036854775808");
        assert_eq!(back["small"], 1_u64 << 53);
        assert_eq!(back["float"], 1.5e300);
        assert_eq!(back["text"], value["text"]);
        assert_eq!(back["digits"], value["digits"]);
        assert_eq!(back["key"], "***");
    }

    #[test]
    fn a_line_is_shown_as_a_terminal_would_leave_it() {
        assert_eq!(as_printed("\x1b[31mred\x1b[0m x"), "red x");
        assert_eq!(as_printed("10%\r20%\r30%\r"), "30%");
        assert_eq!(as_printed("a\x1b[2Jb\x1b["), "a\x1b[2Jb\x1b[");
    }

    #[test]
    fn of_a_workers_output_only_colours_pass() {
        let text = b"\x1b[31mred\x1b[0m \x1b[2Jup\x1b[1A \x1b]0;title\x07 \x1bPq\x1b\\ \x08\r\nbar 1\rbar 2\n\xc2\x9bx\xff\xe2\x80\xaeend \xe2\x9c\x93";
        let expected = "\x1b[31mred\x1b[0m \\x1b[2Jup\\x1b[1A \\x1b]0;title\\x07 \\x1bPq\\x1b\\ \\x08\nbar 1\nbar 2\n\\x9bx\\xff\\u{202e}end ✓\x1b[0m";
        for size in [1, 2, 3, 7, text.len()] {
            let mut filter = OutputFilter::default();
            let mut out: Vec<u8> = text.chunks(size).flat_map(|c| filter.pass(c)).collect();
            out.extend(filter.end());
            assert_eq!(String::from_utf8(out).unwrap(), expected, "in pieces of {size}");
        }
    }
}
