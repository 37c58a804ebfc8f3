//! Fitting text into a number of columns.

use super::super::sign::StatusTone;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(super) fn plain(text: impl Into<String>) -> Span<'static> {
    Span::raw(text.into())
}

pub(super) fn strong(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

pub(super) fn faint(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::DIM))
}

pub(super) fn toned(text: impl Into<String>, tone: StatusTone) -> Span<'static> {
    let style = match tone {
        StatusTone::Good => Style::new().fg(Color::Green),
        StatusTone::Calm => Style::new(),
        StatusTone::Odd => Style::new().fg(Color::Yellow),
        StatusTone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    };
    Span::styled(text.into(), style)
}

pub(super) fn width(text: &str) -> usize {
    text.width()
}

fn start_of(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or_default();
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// Truncates the end, with a mark.
pub(super) fn begin_of(text: &str, columns: usize) -> String {
    match width(text) <= columns {
        true => text.to_owned(),
        false => format!("{}…", start_of(text, columns.saturating_sub(1))),
    }
}

/// Truncates the beginning, with a mark: paths differ at the end.
pub(super) fn end_of(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |(at, c): (usize, char)| {
        used += c.width().unwrap_or_default();
        (used <= columns).then_some(at)
    };
    let from = text.char_indices().rev().map_while(fits).last().unwrap_or(text.len());
    format!("…{}", &text[from..])
}

/// Pads on the right.
pub(super) fn padded(text: &str, columns: usize) -> String {
    let text = begin_of(text, columns);
    let gap = columns.saturating_sub(width(&text));
    text + &" ".repeat(gap)
}

/// Pads on the left.
pub(super) fn aligned(text: &str, columns: usize) -> String {
    let text = begin_of(text, columns);
    " ".repeat(columns.saturating_sub(width(&text))) + &text
}

pub(super) fn clip(line: Line<'static>, columns: usize) -> Line<'static> {
    if line.width() <= columns {
        return line;
    }
    let mut left = columns;
    let mut spans = Vec::new();
    for span in line.spans {
        let text = start_of(&span.content, left).to_owned();
        left -= width(&text);
        spans.push(Span::styled(text, span.style));
    }
    Line::from(spans).style(line.style)
}

/// Wraps a text; lines after the first begin with `indent` spaces.
pub(super) fn wrapped(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let indent = if indent * 2 < columns { indent } else { 0 };
    let mut out = Vec::new();
    let mut rest = text;
    let mut lead = String::new();
    loop {
        let room = columns.saturating_sub(lead.len()).max(1);
        if width(rest) <= room {
            out.push(lead + rest);
            return out;
        }
        let most = start_of(rest, room);
        // Break between words unless that leaves a short line; take at least one character, even a wide one.
        let at = most.rfind(' ').map(|at| at + 1).filter(|at| *at * 2 > most.len());
        let at = at
            .unwrap_or(most.len())
            .max(rest.chars().next().map_or(1, char::len_utf8));
        let (line, after) = rest.split_at(at);
        out.push(lead + line.trim_end());
        if after.is_empty() {
            return out;
        }
        lead = " ".repeat(indent);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_the_screen_ends() {
        assert_eq!(begin_of("abcdef", 4), "abc…");
        assert_eq!(end_of("/a/long/path", 6), "…/path");
        assert_eq!(end_of("漢字漢字", 5), "…漢字");
        assert_eq!(padded("漢", 4), "漢  ");
        assert_eq!(aligned("7", 3), "  7");
        assert_eq!(wrapped("one two three", 9, 2), ["one two", "  three"]);
        assert_eq!(wrapped("x漢漢漢", 1, 0), ["x", "漢", "漢", "漢"]);
        assert_eq!(wrapped("", 9, 2), [""]);
        assert_eq!(clip(Line::from(vec![strong("ab"), faint("cd")]), 3).to_string(), "abc");
    }
}
