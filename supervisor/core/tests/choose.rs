//! Tables for the choice of the resume point: one directory, one answer.

use crate::world::disk::{Disk, dir, elsewhere};
use crate::world::options;
use crate::world::script::{Verb, parse};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CheckpointSummary, Depth};
use supervise_core::event::ScanReport;
use supervise_core::id::{AttemptNo, Step, Term};
use supervise_core::journal::record::{DiskEdit, StartPoint};
use supervise_core::resume::{ResumeChoice, choose, needed_depth, scan_width};
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_core::state::{AdoptionPoint, OwnStep, RunState};

/// A case: what is on disk, with which options, and the answer in a few words.
pub(crate) struct Case {
    disk: &'static str,
    options: &'static str,
    answer: &'static str,
}

pub(crate) fn case(disk: &'static str, options: &'static str, answer: &'static str) -> Case {
    Case { disk, options, answer }
}

pub(crate) fn disk(text: &str) -> Disk {
    let mut disk = Disk::default();
    for (_, verb) in parse(&text.replace("; ", "\n")).unwrap() {
        match verb {
            Verb::Disk(steps) => steps.iter().for_each(|(t, n)| disk.put(dir(*n), *n, *t)),
            Verb::Elsewhere(t, n) => disk.put(elsewhere(n), n, t),
            Verb::Tracker(t) => disk.tracker = t,
            other => panic!("{other:?} is nothing on disk"),
        }
    }
    disk
}

pub(crate) fn spec(words: &str) -> RunSpec {
    let (mut spec, mut habits) = (options::spec(), options::Habits::default());
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    options::apply(&mut spec, &mut habits, &words).unwrap();
    spec
}

pub(crate) fn answer(s: &RunState, spec: &RunSpec, disk: &Disk) -> String {
    let mut s = s.clone();
    s.disk.own.extend(written(&s, &disk.scan(Depth::Structure, 0)));
    s.disk.scan = Some(disk.scan(needed_depth(&s, spec), scan_width(&s, spec)));
    // What it shows may have to be read as a whole.
    let scan = disk.scan(needed_depth(&s, spec), scan_width(&s, spec));
    let s = &s;
    let edits = |edits: &[DiskEdit]| {
        let words: Vec<String> = edits
            .iter()
            .map(|e| match e {
                DiskEdit::MoveAside { from, foreign, .. } => {
                    let place = if *foreign { "foreign" } else { "aside" };
                    format!(" {place}:{}", from.0.as_str().rsplit('_').next().unwrap_or_default())
                }
                DiskEdit::PartAside { entry, .. } => format!(" aside:{entry}"),
                DiskEdit::WriteTracker { step } => format!(" tracker:{step}"),
                DiskEdit::RemoveTracker => " tracker:none".to_owned(),
                DiskEdit::SetFrequencies => " frequencies".to_owned(),
                DiskEdit::PutBack { from } => format!(" back:{from}"),
                DiskEdit::Reshard(cut) => format!(" cut:{}", cut.to),
                DiskEdit::EndReshard(_) => " cut-ends".to_owned(),
            })
            .collect();
        words.concat()
    };
    match choose(s, spec, &scan) {
        ResumeChoice::Start {
            from,
            edits: e,
            reasons,
            ..
        } => {
            assert!(!reasons.is_empty());
            let from = match from {
                StartPoint::Step { ckpt, .. } => ckpt.to_string(),
                StartPoint::Fresh => "fresh".to_owned(),
                StartPoint::AsIs => "as is".to_owned(),
            };
            format!("{}{}", from.trim_start_matches("global_step_"), edits(&e))
        }
        ResumeChoice::Finished { step, .. } => format!("finished {step}"),
        ResumeChoice::Unreadable { reasons } => format!("wait: {}", reasons[0].code),
        ResumeChoice::Refuse { outcome, reasons } => format!("refuse {}: {}", outcome.exit_code(), reasons[0].code),
    }
}

