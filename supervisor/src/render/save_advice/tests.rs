use super::*;

const SEEN: SaveMeasurements = SaveMeasurements {
    step: 4.0,
    slow_step: 5.0,
    between: 0.3,
    stall: 12.0,
    save: 20.0,
    failures: 3,
    trained: 220_000.0,
    nodes: 1,
};

fn advice(seen: Option<SaveMeasurements>, limits: SaveLimits, kept_at_resume: bool) -> SaveAdvice {
    let settings = SaveSettings {
        name: Some("save_steps"),
        trainer: "Hugging Face's Trainer",
        kept_at_resume,
        devices: 8,
    };
    SaveAdvice::of(
        "6376fd1aed0ae351",
        "sft",
        seen,
        &limits,
        &settings,
        &TimeLedger::default(),
    )
}

#[test]
fn the_advice_names_the_setting_and_what_it_costs() {
    let limits = SaveLimits {
        now: Some(2000),
        ..SaveLimits::default()
    };
    assert_eq!(
        advice(Some(SEEN), limits, true).text(),
        "\
Save every 378 steps instead of every 2000: saves and repeated training then cost least.
  save_steps: 378
  Hugging Face's Trainer reads it at a fresh start only: a resume keeps the interval that is stored in the step.
step       4 s; 9 of 10 take at most 5 s
save       stops the training for 12 s; proven 20 s after it begins
failures   3 sudden failures in 2d 13h of training; one in 1d 6h is expected
cost now   4.0 %: saves 0.1 %, repeated training 3.9 %
cost       1.5 %: saves 0.7 %, repeated training 0.7 %
difference 148.1 GPU hours a month on 8 GPUs
at risk    up to 33m 43s of training (now 2h 57m), if the newest step is whole
Halving one of these would save, in GPU hours a month:
  time for which a save stops the training: 24.9
"
    );
}

#[test]
fn another_interval_is_mentioned_unasked_only_if_it_pays() {
    let at = |now, trained| {
        let limits = SaveLimits {
            now: Some(now),
            ..SaveLimits::default()
        };
        advice(Some(SaveMeasurements { trained, ..SEEN }), limits, false).brief()
    };
    let words = "saving every 378 steps instead of every 50 would gain 3.9 % of the time";
    assert_eq!(at(50, 220_000.0).as_deref(), Some(words));
    assert_eq!(at(500, 220_000.0), None);
    assert_eq!(at(50, 60.0), None);
}

#[test]
fn a_limit_that_cannot_be_kept_is_said() {
    let limits = SaveLimits {
        max_loss: Some(20.0),
        now: Some(1),
        ..SaveLimits::default()
    };
    let advice = advice(Some(SEEN), limits, false);
    assert_eq!(advice.kept, Some(false));
    let text = advice.text();
    assert!(text.contains("more than the 20 s that you accept"), "{text}");
}

#[test]
fn nothing_is_advised_before_a_save_was_seen() {
    let text = advice(None, SaveLimits::default(), false).text();
    assert!(text.starts_with("sft: no advice: "), "{text}");
}
