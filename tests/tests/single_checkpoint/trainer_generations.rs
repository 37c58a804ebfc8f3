//! Generations that newer builds of AReaL write by themselves, each of which is a step, and the pointer that names one.

use super::stage::{SUPERVISE, SetWorker, Stage, files, generations, live};
use camino::Utf8PathBuf;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use supervise_core::checkpoint::{CheckpointSummary, Resumability, Verdict};
use supervise_core::event::{ScanReport, TrackerState};
use supervise_core::id::Step;
use supervise_core::journal::record::{DiskEdit, RunOutcome};
use supervise_core::resume::{ResumeChoice, choose};
use supervise_core::state::RunState;
use supervise_tests::areal_set::{Shape, save, weights_of};
use supervise_trainers::areal::Frequencies;

fn stage() -> Stage {
    let mut stage = Stage::with(Shape {
        own: true,
        data_ranks: 1,
        ..Shape::default()
    });
    stage.spec.cadence.every = Some(2);
    stage
}

fn generation(stage: &Stage, step: u64) -> Utf8PathBuf {
    let name = format!("checkpoint_generations/generation_step{:08}", step - 1);
    stage.root.join(name)
}

/// Generations that the pointer does not name.
fn spare(report: &ScanReport) -> Vec<&CheckpointSummary> {
    let is_spare = |c: &&CheckpointSummary| c.id.0.as_str().starts_with("generation_");
    report.steps.iter().filter(is_spare).collect()
}

/// Damages what a save holds: half of its first shard is gone.
fn damage(stage: &Stage, step: u64) {
    let shard = generation(stage, step).join("payloads/default/__0_0.distcp");
    let mut bytes = fs::read(&shard).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(shard, bytes).unwrap();
}

/// Decision before a launch.
fn decided(stage: &Stage, report: &ScanReport) -> ResumeChoice {
    choose(&RunState::default(), &stage.spec, report)
}

/// Arranges the disk as for a launch; answers the step that the trainer would then load, and what was done.
fn arranged(stage: &Stage, io_worker: &mut SetWorker) -> (Step, Vec<DiskEdit>) {
    let mut done = Vec::new();
    for _ in 0..3 {
        let report = io_worker.scan();
        let ResumeChoice::Start { edits, .. } = decided(stage, &report) else {
            panic!("no start: {:?}", decided(stage, &report));
        };
        if edits.is_empty() {
            let c = live(&report);
            assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
            // What is proven is what is loaded.
            assert_eq!(weights_of(stage.root.as_std_path()).unwrap(), c.step.0);
            return (c.step, done);
        }
        io_worker.edit(edits.clone()).unwrap();
        done.extend(edits);
    }
    panic!("what is arranged does not stay: {done:?}");
}

/// Sets that went aside: a run that is new takes all of it for another run's.
fn aside(stage: &Stage) -> Vec<Utf8PathBuf> {
    let below = |dir: Utf8PathBuf| dir.read_dir_utf8().into_iter().flatten();
    let all = below(stage.store.join("aside")).chain(below(stage.store.join("aside/foreign")));
    let paths = all.map(|e| e.unwrap().path().to_owned());
    let mut out: Vec<Utf8PathBuf> = paths
        .filter(|p| p.extension() != Some("json") && p.file_name() != Some("foreign"))
        .collect();
    out.sort();
    out
}

fn is_of(path: &&Utf8PathBuf, name: &str) -> bool {
    path.file_name().unwrap().starts_with(&format!("{name}."))
}

#[test]
fn what_the_pointer_names_is_the_live_set_and_a_copy_of_it_has_the_same_save() {
    let stage = stage();
    stage.save(4);
    stage.save(6);
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let c = live(&report).clone();
    assert_eq!((c.verdict, c.step), (Verdict::Whole, Step(6)), "{:?}", c.findings);
    assert_eq!((c.world, &c.resume), (Some(1), &Resumability::Exact));
    assert_eq!(report.tracker, TrackerState::Step(Step(6)));
    assert_eq!(report.steps.len(), 1, "AReaL deletes the one before");
    io_worker.keep(&c).unwrap();
    let report = io_worker.scan();
    let kept = generations(&report);
    assert_eq!(kept[0].verdict, Verdict::Whole, "{:?}", kept[0].findings);
    let save = c.id.0.as_str().strip_prefix("live.").unwrap();
    assert_eq!(kept[0].id.0, format!("step_6.{save}"));
    assert_eq!(arranged(&stage, &mut io_worker), (Step(6), Vec::new()));
}