/// The steps that a run in care wrote: from the one that it began with on, once it has launched.
pub(crate) fn written(s: &RunState, scan: &ScanReport) -> BTreeMap<String, OwnStep> {
    let Some(care) = &s.requests.care else {
        return BTreeMap::new();
    };
    let began = care.step.map_or(0, |step| step.0);
    let is_ours = |c: &&CheckpointSummary| match c.id.0.is_absolute() {
        true => care.step == Some(c.step),
        false => care.step == Some(c.step) || c.step.0 > began && !s.care_is_unfinished(),
    };
    let own = |c: &CheckpointSummary| {
        let (pins, read) = (c.pins, false);
        (c.id.to_string(), OwnStep { pins, read })
    };
    scan.steps.iter().filter(is_ours).map(own).collect()
}

pub(crate) fn check(s: &RunState, cases: &[Case]) {
    for c in cases {
        let got = answer(s, &spec(c.options), &disk(c.disk));
        assert_eq!(got, c.answer, "disk {:?}, options {:?}", c.disk, c.options);
    }
}

#[test]
fn the_first_start() {
    check(
        &RunState::default(),
        &[
            case("", "", "fresh"),
            case("disk husk 2", "", "fresh aside:2"),
            case("disk whole 2 4; tracker 4", "", "4"),
            case("disk whole 2 4; tracker 2", "", "4 tracker:4"),
            case("disk whole 2 4; tracker missing", "", "4 tracker:4"),
            case("disk whole 2 4; tracker empty", "", "4 tracker:4"),
            case("disk whole 2 4; tracker rubbish", "", "4 tracker:4"),
            case("disk whole 2 4; tracker link", "", "4 tracker:4"),
            case("disk whole 4; tracker 99", "", "4 tracker:4"),
            // A trainer without a pointer is given none.
            case("disk whole 2 torn 4; tracker unused", "", "2 foreign:4"),
            case("disk whole 2; tracker unused", "fresh", "fresh foreign:2"),
            case("tracker unused", "", "fresh"),
            case("disk whole 2 torn 4; tracker 4", "", "2 foreign:4 tracker:2"),
            case(
                "disk whole 2 damaged 4 unknown 10; tracker 2",
                "",
                "2 foreign:10 foreign:4",
            ),
            // What runs code is not torn: falling back would hide it.
            case(
                "disk whole 2 damaged 4 unsafe 6 unknown 10; tracker 2",
                "",
                "refuse 4: unsafe",
            ),
            case("disk whole 2 unsafe 4", "allow-fresh", "refuse 4: unsafe"),
            case("disk whole 2 unsafe 4; tracker 2", "from=2", "2 aside:4"),
            case("disk unsafe 2 whole 4; tracker 4", "", "4"),
            case(
                "disk whole 2 unsafe 4; tracker 4",
                "from=4",
                "refuse 4: asked_step_not_whole",
            ),
            case("disk whole 2 unsafe 4", "fresh", "fresh foreign:4 foreign:2"),
            // Nobody vouched for what it imports.
            case("disk whole 2 strange 4; tracker 4", "", "refuse 4: unfamiliar_globals"),
            case(
                "disk whole 2 strange 4; tracker 4",
                "from=4",
                "refuse 4: unfamiliar_globals",
            ),
            case("disk whole 2 strange 4; tracker 4", "from=2", "2 aside:4 tracker:2"),
            case(
                "disk whole 2 strange 4; tracker 4",
                "resume=path:4",
                "refuse 4: unfamiliar_globals",
            ),
            case("disk strange 2 whole 4; tracker 4", "", "4"),
            // It is not loaded.
            case("disk strange 8; tracker 8", "", "finished 8"),
            case("disk strange 4; tracker 4", "no-prove", "4"),
            case("disk whole 2 unreadable 4; tracker 4", "", "wait: unreadable"),
            case("disk unreadable 2 whole 4; tracker 4", "", "4"),
            case("disk torn 2; tracker missing", "", "refuse 4: no_proof"),
            case("disk torn 2; tracker missing", "allow-fresh", "fresh foreign:2"),
            case("disk torn 2 unreadable 4", "allow-fresh", "wait: unreadable"),
            case("tracker 4", "", "refuse 4: no_proof"),
            case("disk whole 2 4 6; tracker 2", "", "refuse 4: rolled_back"),
            case("disk whole 8; tracker 8", "", "finished 8"),
            case("disk whole 8; tracker 8", "last=20", "8"),
            // Nobody is known to have written it: every byte is read, whatever the settings say.
            case("disk whole 2 rotten 4; tracker 4", "", "2 foreign:4 tracker:2"),
            case(
                "disk whole 2 rotten 4; tracker 4",
                "depth=full",
                "2 foreign:4 tracker:2",
            ),
            case("disk whole 2 unfit 4; tracker 4", "", "refuse 3: does_not_fit"),
            case("disk whole 2 degraded 4; tracker 4", "", "4"),
            case(
                "disk whole 2 degraded 4; tracker 4",
                "degraded=never",
                "refuse 4: degraded_not_allowed",
            ),
            case("disk whole 2 torn 4", "no-recovery", "as is"),
            case("disk whole 2 damaged 4", "no-prove", "4"),
            case("", "plain", "as is"),
        ],
    );
}

