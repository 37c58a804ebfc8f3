use super::*;
use crate::render::explain::StoryBuilder;
use crate::render::ledger::LedgerView;
use crate::render::status::{Liveness, RunLiveness};
use supervise_core::id::{Step, Term};
use supervise_core::journal::record::RunOutcome;
use supervise_core::observe::numbers::{StepMetrics, StepNumbers, TrainingMetric};
use supervise_core::state::{RunMode, RunState};

const EVIL: &str = "a\u{1b}[2J\r\nforged\u{9b}x\u{202e}";

fn view(run: &str, wall: i64, mark: Option<u64>, outcome: Option<RunOutcome>) -> StatusView {
    let mut s = RunState {
        wall: WallMs(wall),
        term: Term(1),
        mode: if outcome.is_some() {
            RunMode::Finished
        } else {
            RunMode::Running
        },
        outcome,
        ..RunState::default()
    };
    s.progress.mark = mark.map(Step);
    let supervisor = Liveness {
        alive: s.outcome.is_none(),
        pid: Some(7),
        stopped: false,
    };
    let mut view = StatusView::of(
        run,
        &s,
        None,
        RunLiveness {
            supervisor,
            guard: supervisor,
        },
    );
    view.looked = Some(WallMs(100_000));
    view.root = Some(format!("/ckpt/{run}"));
    view.ledger = Some(LedgerView::begun(WallMs(wall)));
    view
}

fn some() -> TopState {
    let mut top = TopState::new(None);
    let done = view(
        "done",
        1_000,
        Some(30),
        Some(RunOutcome::Finished { step: Some(Step(30)) }),
    );
    top.take(TopAnswer::Runs(vec![done, view("runs", 99_000, Some(20), None)], 1));
    top
}

