use super::*;
use crate::render::danger::DangerView;
use crate::render::ledger::{CostView, StepsView};
use crate::render::status::{JobView, OutcomeView, RunLiveness};
use std::collections::BTreeSet;
use supervise_core::id::{Ms, Step};
use supervise_core::journal::record::RunOutcome;
use supervise_core::ledger::{TimeCategory, WaitFor};
use supervise_core::observe::creep::WatchedResource;
use supervise_core::state::RunState;

/// A run with every field set.
fn full() -> StatusView {
    let mut s = RunState {
        wall: WallMs(1_795_219_200_500),
        ..RunState::default()
    };
    s.progress.mark = Some(Step(4));
    let mut v = StatusView::of("0123456789abcdef", &s, None, RunLiveness::default());
    v.root = Some("/ckpt/a \"b\"\\\n# TYPE x gauge".to_owned());
    v.outcome = Some(OutcomeView {
        word: RunOutcome::Stopped.word(),
        exit_code: 7,
        why: String::new(),
    });
    v.last_progress = Some(WallMs(1_795_219_200_250));
    v.last_step = Some(9);
    v.retries = Some(3);
    v.checkpoints = [("whole", 2)].into();
    v.attempt = Some(crate::render::status::AttemptView {
        no: 1,
        step: Some(5),
        phase: None,
        resumed_from: None,
        workers: Vec::new(),
        nodes: None,
        gone: true,
        warnings: Vec::new(),
        save_request: None,
        lines: Vec::new(),
    });
    v.scheduler = Some(JobView {
        name: "slurm",
        job: "1".to_owned(),
        restarts: 0,
        ends: Some(1_795_219_300_000),
    });
    v.danger = Some(DangerView {
        what: WatchedResource::Disk,
        used: 3,
        of: 4,
        per_step: 1,
        until_step: 6,
        save: None,
        left_ms: Some(1500),
        text: String::new(),
    });
    v.ledger = Some(LedgerView {
        began: WallMs(0),
        whole_ms: Ms(4000),
        goodput: Some(0.25),
        parts_ms: TimeCategory::all()
            .filter(|p| !matches!(p, TimeCategory::Waiting(_)))
            .map(|p| (p.code(), Ms(1000)))
            .collect(),
        waiting_ms: WaitFor::ALL.into_iter().map(|w| (w.code(), Ms(10))).collect(),
        steps: StepsView {
            new: 5,
            again: 1,
            lost: 1,
        },
        devices: Some(8),
        costs: vec![CostView {
            class: "mem.cuda_oom".to_owned(),
            ends: 1,
            lost_steps: 1,
            lost_ms: Ms(2500),
            gpu_hours: None,
        }],
    });
    v
}

fn named(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let end = |l: &str| l.find(['{', ' ']).unwrap();
    lines.map(|l| l[..end(l)].to_owned()).collect()
}

#[test]
fn every_metric_is_written_and_no_name_begins_a_line_of_its_own() {
    let text = metrics(&[full()], WallMs(1_795_219_201_000), Format::Text);
    let known: BTreeSet<String> = FAMILIES.iter().map(|f| f.name.to_owned()).collect();
    assert_eq!(known.len(), FAMILIES.len());
    assert_eq!(named(&text), known);
    assert_eq!(text.matches("# TYPE x gauge").count(), 1, "{text}");
    assert!(!text.contains("\n# TYPE x"), "{text}");
    for line in [
        "supervise_scrape_runs 1",
        "supervise_scrape_timestamp_seconds 1795219201",
        "supervise_run_last_progress_timestamp_seconds{run=\"0123456789abcdef\"} 1795219200.25",
        "supervise_run_mode{run=\"0123456789abcdef\",mode=\"idle\"} 1",
        "supervise_run_outcome{run=\"0123456789abcdef\",outcome=\"stopped\"} 1",
        "supervise_run_time_seconds{run=\"0123456789abcdef\",part=\"waiting\",reason=\"backoff\"} 0.01",
        "supervise_run_danger_left_seconds{run=\"0123456789abcdef\",resource=\"disk\"} 1.5",
        "supervise_run_failure_lost_seconds_total{run=\"0123456789abcdef\",class=\"mem.cuda_oom\"} 2.5",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn the_mode_of_a_run_is_always_one_of_those_that_are_written() {
    use supervise_core::state::RunMode;
    for mode in [
        RunMode::Idle,
        RunMode::Fencing,
        RunMode::Choosing,
        RunMode::Running,
        RunMode::Finished,
    ] {
        assert!(MODES.contains(&mode.word()));
    }
    let unknown = StatusView::unknown("r", RunLiveness::default(), "gone".to_owned());
    let text = metrics(&[unknown], WallMs(0), Format::Text);
    assert!(
        text.contains("supervise_run_mode{run=\"r\",mode=\"unknown\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("supervise_run_problem{run=\"r\"} 1\n"), "{text}");
    assert!(
        !text.contains("attempts_total"),
        "what is not known is not written: {text}"
    );
}

#[test]
fn openmetrics_names_families_of_counters_without_total_and_ends() {
    let text = metrics(&[full(), full()], WallMs(0), Format::OpenMetrics);
    assert!(
        text.contains("# TYPE supervise_run_failures counter\nsupervise_run_failures_total{"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(
        text.matches("# TYPE supervise_run_step gauge").count(),
        1,
        "samples of a family stand together"
    );
}
