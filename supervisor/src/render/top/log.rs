//! The end of a worker's output.

use super::super::terminal::shown;
use super::fold::{faint, plain, toned, wrapped};
use super::{TopQuery, TopState};
use crate::render::sign::StatusTone;
use ratatui::text::Line;

pub(super) fn draw(top: &TopState, width: usize) -> Vec<Line<'static>> {
    let wants = top.wants();
    let TopQuery::Log {
        attempt, worker, query, ..
    } = &wants
    else {
        return Vec::new();
    };
    let searched = match query.as_str() {
        "" => String::new(),
        text => format!(", lines with \"{}\"", shown(text)),
    };
    let what = format!("attempt {attempt}, worker {worker}{searched}");
    let mut out = Vec::new();
    match &top.output {
        Some((of, Ok((lines, about)))) if *of == wants => {
            for line in lines {
                let pieces = wrapped(&shown(&as_printed(line)), width, 2);
                out.extend(pieces.into_iter().map(|l| Line::from(plain(l))));
            }
            if lines.is_empty() {
                out.push(Line::from(plain("(nothing)")));
            }
            let end = wrapped(&format!("── {what}: {}", shown(about)), width, 3);
            out.extend(end.into_iter().map(|l| Line::from(faint(l))));
        }
        Some((of, Err(why))) if *of == wants => {
            let lines = wrapped(&format!("{what}: {}", shown(why)), width, 2);
            out.extend(lines.into_iter().map(|l| Line::from(toned(l, StatusTone::Odd))));
        }
        _ => out.push(Line::from(faint(format!("{what}: reading …")))),
    }
    out
}

/// A line as a terminal would leave it, without colors: of a redrawn progress bar only the last state.
fn as_printed(line: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_as_a_terminal_would_leave_it() {
        assert_eq!(as_printed("\x1b[31mred\x1b[0m x"), "red x");
        assert_eq!(as_printed("10%\r20%\r30%\r"), "30%");
        assert_eq!(as_printed("a\x1b[2Jb\x1b["), "a\x1b[2Jb\x1b[");
    }
}