#[test]
fn killed_after_any_operation_of_a_save_what_is_loaded_is_proven_and_no_older_than_the_save_before() {
    let whole = {
        let stage = stage();
        stage.save(4);
        stage.cut(6, usize::MAX)
    };
    // The pointer moves with the last operation but one; what it names is all there two operations earlier.
    for operations in 0..=whole {
        let stage = stage();
        stage.save(4);
        let mut io_worker = stage.io_worker();
        io_worker.keep_live().unwrap();
        stage.cut(6, operations);
        let (step, _) = arranged(&stage, &mut io_worker);
        let expected = if operations < whole - 3 { 4 } else { 6 };
        assert_eq!(step, Step(expected), "after {operations} of {whole} operations");
        assert_eq!(fs::read_dir(stage.store.join("protected")).unwrap().count(), 1);
    }
}

#[test]
fn a_torn_generation_that_nothing_names_is_said_and_goes_aside() {
    let stage = stage();
    stage.save(4);
    stage.cut(6, 9);
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let torn = spare(&report)[0];
    assert_eq!((torn.verdict, torn.step), (Verdict::Incomplete, Step(6)));
    let before = files(&generation(&stage, 6));
    assert_eq!(arranged(&stage, &mut io_worker).0, Step(4));
    assert!(!generation(&stage, 6).exists());
    let gone = aside(&stage);
    let moved = gone.iter().find(|p| is_of(p, "generation_step00000005")).unwrap();
    assert_eq!(files(moved), before, "nothing is deleted");
}

#[test]
fn what_the_pointer_names_is_damaged_and_the_copy_before_it_becomes_a_generation() {
    let stage = stage();
    stage.saved_and_kept(&[4, 6]);
    damage(&stage, 6);
    // The copy of the same save is whole: it is taken first.
    let mut io_worker = stage.io_worker();
    let (step, edits) = arranged(&stage, &mut io_worker);
    assert_eq!(step, Step(6));
    assert!(
        edits
            .iter()
            .any(|e| matches!(e, DiskEdit::PutBack { from } if from.0.as_str().starts_with("step_6.")))
    );
    damage(&stage, 6);
    let kept = generations(&io_worker.scan())[0].id.clone();
    fs::remove_dir_all(stage.store.join("protected").join(kept.0)).unwrap();
    assert_eq!(arranged(&stage, &mut io_worker).0, Step(4));
    assert_eq!(io_worker.scan().tracker, TrackerState::Step(Step(4)));
    // And AReaL goes on from there.
    stage.save(6);
    assert_eq!(arranged(&stage, &mut io_worker), (Step(6), Vec::new()));
}

#[test]
fn an_older_generation_that_was_not_deleted_is_named_again_and_nothing_is_copied() {
    let stage = stage();
    stage.save(4);
    let older = files(&generation(&stage, 4));
    stage.save(6);
    for (path, bytes) in &older {
        let to = generation(&stage, 4).join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, bytes).unwrap();
    }
    let table = generation(&stage, 4).join("payloads/default/.metadata");
    fs::write(&table, fs::read(&table).unwrap()).unwrap();
    fs::remove_file(generation(&stage, 6).join("payloads/default/__1_0.distcp")).unwrap();
    let mut io_worker = stage.io_worker();
    let pointed = fs::read(stage.root.join("LATEST")).unwrap();
    assert_eq!(arranged(&stage, &mut io_worker).0, Step(4));
    assert_eq!(files(&generation(&stage, 4)), older);
    let kept = aside(&stage);
    let old = kept.iter().find(|p| is_of(p, "LATEST")).unwrap();
    assert_eq!(fs::read(old).unwrap(), pointed);
}

/// Puts something in the place of a pointer.
type Breaks<'a> = &'a dyn Fn(&Utf8PathBuf);

