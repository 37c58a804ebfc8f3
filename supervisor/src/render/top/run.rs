//! One run: its state, its attempts, and the latest observations and decisions.

use super::super::explain::TimelineLine;
use super::super::sign::sign;
use super::super::terminal::line as escaped;
use super::TopState;
use super::fold::{plain, strong, toned, wrapped};
use ratatui::text::Line;

const TOLD: usize = 40;

/// Draws it at full length; scrolling cuts it.
pub(super) fn draw(top: &TopState, width: usize) -> Vec<Line<'static>> {
    let Some(view) = top.view() else {
        return vec![Line::default(), Line::from(plain("  reading …"))];
    };
    let mut out = Vec::new();
    let (tone, mark) = sign(view);
    for (n, text) in view.text_with(top.curves).lines().enumerate() {
        let text = escaped(text);
        // The sign is in front of the first line.
        let (room, indent) = if n == 0 {
            (width.saturating_sub(2), 2)
        } else {
            (width, 15)
        };
        for (m, piece) in wrapped(&text, room, indent).into_iter().enumerate() {
            out.push(match (n, m) {
                (0, 0) => Line::from(vec![toned(format!("{mark} "), tone), strong(piece)]),
                _ => Line::from(plain(piece)),
            });
        }
    }
    let story = match &top.story {
        Some((run, story)) if *run == view.run => story,
        _ => return out,
    };
    let mut more = |head: &str, texts: Vec<String>| {
        out.push(Line::default());
        out.push(Line::from(strong(head)));
        let lines = texts.iter().flat_map(|t| t.lines()).flat_map(|t| wrapped(t, width, 4));
        out.extend(lines.map(|l| Line::from(plain(l))));
    };
    match story {
        Err(why) => more("its story cannot be told now", vec![escaped(why).into_owned()]),
        Ok(story) => {
            let attempts = story.attempts.iter().rev().filter(|s| s.attempt > 0);
            more(
                "attempts, the newest first",
                attempts.map(|s| escaped(s.brief().trim_end()).into_owned()).collect(),
            );
            if let Some(newest) = story.attempts.last() {
                let from = newest.told.len().saturating_sub(TOLD);
                let told = newest.told.iter().skip(from).rev();
                more(
                    "seen and decided in the newest, the last first",
                    told.map(TimelineLine::local).collect(),
                );
            }
        }
    }
    out
}
