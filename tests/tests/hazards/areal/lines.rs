//! What is printed, and what it means.

use supervise_core::diagnosis::failure_rules;
use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, ScanMatch, Scanner};
use supervise_core::id::WorkerId;
use supervise_trainers::adapter;

/// What a line of this logger's says, with the colours that stand in AReaL's files too.
fn look(logger: &str, level: &str, text: &str) -> Option<ScanMatch> {
    let mut rules = adapter(supervise_trainers::areal::AREAL).rules();
    rules.extend(failure_rules());
    let line =
        format!("\x1b[33m\x1b[1;38;2;180;140;80m(AReaL)\x1b[0m 20261122-08:00:00.000 {logger} {level}: {text}\x1b[0m");
    Scanner::new(rules).unwrap().line(WorkerId(0), 1, line.as_bytes())
}

/// [signal.step, signal.colours] No file tells each step; the log does, with colours in it, counting from 1 | Read from the log: the step, and how many there are
#[test]
fn a_step() {
    let hit = look("StatsLogger", "INFO", "Epoch 1/4 Step 3/4 Train step 3/16 done.").unwrap();
    assert_eq!(
        (hit.kind, hit.sighting.number, hit.total),
        (RuleKind::Step, Some(3), Some(16))
    );
}

/// [signal.saved] "Saved recover checkpoint" is printed before `recover_info` is written | No sign that a save is complete: the files are looked at
#[test]
fn a_save_that_is_not_complete() {
    let hit = look(
        "Recover",
        "INFO",
        "Saved recover checkpoint to /r/default/recover_checkpoint (with_optim=True)",
    );
    assert_eq!(hit.unwrap().kind, RuleKind::Enters(TrainerPhase::Save));
}

/// [signal.recovering] "Recovering from" is printed before the checkpoint is loaded, and names the step that comes next | Compared with what was ordered; that it was loaded is told by the next step only
#[test]
fn a_resume() {
    let text = "Recovering from StepInfo(epoch=0, epoch_step=2, global_step=2, steps_per_epoch=4).";
    let hit = look("Recover", "INFO", text).unwrap();
    assert_eq!((hit.kind, hit.sighting.number), (RuleKind::Resumed, Some(2)));
}

/// [signal.alarm] That it begins anew although it should resume is one warning among many, and the next save overwrites all | An alarm: where a resume was ordered, it is stopped at once
#[test]
fn a_fresh_start() {
    for text in [
        "Resume info not found at /r/recover_info. This should not be a resumed experiment!",
        "Failed to load recover info from /r/recover_info: Expecting value",
    ] {
        assert_eq!(look("Recover", "WARNING", text).unwrap().kind, RuleKind::Scratch);
    }
}

/// [signal.failed, process.close_blocks] After an exception it cleans up, and can wait for dead workers for two hours | The line counts: it is not waited for
#[test]
fn a_failure() {
    let hit = look("RLTrainer", "ERROR", "Training failed with exception: boom").unwrap();
    assert_eq!(hit.kind, RuleKind::Failed);
}

/// [signal.completes] "Training completes!" is printed after a failure as well | It means nothing; the last step has to be proven
#[test]
fn completes() {
    assert!(look("StatsLogger", "INFO", "Training completes! Total time elapsed 12.00.").is_none());
}
