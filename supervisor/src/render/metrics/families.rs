//! Every metric there is, with its meaning.

/// Kinds of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// A number that goes up and down.
    Gauge,
    /// A number that only rises over the life of a run.
    Counter,
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricFamily {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricType,
    /// Labels beside `run`.
    pub labels: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

const fn gauge(name: &'static str, labels: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricType::Gauge,
        labels,
        help,
    }
}

const fn counter(name: &'static str, labels: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricType::Counter,
        labels,
        help,
    }
}

/// All of them, in the order they are written in.
pub const FAMILIES: [MetricFamily; 32] = [
    gauge("supervise_run_info", "root, trainer", "The run; always 1."),
    gauge("supervise_run_supervisor_alive", "", "1 if its supervisor lives."),
    gauge("supervise_run_guard_alive", "", "1 if the guard of its workers lives."),
    gauge(
        "supervise_run_mode",
        "mode",
        "1 for the supervisor's present or last activity, 0 for every other one.",
    ),
    gauge(
        "supervise_run_outcome",
        "outcome",
        "1 for the outcome of a run that has ended.",
    ),
    gauge("supervise_run_held", "", "1 if a person holds it."),
    gauge(
        "supervise_run_problem",
        "",
        "1 if something about it cannot be found out, or its supervisor cannot do something.",
    ),
    gauge(
        "supervise_run_mode_since_timestamp_seconds",
        "",
        "When its present activity began.",
    ),
    gauge(
        "supervise_run_last_event_timestamp_seconds",
        "",
        "When the newest record was written.",
    ),
    gauge(
        "supervise_run_last_progress_timestamp_seconds",
        "",
        "When the present attempt last got on.",
    ),
    gauge(
        "supervise_run_step",
        "",
        "The newest step that the present or last attempt printed.",
    ),
    gauge("supervise_run_proven_step", "", "Highest step that was ever proven."),
    gauge("supervise_run_planned_step", "", "The last planned step."),
    counter("supervise_run_attempts_total", "", "Attempts that were launched."),
    gauge(
        "supervise_run_attempts_without_progress",
        "",
        "Attempts since a step was last proven that count against the retries.",
    ),
    gauge("supervise_run_retries", "", "How many of those are allowed."),
    gauge(
        "supervise_run_checkpoints",
        "verdict",
        "Steps on disk, as last scanned.",
    ),
    gauge(
        "supervise_run_unkillable_processes",
        "",
        "Processes that SIGKILL did not end.",
    ),
    gauge(
        "supervise_run_scheduler_end_timestamp_seconds",
        "",
        "When the scheduler's job ends.",
    ),
    gauge(
        "supervise_run_danger_used_ratio",
        "resource",
        "Share in use of what runs out next.",
    ),
    gauge(
        "supervise_run_danger_left_seconds",
        "resource",
        "Time until it runs out at the present pace.",
    ),
    gauge(
        "supervise_run_goodput_ratio",
        "",
        "Productive time as a share of all time that its people did not stop.",
    ),
    gauge(
        "supervise_run_time_seconds",
        "part, reason",
        "Wall time since the first launch by part; the reason of waiting.",
    ),
    counter(
        "supervise_run_steps_trained_total",
        "kind",
        "Steps that were trained for the first time (new), and again.",
    ),
    counter(
        "supervise_run_steps_lost_total",
        "",
        "Steps that were lost at the ends of attempts.",
    ),
    gauge(
        "supervise_run_devices",
        "",
        "GPUs of the run, or its workers where those are not known.",
    ),
    counter(
        "supervise_run_failed_attempts_total",
        "",
        "Attempts that ended by a failure of any class; 0 before the first.",
    ),
    counter(
        "supervise_run_failures_total",
        "class",
        "Attempts that ended by a failure of this class.",
    ),
    counter(
        "supervise_run_failure_lost_steps_total",
        "class",
        "Steps that had to be trained again after such failures.",
    ),
    counter(
        "supervise_run_failure_lost_seconds_total",
        "class",
        "Wall time that such failures cost.",
    ),
    gauge("supervise_scrape_runs", "", "Runs that were found."),
    gauge(
        "supervise_scrape_timestamp_seconds",
        "",
        "When these numbers were read.",
    ),
];
