//! Lines of styled text that fit into a number of columns.

use crate::render::columns::{start_of, width};
use crate::render::sign::StatusTone;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

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
    fn lines_wrap_where_the_screen_ends() {
        assert_eq!(wrapped("one two three", 9, 2), ["one two", "  three"]);
        assert_eq!(wrapped("x漢漢漢", 1, 0), ["x", "漢", "漢", "漢"]);
        assert_eq!(wrapped("", 9, 2), [""]);
        assert_eq!(clip(Line::from(vec![strong("ab"), faint("cd")]), 3).to_string(), "abc");
    }
}
