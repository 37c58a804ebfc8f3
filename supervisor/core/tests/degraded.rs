//! Tables for steps that are not all there, and for what a question or a refusal says of them.

use crate::choose::{case, check, disk, progressed, spec};
use crate::world::disk::dir;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth, PinsHash, StateKind};
use supervise_core::event::ScanReport;
use supervise_core::id::{AttemptNo, Step};
use supervise_core::journal::record::{RunOutcome, StartPoint};
use supervise_core::resume::{ResumeChoice, choose};
use supervise_core::state::{OwnStep, RunState};

#[test]
fn what_is_left_of_a_step_is_taken_where_nothing_else_is_and_that_is_allowed() {
    check(
        &RunState::default(),
        &[
            // An older step that has everything comes first, whatever may be lost.
            case(
                "disk whole 2 no-optimizer 4; tracker 4",
                "degraded=model",
                "2 foreign:4 tracker:2",
            ),
            case("disk no-optimizer 4; tracker 4", "degraded=model", "4"),
            case("disk no-optimizer 4; tracker 4", "", "refuse 4: part_is_left"),
            case(
                "disk no-optimizer 4; tracker 4",
                "degraded=ask",
                "refuse 4: part_is_left",
            ),
            case(
                "disk no-optimizer 4; tracker 4",
                "degraded=never",
                "refuse 4: part_is_left",
            ),
            // The trainer would load it, whatever it is told.
            case("disk no-data 4; tracker 4", "", "4 aside:data.pt"),
            case("disk no-data 4; tracker 4", "degraded=ask", "refuse 4: part_is_left"),
            case(
                "disk no-optimizer 4 torn 6; tracker 6",
                "degraded=model",
                "4 foreign:6 tracker:4",
            ),
            case(
                "disk no-optimizer 4 unreadable 6; tracker 6",
                "degraded=model",
                "wait: unreadable",
            ),
            // Better than nothing, and no better than what a person asked for.
            case("disk no-optimizer 4; tracker 4", "degraded=model allow-fresh", "4"),
            case(
                "disk no-optimizer 4; tracker 4",
                "allow-fresh",
                "fresh foreign:4 tracker:none",
            ),
            case("disk whole 2 no-optimizer 4; tracker 4", "degraded=model from=4", "4"),
            case(
                "disk whole 2 no-optimizer 4; tracker 4",
                "from=4",
                "refuse 4: part_is_left",
            ),
            // From the last step there is nothing left to train.
            case("disk no-optimizer 8; tracker 8", "degraded=model", "refuse 4: no_proof"),
        ],
    );
    check(
        &progressed(),
        &[
            case("disk no-data 4 6; tracker 6", "", "6 aside:data.pt"),
            case(
                "disk no-optimizer 6; tracker 6",
                "allow-fresh",
                "refuse 4: part_is_left",
            ),
            case("disk no-optimizer 6; tracker 6", "degraded=model", "6"),
        ],
    );
}

#[test]
fn a_question_about_a_part_says_what_is_lost_and_how_to_agree() {
    let told = |options: &str, text: &str| match choose(
        &RunState::default(),
        &spec(options),
        &disk(text).scan(Depth::Full, 9),
    ) {
        ResumeChoice::Refuse {
            outcome: RunOutcome::NoProof { why },
            ..
        } => why,
        other => panic!("{other:?}"),
    };
    for (options, disk, parts) in [
        (
            "degraded=ask",
            "disk no-optimizer 4",
            [
                "global_step_4",
                "without its optimizer state",
                "you are asked first",
                "--set supervisor.degraded_resume=model_only",
            ],
        ),
        (
            "degraded=never",
            "disk no-data 4",
            [
                "global_step_4",
                "without its data order",
                "do not allow",
                "--set supervisor.degraded_resume=data_order",
            ],
        ),
        (
            "degraded=ask",
            "disk degraded 4",
            [
                "global_step_4",
                "without its data order",
                "you are asked first",
                "--set supervisor.degraded_resume=data_order",
            ],
        ),
        (
            "degraded=ask from=4",
            "disk whole 2 no-optimizer 4",
            [
                "global_step_4",
                "the optimizer of rank 1 is torn",
                "run --from 4",
                "--set supervisor.degraded_resume=model_only",
            ],
        ),
    ] {
        let why = told(options, disk);
        for part in parts {
            assert!(why.contains(part), "{part} is not in {why}");
        }
    }
}

