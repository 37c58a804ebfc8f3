//! The end of a worker's output.

use super::super::terminal::{as_printed, shown};
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