#[test]
fn wishes() {
    check(
        &RunState::default(),
        &[
            case(
                "disk whole 2 4; tracker 4",
                "resume=disable",
                "fresh foreign:4 foreign:2 tracker:none",
            ),
            case("disk whole 2 unreadable 4", "resume=disable", "wait: unreadable"),
            case(
                "disk whole 2 4; tracker 4",
                "fresh",
                "fresh foreign:4 foreign:2 tracker:none",
            ),
            case("disk whole 2 4 6; tracker 6", "from=4", "4 aside:6 tracker:4"),
            case("disk whole 2 4 6; tracker 2", "from=6", "6 tracker:6"),
            case(
                "disk whole 2 damaged 4 whole 6",
                "from=4",
                "refuse 4: asked_step_not_whole",
            ),
            case("disk whole 2", "from=4", "refuse 4: asked_step_not_whole"),
            case("disk whole 2 unreadable 4", "from=4", "wait: unreadable"),
            case("disk whole 2 unreadable 4", "from=2", "wait: unreadable"),
            case("disk whole 2 4 6; tracker 6", "resume=path:4", "4 foreign:6 tracker:4"),
            case("disk whole 2 unreadable 6", "resume=path:2", "wait: unreadable"),
            case(
                "disk whole 2; elsewhere whole 10",
                "resume=path:elsewhere:10",
                "/elsewhere/global_step_10",
            ),
            case(
                "disk whole 2; elsewhere torn 10",
                "resume=path:elsewhere:10",
                "refuse 4: resume_path",
            ),
            case(
                "disk whole 2; elsewhere unreadable 10",
                "resume=path:elsewhere:10",
                "wait: unreadable",
            ),
            case("disk whole 2", "resume=path:elsewhere:10", "refuse 4: resume_path"),
            // A flag of the command line beats the configuration.
            case(
                "disk whole 2 4; tracker 4",
                "resume=path:4 from=2",
                "2 aside:4 tracker:2",
            ),
            case(
                "disk whole 2 4; tracker 4",
                "resume=disable from=2",
                "2 aside:4 tracker:2",
            ),
        ],
    );
}

/// A run in its third term, after progress to step 6.
pub(crate) fn progressed() -> RunState {
    let mut s = RunState {
        term: Term(3),
        attempts: AttemptNo(4),
        ..RunState::default()
    };
    s.progress.mark = Some(Step(6));
    s.requests.wish_done = true;
    s.requests.care = Some(AdoptionPoint {
        step: Some(Step(2)),
        intent: ResumeIntent::Auto,
        term: Term(1),
        attempt: AttemptNo(1),
        cleared: false,
    });
    s
}

#[test]
fn a_run_with_a_mark() {
    check(
        &progressed(),
        &[
            case("disk whole 2 4 6; tracker 6", "", "6"),
            case("disk whole 2 4 damaged 6; tracker 6", "", "4 aside:6 tracker:4"),
            case("disk damaged 2 4 6; tracker 6", "", "refuse 4: no_proof"),
            case("", "", "refuse 4: no_proof"),
            // Void once a mark exists.
            case("disk damaged 2 4 6", "allow-fresh", "refuse 4: no_proof"),
            case("", "allow-fresh", "refuse 4: no_proof"),
            case("disk whole 6; tracker 6", "fresh", "fresh foreign:6 tracker:none"),
            case(
                "disk whole 6; tracker 6",
                "resume=disable",
                "fresh foreign:6 tracker:none",
            ),
        ],
    );
}