fn text(lines: &[Line<'_>]) -> String {
    lines
        .iter()
        .map(|l| l.to_string().trim_end().to_owned() + "\n")
        .collect()
}

fn press(top: &mut TopState, keys: &[KeyPress]) {
    assert!(keys.iter().all(|k| top.key(*k)), "nobody left");
}

#[test]
fn the_list_tells_each_run_and_more_of_the_chosen_one() {
    let mut top = some();
    let lines = top.draw(80, 12, WallMs(100_000));
    assert_eq!(
        text(&lines),
        "supervise  2 runs, 1 not shown: the directories are gone               00:01:40Z
    STATE             STEP   PROVEN  PROGRESS      ETA  NAME
> ▶ running              -       20         -        -  runs
  ✓ finished             -       30         -        -  done


────────────────────────────────────────────────────────────────────────────────
runs  /ckpt/runs
▶ running


↑↓ choose  Enter open  l output  ? keys  q leave
"
    );
    assert_eq!(lines[2].style.add_modifier, ratatui::style::Modifier::BOLD);
}

#[test]
fn no_screen_is_wider_or_higher_than_the_terminal() {
    let mut top = some();
    top.views[0].root = Some(format!("/漢字/{}", "long/".repeat(60)));
    top.views[0].problem = Some("a problem of many words ".repeat(20));
    for keys in [
        &[][..],
        &[KeyPress::Letter('?')],
        &[KeyPress::Down],
        &[KeyPress::Open],
        &[KeyPress::Open],
        &[KeyPress::Letter('/'), KeyPress::Letter('漢')],
    ] {
        press(&mut top, keys);
        for (width, height) in [(80, 24), (200, 60), (20, 5), (1, 1), (3, 40), (0, 0)] {
            let lines = top.draw(width, height, WallMs(0));
            assert_eq!(lines.len(), height);
            assert!(lines.iter().all(|l| l.width() <= width), "{width}: {}", text(&lines));
        }
        top.help = false;
    }
}

#[test]
fn keys_lead_in_and_out_and_say_what_is_read() {
    let mut top = some();
    press(&mut top, &[KeyPress::Down, KeyPress::Down, KeyPress::Open]);
    assert_eq!(top.wants(), TopQuery::Run("done".to_owned()));
    press(&mut top, &[KeyPress::Open, KeyPress::Letter('w')]);
    let log = |query: &str| TopQuery::Log {
        run: "done".to_owned(),
        attempt: 0,
        worker: 1,
        query: query.to_owned(),
    };
    assert_eq!(top.wants(), log(""));
    press(
        &mut top,
        &[
            KeyPress::Letter('/'),
            KeyPress::Letter('q'),
            KeyPress::Letter('x'),
            KeyPress::Erase,
            KeyPress::Open,
        ],
    );
    assert_eq!(top.wants(), log("q"));
    press(&mut top, &[KeyPress::Back, KeyPress::Back]);
    assert_eq!(top.wants(), TopQuery::Run("done".to_owned()));
    press(&mut top, &[KeyPress::Back, KeyPress::Up, KeyPress::Letter('?')]);
    assert!(text(&top.draw(80, 24, WallMs(0))).contains("PgUp PgDn"));
    press(&mut top, &[KeyPress::Letter('q')]);
    assert_eq!((top.wants(), top.chosen.as_deref()), (TopQuery::Runs, Some("runs")));
    assert!(!top.key(KeyPress::Letter('q')) && !top.key(KeyPress::Interrupt) && !top.key(KeyPress::Back));
    // With a single named run there is no list.
    assert!(!TopState::new(Some("done")).key(KeyPress::Back));
}

#[test]
fn nothing_of_a_run_moves_the_cursor() {
    let mut top = some();
    top.views[0].root = Some(format!("/ckpt/{EVIL}"));
    top.views[0].problem = Some(EVIL.to_owned());
    top.views[0].trainer = Some(EVIL.to_owned());
    let safe = |top: &mut TopState| {
        let lines = top.draw(120, 60, WallMs(0));
        let spans = lines.iter().flat_map(|l| &l.spans);
        let odd = |c: char| c.is_control() || c == '\u{202e}';
        assert!(spans.clone().all(|s| !s.content.contains(odd)), "{}", text(&lines));
        let all = text(&lines);
        assert!(all.contains(r"a\x1b[2J") || all.contains("forged"), "{all}");
        all
    };
    safe(&mut top);
    press(&mut top, &[KeyPress::Open]);
    top.take(TopAnswer::Story("runs".to_owned(), Err(EVIL.to_owned())));
    safe(&mut top);
    top.take(TopAnswer::Story(
        "runs".to_owned(),
        Ok(Box::new(StoryBuilder::default().finish(EVIL, None))),
    ));
    safe(&mut top);
    press(&mut top, &[KeyPress::Open]);
    let lines = vec![
        EVIL.to_owned(),
        "\u{1b}[31mred\u{1b}[0m".to_owned(),
        "10%\r20%".to_owned(),
    ];
    top.take(TopAnswer::Log(top.wants(), Ok((lines, EVIL.to_owned()))));
    let all = safe(&mut top);
    assert!(all.contains("\nred\n20%\n"), "{all}");
}

#[test]
fn an_output_is_shown_from_its_end_and_scrolled_from_there() {
    let mut top = some();
    press(&mut top, &[KeyPress::Letter('l')]);
    let lines = (0..100).map(|n| format!("line {n}")).collect();
    top.take(TopAnswer::Log(top.wants(), Ok((lines, "all of it".to_owned()))));
    let shown = |top: &mut TopState| {
        text(&top.draw(80, 6, WallMs(0)))
            .lines()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&mut top)[..4],
        ["line 97", "line 98", "line 99", "── attempt 0, worker 0: all of it"]
    );
    press(&mut top, &[KeyPress::Up, KeyPress::PageUp]);
    assert_eq!(shown(&mut top)[..4], ["line 93", "line 94", "line 95", "line 96"]);
    press(&mut top, &[KeyPress::First, KeyPress::Up]);
    assert_eq!(shown(&mut top)[..2], ["line 0", "line 1"]);
    press(&mut top, &[KeyPress::Last]);
    assert_eq!(shown(&mut top)[2], "line 99");
    // An answer for another page is not shown.
    press(&mut top, &[KeyPress::Letter('w')]);
    assert_eq!(shown(&mut top)[0], "attempt 0, worker 1: reading …");
}

#[test]
fn the_chosen_run_stays_on_the_screen_among_a_thousand() {
    let mut top = TopState::new(None);
    let views = (0..1000).map(|n| view(&format!("run{n:04}"), n, None, None)).collect();
    top.take(TopAnswer::Runs(views, 0));
    press(&mut top, &[KeyPress::Last]);
    assert!(text(&top.draw(80, 24, WallMs(0))).contains("> ▶ running"));
    press(&mut top, &[KeyPress::PageUp]);
    assert!(text(&top.draw(80, 24, WallMs(0))).contains("> ▶ running"));
}

#[test]
fn a_curve_is_drawn_where_the_terminal_shows_it() {
    let number = |step: u64| {
        let mut of = StepMetrics::default();
        of.set(TrainingMetric::Loss, step as f64);
        StepNumbers {
            step: Some(Step(step)),
            of,
        }
    };
    let mut s = RunState::default();
    s.progress.before = vec![number(1), number(2)];
    let trained = StatusView::of("trained", &s, None, RunLiveness::default());
    for curves in [true, false] {
        let mut top = TopState::new(None);
        top.curves = curves;
        top.take(TopAnswer::Runs(vec![trained.clone()], 0));
        let list = text(&top.draw(80, 24, WallMs(0)));
        press(&mut top, &[KeyPress::Open]);
        let run = text(&top.draw(80, 24, WallMs(0)));
        for screen in [list, run] {
            assert_eq!(
                screen.contains("▁█ 2.000, 1.000 to 2.000 in 2 steps"),
                curves,
                "{screen}"
            );
        }
    }
}