#[test]
fn a_wish_to_load_less_holds_for_the_role_that_has_it_and_is_told() {
    let mut spec = spec("");
    let mut critic = spec.roles[0].clone();
    critic.name = "critic".to_owned();
    critic.load_wish = true;
    critic.load_contents = vec!["model".to_owned()];
    spec.roles.push(critic);
    let disk = disk("disk whole 2; tracker 2");
    let chosen = |s: &RunState, change: &dyn Fn(&mut ScanReport)| {
        let mut scan = disk.scan(Depth::Full, 9);
        change(&mut scan);
        match choose(s, &spec, &scan) {
            ResumeChoice::Start {
                from: StartPoint::Step { load, roles, .. },
                lost,
                ..
            } => (load, roles, lost),
            other => panic!("{other:?}"),
        }
    };
    let all = ["model", "optimizer", "extra"].map(str::to_owned).to_vec();
    let (load, roles, lost) = chosen(&RunState::default(), &|_| {});
    assert_eq!(load, ["model"]);
    assert_eq!(roles["actor"], all);
    assert_eq!(roles["critic"], ["model"]);
    assert_eq!(lost, [StateKind::Optimizer, StateKind::LrSchedule, StateKind::Rng]);
    // Once, and never again.
    let mut later = progressed();
    later.progress.mark = Some(Step(2));
    assert_eq!(chosen(&later, &|_| {}), (all.clone(), BTreeMap::new(), Vec::new()));
    // A role that never saved its optimizer takes nothing from the others.
    let (load, roles, _) = chosen(&later, &|scan| {
        scan.steps[0].contents = vec!["model".to_owned()];
        scan.steps[0].holds = BTreeMap::from([
            ("actor".to_owned(), all.clone()),
            ("critic".to_owned(), vec!["model".to_owned(), "hf_model".to_owned()]),
        ]);
    });
    assert_eq!(load, ["model"]);
    assert_eq!((&roles["actor"], &roles["critic"]), (&all, &vec!["model".to_owned()]));
}

#[test]
fn a_wish_to_load_less_holds_until_the_first_proven_step() {
    let mut spec = spec("");
    spec.roles[0].load_wish = true;
    spec.roles[0].load_contents = vec!["model".to_owned()];
    let disk = disk("disk whole 2; tracker 2");
    let loaded = |s: &RunState| match choose(s, &spec, &disk.scan(Depth::Full, 9)) {
        ResumeChoice::Start {
            from: StartPoint::Step { load, .. },
            ..
        } => load,
        other => panic!("{other:?}"),
    };
    assert_eq!(loaded(&RunState::default()), ["model"]);
    let mut later = progressed();
    later.progress.mark = Some(Step(2));
    assert_eq!(loaded(&later), ["model", "optimizer", "extra"]);
}

#[test]
fn a_refusal_names_the_file() {
    let spec = spec("");
    let scan = disk("disk damaged 2").scan(Depth::Full, 9);
    let ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { .. },
        reasons,
    } = choose(&RunState::default(), &spec, &scan)
    else {
        panic!("a damaged step was chosen");
    };
    let id: CkptId = dir(2);
    assert!(
        reasons
            .iter()
            .any(|r| r.text.contains(&id.to_string()) && !r.evidence.is_empty())
    );
}

#[test]
fn what_a_step_imports_is_asked_of_others_only() {
    // Taken into care at step 2; what is above was written since.
    let mut s = progressed();
    check(
        &s,
        &[
            case("disk whole 2 4 strange 6; tracker 6", "", "6"),
            case("disk strange 2; tracker 2", "", "2"),
            case("disk strange 1; tracker 1", "", "refuse 4: unfamiliar_globals"),
            case("disk whole 2 4 unsafe 6; tracker 6", "", "refuse 4: unsafe"),
        ],
    );
    // Nothing was launched since: what is above is another run's still.
    s.requests.care.as_mut().unwrap().attempt = AttemptNo(5);
    check(
        &s,
        &[
            case("disk strange 4; tracker 4", "", "refuse 4: unfamiliar_globals"),
            case("disk strange 2; tracker 2", "", "2"),
        ],
    );
    // A run that began from scratch wrote all of it.
    s.requests.care.as_mut().unwrap().attempt = AttemptNo(1);
    s.requests.care.as_mut().unwrap().step = None;
    check(&s, &[case("disk strange 2 4 6; tracker 6", "", "6")]);
}

#[test]
fn a_question_names_the_file_the_names_and_the_answer() {
    let refused = |own: &[&str], text: &str, s: &RunState| {
        let mut scan = disk(text).scan(Depth::Full, 9);
        for step in &mut scan.steps {
            step.own_modules = own.iter().map(|m| (*m).to_owned()).collect();
        }
        match choose(s, &spec(""), &scan) {
            ResumeChoice::Refuse {
                outcome: RunOutcome::NoProof { why },
                reasons,
            } => {
                assert!(!reasons[0].evidence.is_empty());
                why
            }
            other => panic!("{other:?}"),
        }
    };
    let why = refused(&["my_project"], "disk strange 2", &RunState::default());
    for part in [
        "global_step_2",
        "my_project.state.Sampler",
        "proof: {trust_globals: [\"my_project.state.Sampler\"]}",
        "SUPERVISE_PROOF__TRUST_GLOBALS='[\"my_project.state.Sampler\"]'",
        "--from N",
    ] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    for own in [&[][..], &["my", "my_project.state", "project"]] {
        let why = refused(own, "disk strange 2", &RunState::default());
        for part in ["my_project.state.Sampler", "supervise verify", "--from N", "--fresh"] {
            assert!(why.contains(part), "{part} is not in {why}");
        }
        for part in ["trust_globals", "TRUST_GLOBALS"] {
            assert!(!why.contains(part), "{part} is in {why}");
        }
    }
    let mut changed = progressed();
    let (pins, read) = (PinsHash(9), true);
    changed.disk.own.insert(dir(4).to_string(), OwnStep { pins, read });
    let why = refused(&[], "disk whole 2 unsafe 4", &changed);
    assert!(why.contains("os.system") && why.contains("this run wrote it"), "{why}");
    let why = refused(&[], "disk whole 2 unsafe 4", &RunState::default());
    assert!(
        why.contains("nothing that this run wrote") && why.contains("proof.trust_unsafe"),
        "{why}"
    );
}
