//! How often a run should save, as text and as JSON.

use super::time::span;
use super::{count, percent, terminal::shown};
use serde::Serialize;
use supervise_core::id::Ms;
use supervise_core::ledger::{TimeCategory, TimeLedger};
use supervise_core::save_interval::{IntervalReason, SaveCost, SaveInterval, SaveLimits, SaveMeasurements, choose};

const HOURS_A_MONTH: f64 = 730.0;
/// Fewer hours than this are not worth a line.
const WORTH: f64 = 0.1;
/// Share of the time that another interval must gain to be mentioned unasked.
const LEAST_GAIN: f64 = 0.01;
/// After less training than this nothing is said about a month.
const ENOUGH: Ms = Ms::secs(600);

/// How the run's trainer names the interval, and what it runs on.
#[derive(Debug, Clone, Copy)]
pub struct SaveSettings {
    pub name: Option<&'static str>,
    /// The framework, as written in a sentence.
    pub trainer: &'static str,
    /// A resume takes the interval from the step and not from the configuration.
    pub kept_at_resume: bool,
    /// GPUs, or workers if there are none.
    pub devices: u32,
}

/// Advice on the save interval of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SaveAdvice {
    pub version: u32,
    pub run: String,
    pub name: String,
    /// Steps between saves today; `null`: it saves only at the end, or that is not known.
    pub now: Option<SaveOption>,
    /// The interval to use; `null`: no step or no save was seen yet.
    pub best: Option<SaveOption>,
    /// What decided it.
    pub reason: Option<IntervalReason>,
    /// Whether `--max-loss` is kept.
    pub kept: Option<bool>,
    pub measured: Option<MeasuredView>,
    /// GPU hours a month that the best interval saves; `null` before ten minutes of training.
    pub saves_gpu_hours: Option<f64>,
    /// What else would help, in GPU hours a month.
    pub halves: Option<HalvesView>,
    #[serde(skip)]
    setting: Option<&'static str>,
    #[serde(skip)]
    keeper: Option<&'static str>,
    #[serde(skip)]
    max_loss: Option<Ms>,
}

/// One interval and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SaveOption {
    pub every: u64,
    /// Expected share of the time in saves, 0 to 1.
    pub saving: f64,
    /// Expected share of the time in training that failures repeat, 0 to 1.
    pub repeating: f64,
    /// Most training that a failure can cost, in ms, if the newest step is whole.
    pub most_lost_ms: Ms,
}

/// What the run has shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredView {
    pub step_ms: Ms,
    pub slow_step_ms: Ms,
    pub stall_ms: Ms,
    pub save_ms: Ms,
    pub sudden_failures: u64,
    pub trained_ms: Ms,
    pub mean_time_between_failures_ms: Ms,
    pub devices: u32,
}

/// GPU hours a month that halving each would save.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HalvesView {
    /// The time until a failure is noticed.
    pub noticing: f64,
    /// The time from there to the first step.
    pub restarting: f64,
    /// The time for which a save stops the training, with the interval that is then best.
    pub stall: f64,
}

fn ms(seconds: f64) -> Ms {
    Ms((seconds * 1000.0) as u64)
}

impl SaveOption {
    fn of(seen: &SaveMeasurements, every: u64) -> Self {
        let SaveCost { saving, repeating } = seen.cost(every);
        Self {
            every,
            saving,
            repeating,
            most_lost_ms: ms(seen.most_lost(every)),
        }
    }

    fn cost(&self) -> f64 {
        self.saving + self.repeating
    }

    fn words(&self) -> String {
        format!(
            "{}: saves {}, repeated training {}",
            percent(self.cost()),
            percent(self.saving),
            percent(self.repeating)
        )
    }
}

impl SaveAdvice {
    /// The advice; `seen` is `None` if no step or no save was seen.
    #[must_use]
    pub fn of(
        run: &str,
        name: &str,
        seen: Option<SaveMeasurements>,
        limits: &SaveLimits,
        settings: &SaveSettings,
        ledger: &TimeLedger,
    ) -> Self {
        let month = f64::from(settings.devices.max(1)) * HOURS_A_MONTH;
        let is_long = seen.is_some_and(|m| ms(m.trained) >= ENOUGH);
        let best = seen.map(|m| choose(&m, limits));
        let option = |every: Option<u64>| seen.zip(every).map(|(m, every)| SaveOption::of(&m, every));
        let (now, wanted) = (option(limits.now), option(best.map(|b| b.every)));
        Self {
            version: 1,
            run: run.to_owned(),
            name: name.to_owned(),
            now,
            best: wanted,
            reason: best.map(|b| b.reason),
            kept: limits.max_loss.and(best).map(|b| b.kept),
            measured: seen.map(|m| MeasuredView {
                step_ms: ms(m.step),
                slow_step_ms: ms(m.slow_step),
                stall_ms: ms(m.stall),
                save_ms: ms(m.save),
                sudden_failures: m.failures,
                trained_ms: ms(m.trained),
                mean_time_between_failures_ms: ms(m.mean_time_between_failures()),
                devices: settings.devices,
            }),
            saves_gpu_hours: now
                .zip(wanted)
                .filter(|_| is_long)
                .map(|(now, then)| month * (now.cost() - then.cost())),
            halves: seen
                .zip(best)
                .filter(|_| is_long)
                .map(|(m, best)| halves(&m, &best, limits, ledger, month)),
            setting: settings.name,
            keeper: settings.kept_at_resume.then_some(settings.trainer),
            max_loss: limits.max_loss.map(ms),
        }
    }

