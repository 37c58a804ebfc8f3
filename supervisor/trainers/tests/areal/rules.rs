//! Lines of output as AReaL prints them.

use supervise_core::diagnosis::failure_rules;
use supervise_core::event::scan::{RuleKind, ScanMatch, Scanner};
use supervise_core::id::WorkerId;
use supervise_trainers::adapter;

fn scanner() -> Scanner {
    let mut rules = adapter(supervise_trainers::areal::AREAL).rules();
    rules.extend(failure_rules());
    Scanner::new(rules).unwrap()
}

fn look(line: &str) -> Option<ScanMatch> {
    scanner().line(WorkerId(0), 1, line.as_bytes())
}

/// A line as it stands in a log, with colours.
fn logged(logger: &str, level: &str, text: &str) -> String {
    format!("\x1b[33m[1;38;2;180;140;80m(AReaL)\x1b[0m \x1b[33m20261122-07:30:26.930 {logger} {level}: {text}\x1b[0m")
}

#[test]
fn a_step_counts_from_one_and_says_how_many_there_are() {
    let line = logged("StatsLogger", "INFO", "Epoch 1/4 Step 3/4 Train step 3/16 done.");
    let hit = look(&line).unwrap();
    assert_eq!(
        (hit.kind, hit.sighting.number, hit.total),
        (RuleKind::Step, Some(3), Some(16))
    );
}

#[test]
fn a_resume_names_the_step_that_comes_next() {
    let line = logged(
        "Recover",
        "INFO",
        "Recovering from StepInfo(epoch=0, epoch_step=2, global_step=2, steps_per_epoch=4).",
    );
    let hit = look(&line).unwrap();
    // Two steps were done: as many as our core counts.
    assert_eq!((hit.kind, hit.sighting.number), (RuleKind::Resumed, Some(2)));
}

/// Newer builds say where it was taken from.
#[test]
fn a_resume_by_a_pointer_is_one_too() {
    let text = "Recovering from StepInfo(epoch=1, epoch_step=0, global_step=4, steps_per_epoch=4) using checkpoint pointer /r/LATEST.";
    let hit = look(&logged("Recover", "INFO", text)).unwrap();
    assert_eq!((hit.kind, hit.sighting.number), (RuleKind::Resumed, Some(4)));
}

#[test]
fn a_silent_fresh_start_is_an_alarm() {
    for text in [
        "Resume info not found at /r/recover_info. This should not be a resumed experiment!",
        "Resume info not found under /r. This should not be a resumed experiment!",
        "Failed to load recover info from /r/recover_info: Expecting value: line 1 column 1 (char 0)",
    ] {
        assert_eq!(
            look(&logged("Recover", "WARNING", text)).unwrap().kind,
            RuleKind::Scratch,
            "{text}"
        );
    }
}

#[test]
fn a_trainer_that_gives_up_says_so_before_it_cleans_up() {
    let line = logged(
        "SFTTrainer",
        "ERROR",
        "Training failed with exception: CUDA out of memory. Tried to allocate",
    );
    assert_eq!(look(&line).unwrap().kind, RuleKind::Failed);
}

/// `areal/api/reward_api.py` of 1.0.4.
#[test]
fn processes_for_rewards_come_back_in_place() {
    let text = "ProcessPoolExecutor broken (attempt 1/4). Attempting to recreate...";
    let hit = look(&logged("RewardAPI", "WARNING", text)).unwrap();
    assert_eq!(hit.kind, RuleKind::Heals);
}

#[test]
fn training_completes_is_no_sign_of_success() {
    assert!(
        look(&logged(
            "StatsLogger",
            "INFO",
            "Training completes! Total time elapsed 12.00."
        ))
        .is_none()
    );
}
