//! The chart of a run: its step over wall time, attempts as bands, proven steps as marks, failures as lines.

use super::super::one_line;
use super::super::time::stamp;
use super::curves::{Curves, MetricRows};
use super::px;
use super::thinned::{Thinned, spread};
use maud::{Markup, html};
use serde::Serialize;
use std::collections::VecDeque;
use supervise_core::event::EventKind;
use supervise_core::id::{Step, WallMs};
use supervise_core::journal::record::{Decision, JournalRecord};
use supervise_core::state::RunState;

/// Points kept: if there are more, every other one is dropped.
const POINTS: usize = 12_000;
/// Points and marks of the picture without scripts.
const DRAWN: usize = 400;
const MARKS: usize = 100;
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
    /// Number of the journal record.
    record: u64,
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
    /// Number of records.
    records: u64,
}

/// What the script draws; times are in seconds.
#[derive(Debug, Serialize)]
pub struct ChartData {
    name: String,
    live: bool,
    seen: u64,
    attempts: Vec<AttemptSpan>,
    /// When a step was proven.
    marks: Vec<(f64, u64)>,
    /// Attempt, time, step.
    points: Vec<(u32, f64, u64)>,
    metrics: Vec<MetricRows>,
}

#[derive(Debug, Serialize)]
struct AttemptSpan {
    attempt: u32,
    from: f64,
    to: f64,
    start: u64,
    class: Option<String>,
}

fn seconds(at: WallMs) -> f64 {
    at.0 as f64 / 1000.0
}

impl Default for RunChart {
    fn default() -> Self {
        Self {
            points: Thinned::new(POINTS),
            bands: VecDeque::new(),
            marks: VecDeque::new(),
            curves: Curves::default(),
            records: 0,
        }
    }
}

impl RunChart {
    /// Adds a record; `s` is the state after it.
    pub fn note(&mut self, s: &RunState, r: &JournalRecord) {
        self.records += 1;
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
            self.curves.add((self.records, s.wall), attempt.0, now, steps);
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
        let record = self.records;
        let point = PicturePoint {
            attempt,
            at,
            step,
            record,
        };
        self.points.push(point, first);
    }

    /// What came after a record, for the script.
    #[must_use]
    pub fn since(&self, record: u64, name: &str, live: bool) -> ChartData {
        // A count that was never reached is from before the journal was read again.
        let after = if record > self.records { 0 } else { record };
        let span = |b: &Band| AttemptSpan {
            attempt: b.attempt,
            from: seconds(b.from),
            to: seconds(b.to),
            start: b.start,
            class: b.class.as_ref().map(|class| one_line(class, 100)),
        };
        let new = self.points.iter().filter(|p| p.record > after);
        ChartData {
            name: name.to_owned(),
            live,
            seen: self.records,
            attempts: self.bands.iter().map(span).collect(),
            marks: self.marks.iter().map(|(at, step)| (seconds(*at), step.0)).collect(),
            points: new.map(|p| (p.attempt, seconds(p.at), p.step)).collect(),
            metrics: self.curves.since(after),
        }
    }

    pub(super) fn curves(&self) -> &Curves {
        &self.curves
    }

    /// `None`: nothing was launched.
    pub(super) fn drawn(&self) -> Option<Markup> {
        let from = self.bands.front()?.from.0;
        let points = spread(self.points.iter().filter(|p| p.at.0 >= from).collect(), DRAWN);
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
                @for (at, step) in spread(self.marks.iter().copied().collect(), MARKS) {
                    circle.proven cx=(px(x(at))) cy=(px(y(step.0))) r="4" { title { "step " (step) " is proven" } }
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