    /// The advice as text.
    #[must_use]
    pub fn text(&self) -> String {
        let name = shown(&self.name);
        let (Some(best), Some(reason), Some(m)) = (&self.best, self.reason, &self.measured) else {
            return format!(
                "{name}: no advice: it takes a few steps, and a save that the output announces; a plain command or a loop of your own announces none\n"
            );
        };
        let every = every(best.every);
        let now = self.now.map(|now| now.every);
        let mut out = match now {
            Some(now) if now == best.every => format!("Keep saving {every}: {}.\n", why(reason)),
            Some(now) => format!("Save {every} instead of every {now}: {}.\n", why(reason)),
            None => format!("Save {every}: {}.\n", why(reason)),
        };
        if let Some(setting) = self.setting.filter(|_| now != Some(best.every)) {
            out.push_str(&format!("  {setting}: {}\n", best.every));
            if let Some(trainer) = self.keeper {
                out.push_str(&format!(
                    "  {trainer} reads it at a fresh start only: a resume keeps the interval that is stored in the step.\n"
                ));
            }
        }
        let mut row = |label: &str, text: String| out.push_str(&format!("{label:<10} {text}\n"));
        row(
            "step",
            format!("{}; 9 of 10 take at most {}", span(m.step_ms), span(m.slow_step_ms)),
        );
        row(
            "save",
            format!(
                "stops the training for {}; proven {} after it begins",
                span(m.stall_ms),
                span(m.save_ms)
            ),
        );
        row(
            "failures",
            format!(
                "{} in {} of training; one in {} is expected",
                count(m.sudden_failures, "sudden failure"),
                span(m.trained_ms),
                span(m.mean_time_between_failures_ms)
            ),
        );
        if let Some(now) = self.now.filter(|now| now.every != best.every) {
            row("cost now", now.words());
        }
        row("cost", best.words());
        let long = m.trained_ms >= ENOUGH;
        let hours = self
            .saves_gpu_hours
            .filter(|hours| *hours >= WORTH && m.devices > 0 && long);
        if let Some(hours) = hours {
            row(
                "difference",
                format!("{hours:.1} GPU hours a month on {}", count(u64::from(m.devices), "GPU")),
            );
        }
        row("at risk", self.at_risk(best));
        if let Some(halves) = self.halves {
            out.push_str(&halves.text());
        }
        out
    }

    /// One line, if the run has trained for long enough and another interval would pay.
    #[must_use]
    pub fn brief(&self) -> Option<String> {
        let (now, best, m) = (self.now?, self.best?, self.measured?);
        let gain = now.cost() - best.cost();
        let pays = gain >= LEAST_GAIN && m.trained_ms >= ENOUGH;
        pays.then(|| {
            format!(
                "saving {} instead of every {} would gain {} of the time",
                every(best.every),
                now.every,
                percent(gain)
            )
        })
    }

    fn at_risk(&self, best: &SaveOption) -> String {
        let before = self.now.filter(|now| now.every != best.every);
        let before = before.map_or_else(String::new, |now| format!(" (now {})", span(now.most_lost_ms)));
        let most = format!(
            "up to {} of training{before}, if the newest step is whole",
            span(best.most_lost_ms)
        );
        match (self.max_loss, self.kept) {
            (Some(limit), Some(false)) => format!("{most}: more than the {} that you accept", span(limit)),
            _ => most,
        }
    }
}

fn every(steps: u64) -> String {
    match steps {
        1 => "every step".to_owned(),
        n => format!("every {n} steps"),
    }
}

fn why(reason: IntervalReason) -> &'static str {
    match reason {
        IntervalReason::Cost => "saves and repeated training then cost least",
        IntervalReason::MaxLoss => "fewer saves would lose more than you accept",
        IntervalReason::StepTooLong => "a step and a save take longer than what you accept to lose",
        IntervalReason::Stall => "more saves would take too much of the time",
        IntervalReason::SaveLength => "a save must end before the next one begins",
        IntervalReason::Disk => "more saves do not fit on the disk, because nothing deletes older steps",
        IntervalReason::Unchanged => "another interval would cost about the same",
    }
}

impl HalvesView {
    fn text(&self) -> String {
        let rows = [
            ("time to notice a failure", self.noticing),
            ("time to restart", self.restarting),
            ("time for which a save stops the training", self.stall),
        ];
        let worth: Vec<String> = rows
            .iter()
            .filter(|(_, hours)| *hours >= WORTH)
            .map(|(what, hours)| format!("  {what}: {hours:.1}\n"))
            .collect();
        match worth.is_empty() {
            true => String::new(),
            false => format!(
                "Halving one of these would save, in GPU hours a month:\n{}",
                worth.concat()
            ),
        }
    }
}

fn halves(
    seen: &SaveMeasurements,
    best: &SaveInterval,
    limits: &SaveLimits,
    ledger: &TimeLedger,
    month: f64,
) -> HalvesView {
    let parts = ledger.parts();
    let whole = (parts.whole().0.saturating_sub(parts.of(TimeCategory::Stopped).0)).max(1) as f64;
    let half = |of: &[TimeCategory]| of.iter().map(|part| parts.of(*part).0 as f64).sum::<f64>() / whole / 2.0 * month;
    let cheaper = SaveMeasurements {
        stall: seen.stall / 2.0,
        ..*seen
    };
    let then = choose(&cheaper, limits).every;
    HalvesView {
        noticing: half(&[TimeCategory::Noticing]),
        restarting: half(&[TimeCategory::Ending, TimeCategory::Proving, TimeCategory::Launching]),
        stall: (seen.cost(best.every).whole() - cheaper.cost(then).whole()).max(0.0) * month,
    }
}

#[cfg(test)]
mod tests;