#[test]
fn a_pointer_that_is_none_never_leads_anywhere_and_is_replaced() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = elsewhere.path().join("pointer");
    fs::write(&outside, "{}").unwrap();
    let wrong: [(&str, Breaks<'_>); 8] = [
        ("nothing in it", &|at| fs::write(at, "").unwrap()),
        ("cut short", &|at| fs::write(at, "{\"generation\": \"gen").unwrap()),
        ("a way out", &|at| {
            let text =
                r#"{"engines": ["default"], "format_version": 1, "generation": "../../../etc", "global_step": 5}"#;
            fs::write(at, text).unwrap();
        }),
        ("another format", &|at| {
            let text = fs::read_to_string(at).unwrap().replace("version\": 1", "version\": 2");
            fs::write(at, text).unwrap();
        }),
        ("too long", &|at| fs::write(at, vec![b' '; 1 << 20]).unwrap()),
        ("a directory", &|at| {
            fs::remove_file(at).unwrap();
            fs::create_dir_all(at.join("x")).unwrap();
        }),
        ("a FIFO", &|at| {
            fs::remove_file(at).unwrap();
            assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
        }),
        ("a link", &|at| {
            fs::remove_file(at).unwrap();
            symlink(&outside, at).unwrap();
        }),
    ];
    for (what, put) in wrong {
        let stage = stage();
        stage.saved_and_kept(&[4]);
        put(&stage.root.join("LATEST"));
        let mut io_worker = stage.io_worker();
        let report = io_worker.scan();
        let c = live(&report);
        assert_eq!(c.why().unwrap().code, "pointer_damaged", "{what}: {:?}", c.findings);
        assert!(matches!(report.tracker, TrackerState::Garbage(_)), "{what}");
        assert_eq!(arranged(&stage, &mut io_worker).0, Step(4), "{what}");
        assert!(
            aside(&stage).iter().any(|p| is_of(&p, "LATEST")),
            "{what}: {:?}",
            aside(&stage)
        );
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "{}");
}

#[test]
fn a_pointer_to_nothing_and_no_pointer_are_no_ground_to_begin_anew() {
    let gone = stage();
    gone.saved_and_kept(&[4]);
    fs::remove_dir_all(generation(&gone, 4)).unwrap();
    let mut io_worker = gone.io_worker();
    assert_eq!(live(&io_worker.scan()).why().unwrap().code, "pointer_dangling");
    assert_eq!(arranged(&gone, &mut io_worker).0, Step(4));

    let lost = stage();
    lost.save(4);
    fs::remove_file(lost.root.join("LATEST")).unwrap();
    let (step, edits) = arranged(&lost, &mut lost.io_worker());
    assert_eq!((step, edits.len()), (Step(4), 1), "{edits:?}");

    let nothing = stage();
    nothing.save(4);
    damage(&nothing, 4);
    let refused = decided(&nothing, &nothing.look());
    assert!(
        matches!(
            &refused,
            ResumeChoice::Refuse {
                outcome: RunOutcome::NoProof { .. },
                ..
            }
        ),
        "{refused:?}"
    );
}

#[test]
fn what_an_older_build_wrote_is_hidden_by_the_pointer_until_that_is_gone() {
    let stage = stage();
    let before = Shape {
        own: false,
        ..stage.shape.clone()
    };
    save(stage.root.as_std_path(), 4, &before).unwrap();
    let mut io_worker = stage.io_worker();
    assert_eq!(live(&io_worker.scan()).step, Step(4));
    stage.save(6);
    let report = io_worker.scan();
    assert_eq!(live(&report).step, Step(6));
    let older = report
        .steps
        .iter()
        .find(|c| c.id.0.as_str().starts_with("older."))
        .unwrap();
    assert_eq!((older.step, older.verdict), (Step(4), Verdict::Whole));
    assert!(
        report.remarks.iter().any(|r| r.contains("LATEST")),
        "{:?}",
        report.remarks
    );
    let ResumeChoice::Start { reasons, .. } = decided(&stage, &report) else {
        panic!("no start");
    };
    assert!(reasons.iter().any(|r| r.code == "older_layout"), "{reasons:?}");
    damage(&stage, 6);
    let (step, edits) = arranged(&stage, &mut io_worker);
    assert_eq!(step, Step(4), "{edits:?}");
    assert!(!stage.root.join("LATEST").exists());
}

#[test]
fn engines_that_the_pointer_does_not_name_are_what_areal_refuses() {
    let both = Shape {
        engines: vec!["default", "critic"],
        own: true,
        data_ranks: 1,
        ..Shape::default()
    };
    let mut stage = Stage::with(both);
    stage.save(4);
    let latest = stage.root.join("LATEST");
    let text = fs::read_to_string(&latest).unwrap();
    let mut pointer: serde_json::Value = serde_json::from_str(&text).unwrap();
    pointer["engines"] = serde_json::json!(["default"]);
    fs::write(&latest, pointer.to_string()).unwrap();
    assert_eq!(live(&stage.look()).why().unwrap().code, "pointer_engines");
    fs::write(&latest, text).unwrap();
    assert_eq!(live(&stage.look()).verdict, Verdict::Whole);
    // A run without a critic is refused by AReaL as well.
    stage.spec.roles.retain(|r| r.name == "default");
    let report = stage.look();
    assert!(
        matches!(live(&report).resume, Resumability::Not { .. }),
        "{:?}",
        live(&report)
    );
    fs::write(&latest, pointer.to_string()).unwrap();
    assert_eq!(arranged(&stage, &mut stage.io_worker()), (Step(4), Vec::new()));
}

