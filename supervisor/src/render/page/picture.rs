//! The chart of a run: its step over wall time, attempts as bands, proven steps as marks, failures as lines.

use super::super::one_line;
use super::super::time::stamp;
use super::curves::Curves;
use super::px;
use super::thinned::Thinned;
use maud::{Markup, html};
use std::collections::VecDeque;
use supervise_core::event::EventKind;
use supervise_core::id::{Step, WallMs};
use supervise_core::journal::record::{Decision, JournalRecord};
use supervise_core::state::RunState;

/// Points kept: if there are more, every other one is dropped.
const POINTS: usize = 2000;
const KEPT: usize = 500;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
/// Height of the axis labels.
const BELOW: f64 = 22.0;
const LEFT: f64 = 48.0;

#[derive(Debug, Clone, Copy, PartialEq)]
struct PicturePoint {
    attempt: u32,
    at: WallMs,
    step: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Band {
    attempt: u32,
    from: WallMs,
    to: WallMs,
    start: u64,
    class: Option<String>,
    gone: bool,
}

/// Data of the chart, collected while reading a journal.
#[derive(Debug, Clone)]
pub struct RunChart {
    points: Thinned<PicturePoint>,
    bands: VecDeque<Band>,
    marks: VecDeque<(WallMs, Step)>,
    curves: Curves,
}

impl Default for RunChart {
    fn default() -> Self {
        Self {
            points: Thinned::new(POINTS),
            bands: VecDeque::new(),
            marks: VecDeque::new(),
            curves: Curves::default(),
        }
    }
}

impl RunChart {
    /// Adds a record; `s` is the state after it.
    pub fn note(&mut self, s: &RunState, r: &JournalRecord) {
        if let JournalRecord::Decided {
            what: Decision::Mark { step },
            ..
        } = r
        {
            push(&mut self.marks, (s.wall, *step));
        }
        if let JournalRecord::Fact(event) = r
            && let EventKind::Numbers { attempt, steps } = &event.kind
        {
            let now = s.attempt.as_ref().and_then(|a| a.training.step).unwrap_or_default();
            self.curves.add(attempt.0, now, steps);
        }
        let Some(a) = s.attempt.as_ref().filter(|a| a.launch.launched.is_some()) else {
            return;
        };
        if self.bands.back().is_none_or(|b| b.attempt != a.no.0) {
            let band = Band {
                attempt: a.no.0,
                from: s.wall,
                to: s.wall,
                start: a.order.from.step().0,
                class: None,
                gone: false,
            };
            push(&mut self.bands, band);
            self.point(a.no.0, s.wall, a.order.from.step().0, true);
        }
        if let Some(band) = self.bands.back_mut() {
            if !band.gone {
                band.to = band.to.max(s.wall);
            }
            band.gone |= a.end.gone;
            band.class = a.end.diagnosis.as_ref().map(|d| d.class.to_string());
        }
        if let Some(step) = a.training.step {
            let known = self.points.last().filter(|p| p.attempt == a.no.0);
            if known.is_none_or(|p| p.step != step.0) {
                self.point(a.no.0, s.wall, step.0, false);
            }
        }
    }

    fn point(&mut self, attempt: u32, at: WallMs, step: u64, first: bool) {
        self.points.push(PicturePoint { attempt, at, step }, first);
    }

    pub(super) fn curves(&self) -> Option<Markup> {
        self.curves.drawn()
    }

    /// `None`: nothing was launched.
    pub(super) fn drawn(&self) -> Option<Markup> {
        let from = self.bands.front()?.from.0;
        let points: Vec<PicturePoint> = self.points.iter().filter(|p| p.at.0 >= from).collect();
        let to = self.bands.iter().map(|b| b.to.0).max()?.max(from + 1);
        let high = points.iter().map(|p| p.step).max().unwrap_or_default().max(1);
        let x = |at: WallMs| LEFT + (WIDTH - LEFT) * (at.0 - from).max(0) as f64 / (to - from) as f64;
        let y = |step: u64| 8.0 + (HEIGHT - BELOW - 8.0) * (1.0 - step as f64 / high as f64);
        let line = |attempt: u32| {
            let of = points.iter().filter(|p| p.attempt == attempt);
            let texts: Vec<String> = of.map(|p| format!("{:.1},{:.1}", x(p.at), y(p.step))).collect();
            texts.join(" ")
        };
        let words = format!(
            "Step over wall time from {} to {}: {} attempts, highest step {high}, {} proven steps",
            stamp(WallMs(from)),
            stamp(WallMs(to)),
            self.bands.len(),
            self.marks.len()
        );
        let next = |n: usize| self.bands.get(n + 1);
        Some(html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words) {
                @for (n, b) in self.bands.iter().enumerate() {
                    rect.band x=(px(x(b.from))) y="8" width=(px((x(b.to) - x(b.from)).max(1.0))) height=(px(HEIGHT - BELOW - 8.0)) {
                        title { "attempt " (b.attempt) " from step " (b.start) }
                    }
                    // The next attempt repeats these steps.
                    @if let Some((high, next)) = next(n).and_then(|next| Some((top(&points, b.attempt)?, next))) {
                        @if high > next.start {
                            rect.lost x=(px(x(b.from))) y=(px(y(high))) width=(px((x(b.to) - x(b.from)).max(1.0))) height=(px(y(next.start) - y(high))) {
                                title { (high - next.start) " steps lost at the end of attempt " (b.attempt) }
                            }
                        }
                    }
                }
                line.axis x1=(LEFT) y1=(px(y(0))) x2=(WIDTH) y2=(px(y(0))) {}
                @for b in &self.bands { polyline.steps points=(line(b.attempt)) {} }
                @for b in &self.bands {
                    @if let Some(class) = &b.class {
                        line.fault x1=(px(x(b.to))) y1="8" x2=(px(x(b.to))) y2=(px(y(0))) { title { "attempt " (b.attempt) ": " (one_line(class, 100)) } }
                    }
                }
                @for (at, step) in &self.marks {
                    circle.proven cx=(px(x(*at))) cy=(px(y(step.0))) r="4" { title { "step " (step) " is proven" } }
                }
                text x=(px(LEFT - 6.0)) y="18" text-anchor="end" { (high) }
                text x=(px(LEFT - 6.0)) y=(px(y(0))) text-anchor="end" { "0" }
                text x=(px(LEFT)) y=(px(HEIGHT - 4.0)) { (stamp(WallMs(from))) }
                text x=(px(WIDTH)) y=(px(HEIGHT - 4.0)) text-anchor="end" { (stamp(WallMs(to))) }
            }
            p.soft { "Line: steps. Dots: proven steps. Dashes: failures. Red ground: steps that had to be trained again." }
        })
    }
}

fn top(points: &[PicturePoint], attempt: u32) -> Option<u64> {
    points.iter().filter(|p| p.attempt == attempt).map(|p| p.step).max()
}

fn push<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() >= KEPT {
        list.pop_front();
    }
    list.push_back(item);
}
