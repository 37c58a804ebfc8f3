//! A simulated run, as text and as JSON.

use super::time::span;
use super::{count, percent, terminal::shown};
use serde::Serialize;
use std::collections::BTreeMap;
use supervise_core::id::Ms;
use supervise_core::ledger::{TimeCategory, WaitFor};
use supervise_simulate::band::{SeedBand, SeedSummary};
use supervise_simulate::expected::{GoodputModel, best_interval, least_interval};
use supervise_simulate::plan::SimulationPlan;

/// Points of the curve.
const POINTS: u32 = 33;
/// How far it goes to both sides of the best interval.
const FACTOR: f64 = 16.0;
/// Less than this is not worth a line.
const WORTH: f64 = 0.0005;

/// A simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulateView {
    pub version: u32,
    /// The run whose times were used; `null`: none.
    pub run: Option<String>,
    pub name: Option<String>,
    pub inputs: SimulatedInputs,
    /// Flags whose value comes from the run.
    pub measured: Vec<&'static str>,
    /// Flags whose value nobody gave.
    pub assumed: Vec<&'static str>,
    /// With the given save interval, that of the run, or the best one.
    pub now: SimulatedOption,
    pub best: SimulatedOption,
    pub halves: HalvesGain,
    /// Expected goodput over the save interval.
    pub sweep: Vec<SweepPoint>,
}

/// What was simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedInputs {
    pub gpus: Option<u64>,
    pub nodes: Option<u64>,
    pub steps: u64,
    pub step_ms: Ms,
    pub stall_ms: Ms,
    pub save_ms: Ms,
    pub launch_ms: Ms,
    pub detect_ms: Ms,
    pub replace_ms: Ms,
    pub replaced: f64,
    pub damaged: f64,
    pub person_ms: Ms,
    pub mean_time_between_failures_ms: Ms,
    pub trace: Option<TraceInput>,
    pub seeds: u64,
    pub first_seed: u64,
}

/// The recorded failures that were used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TraceInput {
    pub failures: u64,
    pub days: f64,
    /// How many such traces the job meets at once.
    pub scale: f64,
}

/// One save interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedOption {
    pub every: u64,
    pub interval_ms: Ms,
    /// By the closed form.
    pub expected: f64,
    pub goodput: BandView,
    /// Wall time of the training.
    pub wall_ms: BandView,
    pub failures: BandView,
    /// How often a person had to restart the run.
    pub calls: BandView,
    /// Mean share of the time by category, 0 to 1.
    pub parts: BTreeMap<&'static str, f64>,
    pub waiting: BTreeMap<&'static str, f64>,
    /// Simulated runs whose last step was proven.
    pub finished: u64,
}

/// Mean over the seeds, and the 5th and 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandView {
    pub mean: f64,
    pub p5: f64,
    pub p95: f64,
}

/// What halving each time would gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HalvesGain {
    /// The time until a failure is detected.
    pub noticing: HalvedTime,
    /// The time from there until training continues.
    pub restarting: HalvedTime,
    /// The time for which a save stops the training.
    pub stall: HalvedTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HalvedTime {
    /// Share of the time.
    pub goodput: f64,
    /// How much earlier the training ends.
    pub wall_ms: Ms,
}

/// A save interval with its expected goodput.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SweepPoint {
    pub every: u64,
    pub interval_ms: Ms,
    pub goodput: f64,
}

impl From<SeedBand> for BandView {
    fn from(band: SeedBand) -> Self {
        Self {
            mean: band.mean,
            p5: band.low,
            p95: band.high,
        }
    }
}

impl HalvedTime {
    /// `goodput` rises by `gain`.
    #[must_use]
    pub fn of(plan: &SimulationPlan, goodput: f64, gain: f64) -> Self {
        let trained = plan.trained().unwrap_or_default().0 as f64;
        let earlier = match goodput > 0.0 {
            true => trained / goodput - trained / (goodput + gain),
            false => 0.0,
        };
        Self {
            goodput: gain,
            wall_ms: Ms(earlier as u64),
        }
    }
}