#[test]
fn step_backs_and_distrust() {
    let mut s = progressed();
    s.disk.distrusted = vec![dir(6)];
    check(
        &s,
        &[
            case("disk whole 2 4 6; tracker 6", "", "4 aside:6 tracker:4"),
            case(
                "disk whole 2 4 6; tracker 6",
                "keep=1 keep-raise=0",
                "4 aside:6 tracker:4",
            ),
            // A person's word is above a failed load.
            case("disk whole 2 4 6; tracker 6", "from=6", "6"),
            case("disk whole 2 4 unreadable 6", "", "wait: unreadable"),
        ],
    );
    s.budget.step_backs = 2;
    check(&s, &[case("disk whole 2 4 6; tracker 6", "", "4 aside:6 tracker:4")]);
    s.budget.step_backs = 3;
    check(
        &s,
        &[case("disk whole 2 4 6; tracker 6", "", "refuse 6: too_many_step_backs")],
    );
}

#[test]
fn doubt_reads_every_byte() {
    let mut s = progressed();
    s.disk.doubt = true;
    assert_eq!(needed_depth(&s, &spec("")), Depth::Full);
    check(
        &s,
        &[case("disk whole 2 4 rotten 6; tracker 6", "", "4 aside:6 tracker:4")],
    );
    // An answer to a shallower question is no answer.
    let shallow = disk("disk whole 2 4 6; tracker 6").scan(Depth::Structure, 9);
    assert!(matches!(
        choose(&s, &spec(""), &shallow),
        ResumeChoice::Unreadable { .. }
    ));
}

#[test]
fn a_step_that_appeared_while_nothing_lived_is_a_strangers() {
    let mut s = progressed();
    let mut w = crate::world::World::new(parse("disk whole 2\ntracker 2").unwrap());
    w.run();
    s.attempt = w.s.attempt.clone();
    s.disk.settled = Some(vec![dir(2), dir(4), dir(6)]);
    check(
        &s,
        &[
            case("disk whole 2 4 6; tracker 6", "", "6"),
            case("disk whole 2 4 6 7; tracker 6", "", "refuse 5: stranger"),
            case("disk whole 2 4 6 torn 7; tracker 6", "", "refuse 5: stranger"),
            case("disk whole 2 3 4 6; tracker 6", "", "6"),
            case("disk whole 2 4 6 7; tracker 6", "from=7", "7 tracker:7"),
        ],
    );
}

#[test]
fn an_unfinished_care_goes_on_where_it_was() {
    let mut s = progressed();
    s.progress.mark = None;
    s.requests.wish_done = false;
    s.requests.care = Some(AdoptionPoint {
        step: None,
        intent: ResumeIntent::Auto,
        term: Term(2),
        attempt: AttemptNo(5),
        cleared: true,
    });
    check(
        &s,
        &[
            case("disk whole 2; tracker 2", "", "fresh foreign:2 tracker:none"),
            case("disk whole 2; tracker 2", "from=2", "2"),
        ],
    );
    assert_eq!(scan_width(&s, &spec("from=2")), u32::MAX);
}

#[test]
fn a_root_that_cannot_be_read_is_waited_for() {
    let mut scan = disk("disk whole 2").scan(Depth::Structure, 9);
    scan.unreadable = Some("Stale file handle".to_owned());
    for options in ["", "fresh", "resume=disable", "from=2", "no-prove", "allow-fresh"] {
        let got = choose(&RunState::default(), &spec(options), &scan);
        assert!(matches!(got, ResumeChoice::Unreadable { .. }), "{options}: {got:?}");
    }
}

#[test]
fn a_run_that_began_from_nothing_begins_again_over_a_torn_save_and_nothing_else() {
    let mut s = progressed();
    s.progress.mark = None;
    if let Some(care) = &mut s.requests.care {
        care.step = None;
    }
    check(
        &s,
        &[
            case("disk torn 4; tracker 2", "", "fresh aside:4 tracker:none"),
            case("disk no-optimizer 4; tracker 4", "", "fresh aside:4 tracker:none"),
            // Two of them were not both cut short: this is how it saves.
            case("disk no-optimizer 2 4; tracker 4", "", "refuse 4: part_is_left"),
            // Nobody here knows what it is worth.
            case("disk unknown 4; tracker 4", "", "refuse 4: no_proof"),
        ],
    );
}
