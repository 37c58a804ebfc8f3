//! Rules for lines that show a command's progress if the trainer has no rules of its own: the user's pattern, or common
//! forms, and the lines of the Python package. Also rules for lines that announce an in-process restart.

use crate::event::scan::{RuleKind, ScanRule};
use crate::observe::numbers::TrainingMetric;

/// The rule for the lines of `supervise.report()`: `supervise: step=12/100 loss=0.25`.
#[must_use]
pub fn report_rule(kind: RuleKind) -> ScanRule {
    let pattern = r"supervise: step=(\d{1,16})(?:/(\d{1,16}))?(?: |$)";
    ScanRule::new("report.step", pattern, kind).with_keys(&[
        (TrainingMetric::Mark, "step"),
        (TrainingMetric::Loss, "loss"),
        (TrainingMetric::Reward, "reward"),
        (TrainingMetric::GradNorm, "grad_norm"),
        (TrainingMetric::Entropy, "entropy"),
        (TrainingMetric::Length, "length"),
    ])
}

/// The rule for the line that the Python package prints if its interpreter ends without an exception.
#[must_use]
pub fn report_end_rule() -> ScanRule {
    ScanRule::new("report.end", r"supervise: end$", RuleKind::End)
}

/// The rule for the line that the Python package prints once if a save does not count, and why.
#[must_use]
pub fn report_unsaved_rule() -> ScanRule {
    ScanRule::new("report.unsaved", r"supervise: not saved: ", RuleKind::NotSaved)
}

/// Rules for the user's pattern. For a trainer whose steps are known, a match is only a sign of progress; for any other
/// command it gives the step. Without a pattern the common forms are used.
#[must_use]
pub fn progress_rules(pattern: Option<&str>, has_steps: bool) -> Vec<ScanRule> {
    let kind = if has_steps { RuleKind::Beat } else { RuleKind::Step };
    let mut rules = vec![report_rule(kind.clone())];
    match pattern {
        Some(pattern) => rules.push(ScanRule::new("progress", pattern, kind)),
        None if has_steps => {}
        None => rules.extend(COMMON.map(|(id, pattern)| ScanRule::new(id, pattern, RuleKind::Step))),
    }
    rules
}

/// The forms in which most programs print their steps, in order of precedence.
const COMMON: [(&str, &str); 3] = [
    // `'step': 12`, `"global_step": 12`, `global_step=12`
    (
        "progress.key",
        r#"(?:^|[^\w/.:-])["']?(?:global_|train_|training_)?(?:step|iter|iteration)["']?\s*[:=]\s*(\d+)(?:\s*/\s*(\d+))?(?:$|[^\w.%])"#,
    ),
    // `step 12`, `Step 12/100`, `[Step 12]`, `iteration 7`
    (
        "progress.words",
        r"(?:^|[^\w/.:-])(?:[Gg]lobal |[Tt]rain(?:ing)? )?(?:[Ss]tep|STEP|[Ii]ter(?:ation)?)\s+#?(\d+)(?:\s*(?:/|of)\s*(\d+))?(?:$|[^\w.%])",
    ),
    // `12%|█▏   | 12/100 [00:10<01:20, …`: a progress bar without a name, or of the training. Downloads have bars too.
    (
        "progress.bar",
        r"^\s*(?:(?:[Tt]rain|[Ee]poch|[Ss]tep|[Ii]ter)[^:|]*:\s*)?\d+%\|[^|]*\|\s*(\d+)/(\d+) \[",
    ),
];