impl SimulatedOption {
    #[must_use]
    pub fn of(plan: &SimulationPlan, played: &SeedSummary, expected: f64) -> Self {
        let share = |part| played.parts.get(&part).copied().unwrap_or_default();
        let is_plain = |part: &TimeCategory| !matches!(part, TimeCategory::Waiting(_));
        Self {
            every: plan.every,
            interval_ms: plan.interval(),
            expected,
            goodput: played.goodput.into(),
            wall_ms: played.wall_ms.into(),
            failures: played.failures.into(),
            calls: played.calls.into(),
            parts: TimeCategory::all()
                .filter(is_plain)
                .map(|part| (part.code(), share(part)))
                .collect(),
            waiting: WaitFor::ALL
                .into_iter()
                .map(|wait| (wait.code(), share(TimeCategory::Waiting(wait))))
                .collect(),
            finished: played.finished,
        }
    }

    /// The largest categories first.
    fn parts_words(&self) -> String {
        let waits = self
            .waiting
            .iter()
            .map(|(code, share)| (format!("waiting ({code})"), *share));
        let parts = self.parts.iter().map(|(code, share)| ((*code).to_owned(), *share));
        let mut all: Vec<(String, f64)> = parts.chain(waits).filter(|(_, share)| *share >= WORTH).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let words: Vec<String> = all
            .iter()
            .map(|(name, share)| format!("{name} {}", percent(*share)))
            .collect();
        words.join(", ")
    }
}

/// Expected goodput for intervals around the best one.
#[must_use]
pub fn sweep(plan: &SimulationPlan) -> Vec<SweepPoint> {
    let best = best_interval(plan) as f64;
    let (least, model) = (least_interval(plan), GoodputModel::of(plan));
    let at = |n: u32| best * FACTOR.powf(2.0 * f64::from(n) / f64::from(POINTS - 1) - 1.0);
    let mut steps: Vec<u64> = (0..POINTS)
        .map(|n| (at(n).round() as u64).clamp(least.min(plan.steps), plan.steps))
        .collect();
    steps.dedup();
    let point = |every: u64| {
        let interval_ms = Ms(every.saturating_mul(plan.step.0));
        SweepPoint {
            every,
            interval_ms,
            goodput: model.goodput(interval_ms.0 as f64 / 1000.0),
        }
    };
    steps.into_iter().map(point).collect()
}

fn every(option: &SimulatedOption) -> String {
    let steps = match option.every {
        1 => "every step".to_owned(),
        n => format!("every {n} steps"),
    };
    format!("{steps} ({})", span(option.interval_ms))
}

fn range(band: BandView, words: impl Fn(f64) -> String) -> String {
    let (low, high) = (words(band.p5), words(band.p95));
    if low == high { low } else { format!("{low} to {high}") }
}

fn ms(value: f64) -> Ms {
    Ms(value.round() as u64)
}

