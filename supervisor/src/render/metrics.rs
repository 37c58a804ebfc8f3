//! Metrics of runs for Prometheus, in its text format (node exporter files) or as OpenMetrics. Pure.
//!
//! Labels are bounded: a run, and values from fixed sets (failure classes: at most 128). Time by category is a gauge,
//! not a counter: later events decide how time counts, so a category may shrink.

mod families;

pub use families::{FAMILIES, MetricFamily, MetricType};

use super::ledger::LedgerView;
use super::status::StatusView;
use super::terminal::shown;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use supervise_core::id::WallMs;

const MODES: [&str; 11] = [
    "idle",
    "fencing",
    "choosing",
    "arranging",
    "launching",
    "running",
    "draining",
    "stopping",
    "waiting",
    "finished",
    "unknown",
];

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    /// OpenMetrics 1.0: counter families are named without `_total`, and the text ends with a marker.
    OpenMetrics,
}

/// Renders the metrics of these runs at this time.
#[must_use]
pub fn metrics(runs: &[impl Borrow<StatusView>], at: WallMs, format: Format) -> String {
    let mut samples = Samples::default();
    samples.bare("supervise_scrape_runs", runs.len() as f64);
    samples.bare("supervise_scrape_timestamp_seconds", at.0 as f64 / 1000.0);
    for run in runs {
        samples.run(run.borrow());
    }
    let mut out = String::new();
    for family in &FAMILIES {
        let Some(lines) = samples.by.get(family.name) else {
            continue;
        };
        let (kind, name) = match (family.kind, format) {
            (MetricType::Gauge, _) => ("gauge", family.name),
            (MetricType::Counter, Format::Text) => ("counter", family.name),
            (MetricType::Counter, Format::OpenMetrics) => ("counter", family.name.trim_end_matches("_total")),
        };
        let help = family.help;
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        lines.iter().for_each(|line| out.push_str(line));
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

#[derive(Default)]
struct Samples {
    by: BTreeMap<&'static str, Vec<String>>,
}

fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Removes secrets from a label value and escapes it.
fn escaped(value: &str) -> String {
    shown(value)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl Samples {
    fn add(&mut self, name: &'static str, run: &str, labels: &[(&str, &str)], value: f64) {
        let mut line = format!("{name}{{run=\"{}\"", escaped(run));
        for (label, value) in labels {
            let _ = write!(line, ",{label}=\"{}\"", escaped(value));
        }
        let _ = writeln!(line, "}} {value}");
        self.by.entry(name).or_default().push(line);
    }

    fn bare(&mut self, name: &'static str, value: f64) {
        self.by.entry(name).or_default().push(format!("{name} {value}\n"));
    }

    fn some(&mut self, name: &'static str, run: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.add(name, run, &[], value as f64);
        }
    }

    fn moment(&mut self, name: &'static str, run: &str, at: Option<WallMs>) {
        if let Some(at) = at {
            self.add(name, run, &[], at.0 as f64 / 1000.0);
        }
    }

    fn run(&mut self, v: &StatusView) {
        let run = v.run.as_str();
        let place = v.root.as_ref().or(v.run_dir.as_ref()).map_or("", String::as_str);
        let trainer = v.trainer.as_deref().unwrap_or_default();
        self.add("supervise_run_info", run, &[("root", place), ("trainer", trainer)], 1.0);
        self.add("supervise_run_supervisor_alive", run, &[], flag(v.lives()));
        self.add("supervise_run_guard_alive", run, &[], flag(v.guard.alive));
        for mode in MODES {
            self.add("supervise_run_mode", run, &[("mode", mode)], flag(mode == v.mode));
        }
        if let Some(o) = &v.outcome {
            self.add("supervise_run_outcome", run, &[("outcome", o.word)], 1.0);
        }
        self.add("supervise_run_held", run, &[], flag(v.held.is_some()));
        self.add("supervise_run_problem", run, &[], flag(v.problem.is_some()));
        self.moment("supervise_run_mode_since_timestamp_seconds", run, v.since.map(WallMs));
        self.moment("supervise_run_last_event_timestamp_seconds", run, v.now);
        self.moment("supervise_run_last_progress_timestamp_seconds", run, v.last_progress);
        if v.mode == "unknown" {
            return;
        }
        self.some("supervise_run_step", run, v.attempt.as_ref().and_then(|a| a.step));
        self.some("supervise_run_proven_step", run, v.mark);
        self.some("supervise_run_planned_step", run, v.last_step);
        self.some("supervise_run_attempts_total", run, Some(v.attempts.into()));
        self.some("supervise_run_attempts_without_progress", run, Some(v.charged.into()));
        self.some("supervise_run_retries", run, v.retries.map(u64::from));
        for (verdict, n) in &v.checkpoints {
            self.add("supervise_run_checkpoints", run, &[("verdict", verdict)], f64::from(*n));
        }
        self.add("supervise_run_unkillable_processes", run, &[], v.undead.len() as f64);
        let ends = v.scheduler.as_ref().and_then(|job| job.ends).map(WallMs);
        self.moment("supervise_run_scheduler_end_timestamp_seconds", run, ends);
        if let Some(d) = &v.danger {
            let resource = serde_json::to_value(d.what).ok();
            let resource = [(
                "resource",
                resource.as_ref().and_then(|r| r.as_str()).unwrap_or_default(),
            )];
            self.add(
                "supervise_run_danger_used_ratio",
                run,
                &resource,
                d.used as f64 / d.of.max(1) as f64,
            );
            if let Some(left) = d.left_ms {
                self.add("supervise_run_danger_left_seconds", run, &resource, seconds(left));
            }
        }
        if let Some(ledger) = &v.ledger {
            self.ledger(run, ledger);
        }
    }

    fn ledger(&mut self, run: &str, l: &LedgerView) {
        if let Some(goodput) = l.goodput {
            self.add("supervise_run_goodput_ratio", run, &[], goodput);
        }
        for (part, ms) in &l.parts_ms {
            let labels = [("part", *part), ("reason", "")];
            self.add("supervise_run_time_seconds", run, &labels, seconds(ms.0));
        }
        for (reason, ms) in &l.waiting_ms {
            let labels = [("part", "waiting"), ("reason", *reason)];
            self.add("supervise_run_time_seconds", run, &labels, seconds(ms.0));
        }
        for (kind, n) in [("new", l.steps.new), ("again", l.steps.again)] {
            self.add("supervise_run_steps_trained_total", run, &[("kind", kind)], n as f64);
        }
        self.some("supervise_run_steps_lost_total", run, Some(l.steps.lost));
        self.some("supervise_run_devices", run, l.devices.map(u64::from));
        // A class first appears with the value 1, which does not count as an increase; this total exists before the
        // first failure.
        let failed = l.costs.iter().map(|cost| cost.ends).sum();
        self.some("supervise_run_failed_attempts_total", run, Some(failed));
        for cost in &l.costs {
            let class = [("class", cost.class.as_str())];
            self.add("supervise_run_failures_total", run, &class, cost.ends as f64);
            self.add(
                "supervise_run_failure_lost_steps_total",
                run,
                &class,
                cost.lost_steps as f64,
            );
            self.add(
                "supervise_run_failure_lost_seconds_total",
                run,
                &class,
                seconds(cost.lost_ms.0),
            );
        }
    }
}

#[cfg(test)]
mod tests;