#[test]
fn links_are_not_followed() {
    let linked = stage();
    linked.save(4);
    let generations = linked.root.join("checkpoint_generations");
    let elsewhere = linked.root.with_file_name("elsewhere");
    fs::rename(&generations, &elsewhere).unwrap();
    symlink(&elsewhere, &generations).unwrap();
    let report = linked.look();
    assert_eq!(live(&report).why().unwrap().code, "symlink");
    assert!(matches!(decided(&linked, &report), ResumeChoice::Refuse { .. }));

    // A file in its place is not waited for.
    fs::remove_file(&generations).unwrap();
    fs::write(&generations, "").unwrap();
    assert_eq!(live(&linked.look()).why().unwrap().code, "symlink");

    let one = stage();
    one.saved_and_kept(&[4]);
    let (dir, other) = (generation(&one, 4), one.root.with_file_name("elsewhere"));
    fs::rename(&dir, &other).unwrap();
    symlink(&other, &dir).unwrap();
    let mut io_worker = one.io_worker();
    assert_ne!(live(&io_worker.scan()).verdict, Verdict::Whole);
    assert_eq!(arranged(&one, &mut io_worker).0, Step(4));
    assert!(!fs::symlink_metadata(&dir).unwrap().is_symlink());
    assert!(
        other.join("manifest/step_info.json").exists(),
        "what the link led to stays"
    );
}

#[test]
fn a_fresh_start_moves_generations_the_older_set_and_the_pointer_aside() {
    let mut stage = stage();
    let before = Shape {
        own: false,
        ..stage.shape.clone()
    };
    save(stage.root.as_std_path(), 2, &before).unwrap();
    stage.saved_and_kept(&[4]);
    stage.cut(6, 5);
    stage.spec.policy.start.fresh = true;
    let mut io_worker = stage.io_worker();
    let ResumeChoice::Start { edits, .. } = decided(&stage, &io_worker.scan()) else {
        panic!("no start");
    };
    io_worker.edit(edits.clone()).unwrap();
    let report = io_worker.scan();
    assert!(
        report.steps.is_empty() && report.tracker == TrackerState::Missing,
        "{report:?}"
    );
    assert!(!stage.root.join("LATEST").exists());
    io_worker.edit(edits).unwrap();
    let dirs = aside(&stage).iter().filter(|p| p.is_dir()).count();
    assert_eq!(dirs, 4, "two generations, the older set and the copy");
}

#[test]
fn a_changed_frequency_is_written_into_what_the_pointer_names() {
    let mut stage = stage();
    stage.save(4);
    let name = "checkpoint_info.json";
    let wanted = Frequencies {
        steps: Some(5),
        ..Frequencies::default()
    };
    stage.say(|live| live.frequencies = [(name.to_owned(), wanted)].into());
    let mut io_worker = stage.io_worker();
    let before = live(&io_worker.scan()).clone();
    assert!(
        before.findings.iter().any(|f| f.code == "frequency_stored"),
        "{:?}",
        before.findings
    );
    io_worker.edit(vec![DiskEdit::SetFrequencies]).unwrap();
    let report = io_worker.scan();
    assert_eq!((live(&report).verdict, &live(&report).id), (Verdict::Whole, &before.id));
    let text = fs::read_to_string(generation(&stage, 4).join("manifest").join(name)).unwrap();
    assert!(text.contains("\"frequency_steps\": 5"), "{text}");
}

#[test]
fn both_are_verified_where_they_stand() {
    let stage = stage();
    stage.save(4);
    let verify = |path: &Utf8PathBuf| {
        let out = Command::new(SUPERVISE)
            .args(["verify", path.as_str(), "-v"])
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    for path in [stage.root.clone(), generation(&stage, 4)] {
        let (code, text) = verify(&path);
        assert_eq!(code, Some(0), "{path}: {text}");
    }
    fs::write(stage.root.join("LATEST"), "").unwrap();
    let (code, text) = verify(&stage.root);
    assert_eq!(code, Some(21), "{text}");
    assert!(text.contains("pointer_damaged"), "{text}");
}