impl SimulateView {
    /// The result as text.
    #[must_use]
    pub fn text(&self) -> String {
        let (now, inputs) = (&self.now, &self.inputs);
        let trained = span(Ms(inputs.steps.saturating_mul(inputs.step_ms.0)));
        let long = |value: f64| span(ms(value));
        let size = match (inputs.gpus, inputs.nodes) {
            (Some(gpus), Some(nodes)) => format!(" on {} ({})", count(gpus, "GPU"), count(nodes, "node")),
            _ => String::new(),
        };
        let name = self
            .name
            .as_ref()
            .map_or_else(String::new, |name| format!("{}: ", shown(name)));
        let mut out = format!(
            "{name}{trained} of training{size} take {} if it saves {}.\n",
            long(now.wall_ms.mean),
            every(now)
        );
        let mut row = |label: &str, text: String| out.push_str(&format!("{label:<10} {text}\n"));
        let most = |range: String| match inputs.seeds {
            1 => String::new(),
            _ => format!("; 9 of 10 runs: {range}"),
        };
        row(
            "goodput",
            percent(now.goodput.mean) + &most(range(now.goodput, percent)),
        );
        row("takes", long(now.wall_ms.mean) + &most(range(now.wall_ms, long)));
        row("time", now.parts_words());
        let number = |value: f64| format!("{value:.0}");
        row(
            "failures",
            format!(
                "{}, one in {}{}",
                number(now.failures.mean),
                span(inputs.mean_time_between_failures_ms),
                most(range(now.failures, number))
            ),
        );
        row(
            "person",
            match now.calls.p95 > 0.0 || now.calls.mean > 0.0 {
                true => format!(
                    "restarts it {:.1} times{}",
                    now.calls.mean,
                    most(range(now.calls, number))
                ),
                false => "never needed".to_owned(),
            },
        );
        if now.finished < inputs.seeds {
            let text = format!("{} of {} runs: the others never get there", now.finished, inputs.seeds);
            row("finished", text);
        }
        if self.best.every != now.every {
            row("best", self.best_words());
        }
        out.push_str(&self.halves_words());
        out.push_str(&self.origin_words());
        out
    }

    fn best_words(&self) -> String {
        let gain = self.best.goodput.mean - self.now.goodput.mean;
        let earlier = self.now.wall_ms.mean - self.best.wall_ms.mean;
        let worth = match (gain >= WORTH && earlier > 0.0, self.inputs.gpus) {
            (false, _) => ", about the same".to_owned(),
            (true, None) => format!(", {} less", span(ms(earlier))),
            (true, Some(gpus)) => {
                let hours = earlier / 3_600_000.0 * gpus as f64;
                format!(", {} or {hours:.0} GPU hours less", span(ms(earlier)))
            }
        };
        format!("{}: {}{worth}", every(&self.best), percent(self.best.goodput.mean))
    }

    fn halves_words(&self) -> String {
        let rows = [
            ("time to detect a failure", self.halves.noticing),
            ("time to restart", self.halves.restarting),
            ("time for which a save stops the training", self.halves.stall),
        ];
        let lines: Vec<String> = rows
            .iter()
            .filter(|(_, gain)| gain.goodput >= WORTH)
            .map(|(what, gain)| {
                format!(
                    "  {what}: {} of the time, done {} earlier\n",
                    percent(gain.goodput),
                    span(gain.wall_ms)
                )
            })
            .collect();
        match lines.is_empty() {
            true => String::new(),
            false => format!("Halving one of these would gain:\n{}", lines.concat()),
        }
    }

    fn origin_words(&self) -> String {
        let inputs = &self.inputs;
        let value = |flag: &str| match flag {
            "--step" => span(inputs.step_ms),
            "--save-stall" => span(inputs.stall_ms),
            "--launch" => span(inputs.launch_ms),
            "--detect" => span(inputs.detect_ms),
            "--days" => format!("{:.3}", (inputs.steps as f64 * inputs.step_ms.0 as f64) / 86_400_000.0),
            _ => {
                let nodes = inputs.nodes.unwrap_or(1) as f64 * inputs.mean_time_between_failures_ms.0 as f64;
                format!("{:.2}", 1000.0 * 86_400_000.0 / nodes)
            }
        };
        let words = |flags: &[&str]| {
            let words: Vec<String> = flags
                .iter()
                .map(|flag| format!("{flag} {}", short(&value(flag))))
                .collect();
            words.join(", ")
        };
        let mut out = String::new();
        if !self.measured.is_empty() {
            out.push_str(&format!("From the run: {}\n", words(&self.measured)));
        }
        if !self.assumed.is_empty() {
            out.push_str(&format!("Assumed: {}\n", words(&self.assumed)));
        }
        out
    }
}

/// As a flag takes it: `3m 20s` without the space, `30.000` without the zeros.
fn short(value: &str) -> String {
    let value = value.replace(' ', "");
    match value.contains('.') && value.ends_with('0') {
        true => value.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => value,
    }
}
