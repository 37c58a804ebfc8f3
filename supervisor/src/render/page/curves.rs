//! Curves of the metrics that the trainer printed (loss, reward, …): for the script that draws them, and without it as tables and
//! small pictures, one line per attempt.

use super::super::status::short;
use super::px;
use super::table::{Cell, plain};
use super::thinned::{Thinned, spread};
use super::when;
use maud::{Markup, html};
use serde::Serialize;
use supervise_core::id::{Step, WallMs};
use supervise_core::observe::numbers::{KEPT, MetricValue, StepNumbers, TrainingMetric};

const POINTS: usize = 12_000;
/// Points of a small picture.
const DRAWN: usize = 200;
/// Rows of a table.
const ROWS: usize = 25;
/// Size of a curve in SVG units.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 130.0;
const LEFT: f64 = 56.0;
const ABOVE: f64 = 8.0;
/// Height of the axis labels.
const BELOW: f64 = 20.0;

#[derive(Debug, Clone, Copy, PartialEq)]
struct CurvePoint {
    attempt: u32,
    step: u64,
    at: WallMs,
    value: f64,
    /// Number of the journal record.
    record: u64,
}

/// A metric for the script: attempt, step, time in seconds, value.
#[derive(Debug, Serialize)]
pub(super) struct MetricRows {
    name: &'static str,
    rows: Vec<(u32, u64, f64, MetricValue)>,
}

#[derive(Debug, Clone)]
pub(super) struct Curves(Vec<(TrainingMetric, Thinned<CurvePoint>)>);

impl Default for Curves {
    fn default() -> Self {
        Self(KEPT.map(|what| (what, Thinned::new(POINTS))).into())
    }
}

impl Curves {
    /// Adds the numbers of a record; those without a step belong to step `now`.
    pub(super) fn add(&mut self, (record, at): (u64, WallMs), attempt: u32, now: Step, steps: &[StepNumbers]) {
        for numbers in steps {
            for (what, points) in &mut self.0 {
                if let Some(value) = numbers.of.get(*what) {
                    let point = CurvePoint {
                        attempt,
                        step: numbers.step.unwrap_or(now).0,
                        at,
                        value,
                        record,
                    };
                    let first = points.last().is_none_or(|p| p.attempt != attempt);
                    // Always keep non-finite values: they are what users look for.
                    points.push(point, first || !value.is_finite());
                }
            }
        }
    }

    /// What came after a record.
    pub(super) fn since(&self, record: u64) -> Vec<MetricRows> {
        let rows = |points: &Thinned<CurvePoint>| {
            let new = points.iter().filter(|p| p.record > record);
            new.map(|p| (p.attempt, p.step, p.at.0 as f64 / 1000.0, MetricValue(p.value)))
                .collect()
        };
        let all = self.0.iter().map(|(what, points)| MetricRows {
            name: what.words(),
            rows: rows(points),
        });
        all.filter(|metric| !metric.rows.is_empty()).collect()
    }

    /// Each metric as a table. `None`: no metric was printed.
    pub(super) fn tables(&self) -> Option<Markup> {
        let shown: Vec<(&str, Vec<CurvePoint>)> = self
            .0
            .iter()
            .map(|(what, points)| (what.words(), spread(points.iter().collect(), ROWS)))
            .filter(|(_, points)| !points.is_empty())
            .collect();
        let row = |p: &CurvePoint| -> Vec<Cell> {
            vec![
                (None, html! { (p.step) }),
                (None, html! { (short(p.value)) }),
                (None, html! { (p.attempt) }),
                (None, when(p.at)),
            ]
        };
        (!shown.is_empty()).then(|| {
            html! {
                @for (name, points) in &shown {
                    details id={ "table-" (name.replace(' ', "-")) } {
                        summary { (name) ": " (points.last().map_or_else(String::new, |p| format!("{} at step {}", short(p.value), p.step))) }
                        (plain(&["Step", name, "Attempt", "Time"], points.iter().map(row)))
                    }
                }
            }
        })
    }

    /// `None`: no metric was printed.
    pub(super) fn drawn(&self) -> Option<Markup> {
        let drawn: Vec<Markup> = self.0.iter().filter_map(|(what, points)| one(*what, points)).collect();
        (!drawn.is_empty()).then(|| {
            html! {
                div.curves { @for curve in &drawn { (curve) } }
                p.soft { "A line for each attempt, by step, as the trainer printed it. Dashes: no number." }
            }
        })
    }
}

