use super::*;
use crate::render::explain::StoryBuilder;
use crate::render::progress::ProgressReport;
use crate::render::status::{OutcomeView, RunLiveness, StatusView};
use supervise_core::event::{Event, EventKind, TrainerPhase};
use supervise_core::id::{AttemptNo, Step, Term, Tick, WallMs};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{Act, ActKind, JournalRecord, LaunchOrder, StartPoint};
use supervise_core::state::RunState;

const EVIL: &str = "</h2><script>alert(1)</script><img src=x onerror='alert(1)'>\u{1b}[2J";

fn report(name: &str, step: u64) -> ProgressReport {
    ProgressReport {
        name: name.to_owned(),
        step: Some(step),
        planned: Some(40),
        phase: None,
        step_ms: None,
        usual_ms: None,
        since_ms: None,
        late_ms: None,
        pace: None,
        next: None,
        elapsed_ms: None,
        eta: None,
    }
}

fn evil() -> StatusView {
    let mut v = StatusView::unknown("0123456789abcdef", RunLiveness::default(), EVIL.to_owned());
    v.root = Some(format!("/ckpt/{EVIL}"));
    v.trainer = Some(EVIL.to_owned());
    v.progress = Some(report(EVIL, 3));
    v
}

fn is_text(page: &str) {
    assert!(
        !page.contains("<script>") && !page.contains("<img") && !page.contains('\u{1b}'),
        "{page}"
    );
    assert!(page.contains("&lt;script&gt;"), "{page}");
}

#[test]
fn names_problems_and_output_are_text() {
    let wanted = ListQuery {
        query: EVIL.to_owned(),
        page: 7,
        ..ListQuery::default()
    };
    is_text(&list(&[evil()], 1, &wanted));
    let (story, picture) = RunView::blank("0123456789abcdef");
    let view = evil();
    is_text(&run(&RunView {
        status: &view,
        story: &story,
        picture: &picture,
        steps: &[],
        next: None,
        plans: true,
        stale: Some(EVIL),
        sent_back: None,
        form_key: None,
    }));
    let extract = LogExtract {
        lines: vec![ExtractLine {
            at: 7,
            text: EVIL.to_owned(),
        }],
        about: EVIL.to_owned(),
        ..LogExtract::default()
    };
    is_text(&log(&LogView {
        run: "0123456789abcdef",
        name: EVIL,
        attempt: 1,
        worker: 0,
        query: "\"><script>alert(1)</script>",
        at: None,
        extract: &extract,
    }));
    is_text(&stop(&view, StopKind::Now, "key"));
    let check = DoctorCheck {
        name: EVIL.to_owned(),
        health: "ok".to_owned(),
        text: EVIL.to_owned(),
    };
    is_text(&machine(&MachinePage {
        host: EVIL,
        checks: Ok(&[check]),
        gpus: Err(EVIL),
    }));
    is_text(&message("No", EVIL));
    is_text(&door(EVIL));
}

/// A run that prints this many steps, one per second.
fn long(steps: u64) -> (RunChart, RunState) {
    let (mut picture, mut s, mut teller) = (RunChart::default(), RunState::default(), StoryBuilder::default());
    let order = LaunchOrder {
        attempt: AttemptNo(1),
        from: StartPoint::Fresh,
        lost: Vec::new(),
        nodes: 1,
    };
    let at = |n: u64| {
        (
            Tick(1000 * n),
            WallMs(1_795_219_200_000 + 1000 * i64::try_from(n).unwrap()),
        )
    };
    let intent = JournalRecord::Intended {
        at: Tick(0),
        act: Act {
            id: supervise_core::id::ActId(1),
            term: Term(1),
            attempt: Some(AttemptNo(1)),
            kind: ActKind::Launch(Box::new(order)),
        },
        reasons: Vec::new(),
    };
    let done = EventKind::ActDone {
        act: supervise_core::id::ActId(1),
        result: Ok(supervise_core::event::ActOutput::Launched {
            guard: supervise_core::id::ProcRef { pid: 2, start: 1 },
            workers: vec![supervise_core::id::ProcRef { pid: 3, start: 1 }],
            argv: Vec::new(),
            ahead: None,
        }),
    };
    let fact = |n: u64, kind| {
        let (at, wall) = at(n);
        JournalRecord::Fact(Event {
            at,
            wall,
            entropy: 0,
            kind,
        })
    };
    let progress = |n: u64| {
        fact(
            n,
            EventKind::Progress {
                attempt: AttemptNo(1),
                phase: TrainerPhase::Step,
                step: Some(Step(n)),
                beats: 0,
                risen: 0,
                activity: supervise_core::event::Activity::default(),
            },
        )
    };
    let records = [intent, fact(0, done)].into_iter().chain((1..=steps).map(progress));
    for record in records {
        s.apply(&record);
        teller.add(&record);
        picture.note(&s, &record);
    }
    (picture, s)
}

