//! What newer builds write: a directory for each save, and a pointer to the last.

use crate::areal_bench::Areal;
use crate::areal_run::Run;
use crate::stage::{Stage, generations, live};
use serde_json::json;
use std::fs;
use supervise_core::checkpoint::Verdict;
use supervise_tests::areal_set::{Shape, named};

fn newer() -> Run {
    let script = "code = train()\nwait_for_a_copy()\nsys.exit(code)\n";
    Run::new(script).set("miniature", "own", json!(true))
}

/// [disk.newer_layout] Builds after August 2026 write each save into `checkpoint_generations` and let `LATEST` name it; the one before is deleted at once, so that one is all there is | What is named is proven and copied as the live set is, and put back as one of theirs
#[test]
fn a_directory_for_each_save() {
    let stage = Stage::with(Shape {
        own: true,
        ..Shape::default()
    });
    stage.saved_and_kept(&[2, 4]);
    let report = stage.look();
    assert_eq!((live(&report).verdict, live(&report).step.0), (Verdict::Whole, 4));
    assert_eq!(generations(&report).len(), 2);
    // The copy that it waits for is that of its only save.
    let run = newer().until(2);
    run.run(&[]).expect(0);
    fs::remove_file(named(&run.root()).unwrap().join("manifest/step_info.json")).unwrap();
    let run = run.until(8);
    run.run(&[]).expect(0).says("put back, as a whole: step_2.");
    assert_eq!(run.trained(), (1..=8).collect::<Vec<u64>>());
}

/// [disk.pointer] `LATEST` is cut short, or names what is gone: it ends with an error at each launch | It is made to name the newest proven step again, and what it said goes aside
#[test]
fn a_pointer_that_says_nothing() {
    let genuine = Areal::genuine();
    fs::write(genuine.trial("LATEST"), "x").unwrap();
    // What an older build wrote in place is whole: without the pointer it is read.
    genuine.plan().says(&["pointer_damaged", "\"older.", "launch"]);
    for break_it in [
        |run: &Run| fs::write(run.root().join("LATEST"), "").unwrap(),
        |run: &Run| fs::remove_dir_all(named(&run.root()).unwrap()).unwrap(),
    ] {
        let run = newer().until(2);
        run.run(&[]).expect(0);
        break_it(&run);
        let run = run.until(8);
        run.run(&[]).expect(0).says("pointer_d");
        assert_eq!(run.trained(), (1..=8).collect::<Vec<u64>>());
    }
}

/// [disk.pointer_lost] Without `LATEST` it reads what an older build left in place, or begins anew in silence | The newest proven step counts, wherever it stands, and is named before the launch
#[test]
fn no_pointer() {
    let run = newer().until(4);
    run.run(&[]).expect(0);
    fs::remove_file(run.root().join("LATEST")).unwrap();
    let run = run.until(8);
    run.run(&[]).expect(0).says("LATEST names generation_step00000003");
    assert_eq!(run.trained(), (1..=8).collect::<Vec<u64>>());
    let nothing_else = Areal::new();
    fs::create_dir_all(nothing_else.trial("checkpoint_generations/generation_step00000003/manifest")).unwrap();
    nothing_else.plan().does_not_launch(&["generation_step00000003"]);
}

/// [crash.before_pointer] Newer builds: killed before `LATEST` moves, what was written lies there, and nothing says that it is torn | Named and moved aside where it is torn; gone on from where all of it is proven
#[test]
fn killed_before_the_pointer_moves() {
    let run = newer().set("miniature", "fault", json!({ "step": 6, "operations": 9 }));
    run.run(&[]).expect(0).says("moved aside: generation_step00000005");
    assert_eq!(run.trained(), [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]);
}