fn one(what: TrainingMetric, points: &Thinned<CurvePoint>) -> Option<Markup> {
    let newest = points.last()?;
    let all = spread(points.iter().collect(), DRAWN);
    let finite = || all.iter().filter(|p| p.value.is_finite());
    let odd: Vec<&CurvePoint> = all.iter().filter(|p| !p.value.is_finite()).collect();
    let (mut low, mut high) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| {
        (low.min(p.value), high.max(p.value))
    });
    if low > high {
        (low, high) = (0.0, 0.0);
    }
    let from = all.iter().map(|p| p.step).min()?;
    let to = all.iter().map(|p| p.step).max()?.max(from + 1);
    let x = |step: u64| LEFT + (WIDTH - LEFT) * (step - from) as f64 / (to - from) as f64;
    // Halved, because the difference of the largest finite numbers overflows.
    let span = (high / 2.0 - low / 2.0).max(f64::MIN_POSITIVE);
    let y = |value: f64| ABOVE + (HEIGHT - ABOVE - BELOW) * (1.0 - (value / 2.0 - low / 2.0) / span);
    let mut attempts: Vec<u32> = all.iter().map(|p| p.attempt).collect();
    attempts.dedup();
    let line = |attempt: u32| {
        let of = finite().filter(|p| p.attempt == attempt);
        let texts: Vec<String> = of.map(|p| format!("{:.1},{:.1}", x(p.step), y(p.value))).collect();
        texts.join(" ")
    };
    let name = what.words();
    let words = format!(
        "{name} by step, from step {from} to {}: lowest {}, highest {}, last {}",
        newest.step,
        short(low),
        short(high),
        short(newest.value)
    );
    let bottom = HEIGHT - BELOW;
    Some(html! {
        figure {
            figcaption { (name) " " b { (short(newest.value)) } " at step " (newest.step) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words) {
                line.axis x1=(LEFT) y1=(px(bottom)) x2=(WIDTH) y2=(px(bottom)) {}
                @for attempt in &attempts { polyline.curve.again[attempt % 2 == 0] points=(line(*attempt)) { title { "attempt " (attempt) } } }
                @for p in &odd {
                    line.fault x1=(px(x(p.step))) y1=(px(ABOVE)) x2=(px(x(p.step))) y2=(px(bottom)) { title { "step " (p.step) ": " (short(p.value)) } }
                }
                text x=(px(LEFT - 6.0)) y="16" text-anchor="end" { (short(high)) }
                text x=(px(LEFT - 6.0)) y=(px(bottom)) text-anchor="end" { (short(low)) }
                text x=(px(LEFT)) y=(px(HEIGHT - 4.0)) { (from) }
                text x=(px(WIDTH)) y=(px(HEIGHT - 4.0)) text-anchor="end" { (to) }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::observe::numbers::StepMetrics;

    fn printed(step: u64, loss: f64) -> StepNumbers {
        let mut of = StepMetrics::default();
        of.set(TrainingMetric::Loss, loss);
        StepNumbers {
            step: Some(Step(step)),
            of,
        }
    }

    #[test]
    fn relaunches_and_what_is_no_number_are_drawn_in_and_a_long_run_is_no_larger() {
        let mut curves = Curves::default();
        assert!(curves.drawn().is_none());
        curves.add(
            (1, WallMs(0)),
            1,
            Step(0),
            &(1..=50_000).map(|n| printed(n, 1.0 / n as f64)).collect::<Vec<_>>(),
        );
        curves.add(
            (2, WallMs(1000)),
            2,
            Step(0),
            &[printed(49_990, 0.5), printed(49_991, f64::NAN), printed(49_992, 0.25)],
        );
        let page = curves.drawn().unwrap().into_string();
        assert!(page.contains("highest 1.000, last 0.2500"), "{page}");
        assert!(page.contains("loss <b>0.2500</b> at step 49992"), "{page}");
        assert!(page.len() < 8_000, "{}", page.len());
        let rows = curves.since(0).remove(0).rows;
        assert!((6_000..12_100).contains(&rows.len()), "{}", rows.len());
        let new = serde_json::to_string(&curves.since(1)).unwrap();
        assert_eq!(
            new,
            r#"[{"name":"loss","rows":[[2,49990,1.0,0.5],[2,49991,1.0,"nan"],[2,49992,1.0,0.25]]}]"#
        );
        let table = curves.tables().unwrap().into_string();
        assert!(
            table.contains("loss: 0.2500 at step 49992") && table.len() < 8_000,
            "{table}"
        );
    }

    #[test]
    fn the_largest_numbers_and_a_single_one_have_a_place() {
        for values in [
            vec![f64::MAX, f64::MIN],
            vec![3.0],
            vec![f64::NAN],
            vec![f64::INFINITY, 1.0],
        ] {
            let mut curves = Curves::default();
            let steps: Vec<_> = values.iter().zip(7..).map(|(v, n)| printed(n, *v)).collect();
            curves.add((1, WallMs(0)), 1, Step(0), &steps);
            let page = curves.drawn().unwrap().into_string();
            let line = page.split_once("points=\"").unwrap().1.split('"').next().unwrap();
            assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
        }
    }
}