#[test]
fn a_picture_of_a_long_run_is_as_large_as_one_of_a_short_run_and_ends_where_the_run_is() {
    assert!(RunChart::default().drawn().is_none());
    let (short, _) = long(20);
    let (endless, s) = long(50_000);
    assert_eq!(s.attempt.and_then(|a| a.training.step), Some(Step(50_000)));
    let (short, endless) = (
        short.drawn().unwrap().into_string(),
        endless.drawn().unwrap().into_string(),
    );
    assert!(short.matches(',').count() >= 20, "{short}");
    assert!(endless.len() < 60_000, "{}", endless.len());
    assert!(endless.contains("highest step 50000"), "{}", &endless[..400]);
}

#[test]
fn a_list_of_many_runs_comes_in_pages_that_a_word_narrows() {
    let many: Vec<StatusView> = (0..1000_i64)
        .map(|n| {
            let mut v = StatusView::unknown(&format!("{n:016x}"), RunLiveness::default(), String::new());
            v.root = Some(format!(
                "/scratch/{}/experiments/run-{n}/checkpoints",
                "long-name-".repeat(20)
            ));
            v.problem = None;
            v.now = Some(WallMs(n));
            v
        })
        .collect();
    let first = list(&many, 0, &ListQuery::default());
    assert!(first.len() < 200_000, "{}", first.len());
    assert!(
        first.contains("run-999/") && first.contains("run-900/") && !first.contains("run-899/"),
        "newest first"
    );
    assert!(
        first.contains("href=\"/?page=1&amp;q=\"") && first.contains("Page 1 of 10"),
        "{}",
        &first[first.len() - 600..]
    );
    let wanted = |query: &str, page| ListQuery {
        query: query.to_owned(),
        page,
        ..ListQuery::default()
    };
    let last = list(&many, 0, &wanted("", 99));
    assert!(
        last.contains("run-0/") && last.contains("Page 10 of 10"),
        "beyond the last one is the last one"
    );
    let some = list(&many, 0, &wanted("RUN-99", 0));
    assert!(some.contains("11 of 1000 runs"), "{}", &some[..1500]);
    assert!(list(&many, 0, &wanted("\u{2028}&\"", 0)).contains("None of them"));
}

#[test]
fn a_reason_that_the_outcome_tells_is_not_told_twice() {
    let mut v = evil();
    let text = "4 attempts in a row ended without a newly proven step";
    v.outcome = Some(OutcomeView {
        word: "gave_up",
        exit_code: 6,
        why: format!("gave up: {text}"),
    });
    v.reasons = vec![
        Reason::new("budget", text),
        Reason::new("worker_failed", "worker 1 ended with 3"),
    ];
    let (story, picture) = RunView::blank("0123456789abcdef");
    let page = run(&RunView {
        status: &v,
        story: &story,
        picture: &picture,
        steps: &[],
        next: None,
        plans: false,
        stale: None,
        sent_back: None,
        form_key: None,
    });
    assert_eq!(page.matches(text).count(), 1, "{page}");
    assert!(page.contains("because worker 1 ended with 3"), "{page}");
    assert_eq!(v.text().matches(text).count(), 1, "{}", v.text());
}

#[test]
fn a_list_is_sorted_and_narrowed_by_what_its_address_says() {
    let run = |n: i64, step: u64, exit: Option<u8>| {
        let mut v = StatusView::unknown(&format!("{n:016x}"), RunLiveness::default(), String::new());
        v.root = Some(format!("/scratch/run-{n}/checkpoints"));
        v.problem = None;
        v.now = Some(WallMs(n));
        v.restarts = u32::try_from(10 - n).unwrap();
        v.supervisor.alive = exit.is_none();
        v.progress = Some(report(&format!("run-{n}"), step));
        v.outcome = exit.map(|exit_code| OutcomeView {
            word: if exit_code == 0 { "finished" } else { "gave_up" },
            exit_code,
            why: String::new(),
        });
        v
    };
    let all = [run(1, 30, None), run(2, 10, Some(0)), run(3, 20, Some(6))];
    let shown = |query: &str| {
        let fields: Vec<(&str, &str)> = query.split('&').filter_map(|f| f.split_once('=')).collect();
        let get = |name: &str| fields.iter().find(|f| f.0 == name).map(|f| f.1);
        let page = list(&all, 0, &ListQuery::of(get));
        let mut at: Vec<(usize, i64)> = (1..=3)
            .filter_map(|n| Some((page.find(&format!(">run-{n}<"))?, n)))
            .collect();
        at.sort_unstable();
        (at.into_iter().map(|(_, n)| n).collect::<Vec<_>>(), page)
    };
    for (query, runs) in [
        ("", vec![3, 2, 1]),
        ("sort=step", vec![1, 3, 2]),
        ("sort=step&reverse=1", vec![2, 3, 1]),
        ("sort=name", vec![1, 2, 3]),
        ("sort=restarts", vec![1, 2, 3]),
        ("sort=state", vec![3, 1, 2]),
        ("state=active", vec![1]),
        ("state=failed", vec![3]),
        ("state=ended&sort=name", vec![2, 3]),
        ("sort=no&state=no&page=x", vec![3, 2, 1]),
    ] {
        assert_eq!(shown(query).0, runs, "{query}");
    }
    let (_, page) = shown("sort=step&state=ended");
    assert!(page.contains("aria-sort=\"descending\""), "{page}");
    assert!(
        page.contains("/?page=0&amp;q=&amp;state=ended&amp;sort=step&amp;reverse=1"),
        "{page}"
    );
}
