//! Syntax on which the trainer's loader and the parser crate disagree.
//!
//! The loader implements YAML 1.1, the crate YAML 1.2. Whatever the loader rejects is rejected here too: tabs between tokens, `?` inside
//! plain scalars of flow collections, odd anchor names. Block scalars at the very end of a text end as the loader ends them.

use std::cell::Cell;

/// A position in a text: line from one, column from zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct YamlPos {
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeSpan {
    pub(super) start: YamlPos,
    pub(super) end: YamlPos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum YamlStyle {
    Plain,
    Quoted,
    Block,
}

/// The lines of a text, for looking up positions.
pub(super) struct YamlText<'a> {
    text: &'a str,
    lines: Vec<&'a str>,
    /// Quoted and block scalars, in order: their content is not syntax.
    opaque: Vec<NodeSpan>,
    /// The last position looked up: positions come in order, and lines may be very long.
    last: Cell<(YamlPos, usize)>,
}

impl<'a> YamlText<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            lines: text.split('\n').collect(),
            opaque: Vec::new(),
            last: Cell::default(),
        }
    }

    fn from(&self, mark: YamlPos) -> Option<&'a str> {
        self.text.get(self.offset(mark)?..)
    }

    fn offset(&self, mark: YamlPos) -> Option<usize> {
        let line = self.lines.get(mark.line.checked_sub(1)?)?;
        let start = line.as_ptr() as usize - self.text.as_ptr() as usize;
        let (last, known) = self.last.get();
        let (from, column) = if last.line == mark.line && last.column <= mark.column {
            (known - start, last.column)
        } else {
            (0, 0)
        };
        let rest = line.get(from..)?;
        let ahead = rest
            .char_indices()
            .nth(mark.column - column)
            .map_or(rest.len(), |(at, _)| at);
        let offset = start + from + ahead;
        self.last.set((mark, offset));
        Some(offset)
    }

    /// Whether a list or mapping that begins there uses brackets or braces.
    pub(super) fn is_flow(&self, span: NodeSpan) -> bool {
        self.from(span.start).is_some_and(|text| text.starts_with(['[', '{']))
    }

    /// Returns the name of the anchor before a node: events have numbers only.
    pub(super) fn anchor_name(&self, span: NodeSpan) -> Option<&'a str> {
        let before = self.text.get(..self.offset(span.start)?)?;
        let name = &before[before.rfind('&')? + 1..];
        let end = name
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '{' | '}'))
            .unwrap_or(name.len());
        Some(&name[..end])
    }

    pub(super) fn note_scalar(&mut self, span: NodeSpan, style: YamlStyle) {
        if style != YamlStyle::Plain {
            self.opaque.push(span);
        }
    }

    /// Returns the problem of a plain scalar inside brackets or braces.
    pub(super) fn refuse_in_flow(&self, text: &str, style: YamlStyle, bare_tag: bool) -> Option<String> {
        if style != YamlStyle::Plain {
            return None;
        }
        if bare_tag && text.is_empty() {
            return Some("a lone '!' is not allowed in a list".to_owned());
        }
        let bad = text
            .contains('?')
            .then_some('?')
            .or_else(|| text.chars().next().filter(|c| matches!(c, '|' | '>' | ':')))?;
        Some(format!("'{bad}' has to be quoted inside brackets and braces"))
    }

    /// Returns the content of a block scalar as the loader does.
    pub(super) fn block_content(&self, text: String, style: YamlStyle, span: NodeSpan) -> String {
        if style != YamlStyle::Block {
            return text;
        }
        // The position points at the header instead of the content only if nothing follows.
        let source = self.from(span.start).filter(|source| source.starts_with(['|', '>']));
        if let Some(source) = source
            && text.bytes().all(|byte| byte == b'\n')
        {
            let (header, rest) = source.split_once('\n').unwrap_or((source, ""));
            let keeps = header.split('#').next().is_some_and(|header| header.contains('+'));
            return if keeps && !rest.is_empty() { text } else { String::new() };
        }
        // If the file does not end with a line break, neither does the last line.
        let last = self.lines.last().map_or("", |line| line.trim());
        let content = text.trim_end_matches('\n');
        let at_end = !last.is_empty() && content.trim_end().ends_with(last) && self.ends_at_file_end(span);
        if at_end { content.to_owned() } else { text }
    }

    fn ends_at_file_end(&self, span: NodeSpan) -> bool {
        span.end.line >= self.lines.len()
    }

    pub(super) fn stray_tab(&self) -> Option<(u32, u32)> {
        if !self.text.contains('\t') {
            return None;
        }
        let mut opaque = self.opaque.iter().peekable();
        for (number, line) in self.lines.iter().enumerate() {
            let mut before = ' ';
            for (column, c) in line.chars().enumerate() {
                let here = YamlPos {
                    line: number + 1,
                    column,
                };
                while opaque.next_if(|span| span.end <= here).is_some() {}
                let inside = opaque.peek().is_some_and(|span| span.start <= here);
                if !inside && c == '#' && before.is_whitespace() {
                    break;
                }
                if !inside && c == '\t' {
                    let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
                    return Some((narrow(number + 1), narrow(column + 1)));
                }
                before = c;
            }
        }
        None
    }
}