/// Rules for an in-process restart of a part. They must come after the rules for failures, which must never be hidden.
#[must_use]
pub fn heal_rules() -> Vec<ScanRule> {
    let rule = |id, holds, pattern| ScanRule::holding(id, holds, pattern, RuleKind::Heals);
    vec![
        // torchrun with `--max-restarts`, or after a change of nodes (torch 2.11).
        rule("heals.torchrun", "will restart worker group", ""),
        // `Restarting dead rollout engine 3`, `relaunching server gpu-07:8000`, `Replacing failed worker 2`
        rule(
            "heals.role",
            "estarting|elaunching|espawning|ecreating|ecovering|eplacing|eviving",
            r"\b(?:[Rr]e-?(?:start|launch|spawn|creat|cover|plac|viv)ing) (?:the )?(?:[\w.-]+ ){0,3}?(?:[Ee]ngine|[Ss]erver|[Rr]eplica|[Aa]ctor)s?\b",
        ),
        rule(
            "heals.worker",
            "estarting|elaunching|espawning|eplacing|eviving",
            r"\b(?:[Rr]e-?(?:start|launch|spawn|plac|viv)ing) (?:the )?(?:dead|failed|crashed|lost|unhealthy|unresponsive) (?:[\w.-]+ ){0,2}?[Ww]orkers?\b",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::scan::Scanner;
    use crate::id::WorkerId;

    fn step(line: &str) -> Option<u64> {
        let mut s = Scanner::new(progress_rules(None, false)).unwrap();
        s.line(WorkerId(0), 1, line.as_bytes())?.sighting.number
    }

    #[test]
    fn the_common_forms_tell_a_step() {
        for line in [
            "step 12",
            "step 12: loss 0.5",
            "Step 12/100",
            "[Step 12/100] loss=0.5",
            "Training step 12 of 100",
            "{'loss': 0.5, 'step': 12}",
            r#"{"step": 12, "loss": 0.5}"#,
            "global_step=12 loss=0.4",
            "global_step: 12",
            "step=12, loss=0.5",
            "iter 12: loss 3.1",
            "2026-01-01 10:00:00 INFO step 12",
            " 12%|#1        | 12/100 [00:10<01:20,  1.0it/s]",
            "Epoch 1:  12%|#1        | 12/100 [00:10<01:20,  1.0it/s]",
        ] {
            assert_eq!(step(line), Some(12), "{line}");
        }
    }

    #[test]
    fn other_lines_tell_none() {
        for line in [
            "loading shard 3/12",
            "steps 12",
            "step",
            "num_steps=12",
            "time/step: 12.5",
            "step 0.5",
            "next step: 12.5 s",
            "step 12% done",
            "warmup_steps: 12",
            "footstep 12",
            "perf/step=12",
            "Loading checkpoint shards:  33%|###       | 1/3 [00:10<01:20,  1.0it/s]",
            "model.safetensors:  12%|#1        | 12/100 [00:10<01:20,  1.0MB/s]",
        ] {
            assert_eq!(step(line), None, "{line}");
        }
    }

    #[test]
    fn a_part_that_is_started_again_in_place_is_heard_of_and_no_failure_is_hidden_by_it() {
        let mut rules = crate::diagnosis::failure_rules();
        rules.extend(heal_rules());
        let mut s = Scanner::new(rules).unwrap();
        let mut kind = |line: &str| s.line(WorkerId(0), 1, line.as_bytes()).map(|hit| hit.kind);
        for line in [
            "I1126 21:00:00.000000 71 torch/distributed/elastic/agent/server/api.py:927] [default] Worker group FAILED. 2/3 attempts left; will restart worker group",
            "[default] Detected 1 new nodes from group_rank=0; will restart worker group",
            "(RolloutManager pid=71) Restarting dead rollout engine 3",
            "INFO Recovering 2 engines",
            "WARNING: relaunching vLLM server gpu-07:8000",
            "Recreating rollout replica replica_3",
            "Replacing failed worker 2 by a standby",
        ] {
            assert_eq!(kind(line), Some(RuleKind::Heals), "{line}");
        }
        for line in [
            "Recovering from StepInfo(epoch=0, epoch_step=2, global_step=2, steps_per_epoch=4).",
            "Restarting dataloader workers at epoch 2",
            "max_restarts: 3",
            "Replacing attn_implementation from 'eager' to 'sdpa'",
            "the server was restarted",
            "Recreating the optimizer",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
        let failed = kind("Restarting dead engine 3 failed: CUDA out of memory. Tried to allocate 2.00 GiB");
        assert_eq!(
            failed,
            Some(RuleKind::Failure(crate::rulebook::taxonomy::Class::MemCudaOom.into()))
        );
    }

    #[test]
    fn a_pattern_beside_a_trainers_own_steps_shows_progress_only() {
        let rules = progress_rules(Some(r"batch (\d+)"), true);
        assert!(rules.iter().all(|rule| rule.kind == RuleKind::Beat));
        assert_eq!(rules.len(), 2);
        assert_eq!(progress_rules(None, true).len(), 1);
        assert_eq!(progress_rules(Some(r"batch (\d+)"), false)[1].kind, RuleKind::Step);
    }

    #[test]
    fn a_report_tells_step_planned_end_and_metrics() {
        let mut s = Scanner::new(progress_rules(None, false)).unwrap();
        let mut hit = |line: &str| s.line(WorkerId(0), 1, line.as_bytes()).unwrap();
        let found = hit(" 12%|#1   | 12/100 [00:10<01:20, 1.0it/s]supervise: step=12/100 eval/loss=9 loss=0.25");
        assert_eq!(
            (found.sighting.rule.to_string().as_str(), found.sighting.number),
            ("report.step", Some(12))
        );
        assert_eq!(
            (found.total, found.numbers.unwrap().get(TrainingMetric::Loss)),
            (Some(100), Some(0.25))
        );
        let bare = hit("supervise: step=7");
        assert_eq!((bare.sighting.number, bare.total), (Some(7), None));
        assert!(bare.numbers.is_some());
    }
}
