//! Lines that tell how a command gets on, where the trainer's own rules do not: the user's pattern, or the common forms.

use crate::scan::{RuleKind, ScanRule};

/// Rules for the user's pattern. A trainer whose own steps are known is only seen to get on by it; of any other command it tells the
/// step, and without one the common forms do.
#[must_use]
pub fn progress_rules(pattern: Option<&str>, has_steps: bool) -> Vec<ScanRule> {
    let kind = if has_steps { RuleKind::Beat } else { RuleKind::Step };
    match pattern {
        Some(pattern) => vec![ScanRule::new("progress", pattern, kind)],
        None if has_steps => Vec::new(),
        None => COMMON
            .iter()
            .map(|(id, pattern)| ScanRule::new(id, pattern, RuleKind::Step))
            .collect(),
    }
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
    // `12%|█▏   | 12/100 [00:10<01:20, …`: a bar of no name, or of the training. Downloads and shards have bars, too.
    (
        "progress.bar",
        r"^\s*(?:(?:[Tt]rain|[Ee]poch|[Ss]tep|[Ii]ter)[^:|]*:\s*)?\d+%\|[^|]*\|\s*(\d+)/(\d+) \[",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::WorkerId;
    use crate::scan::Scanner;

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
    fn a_pattern_beside_a_trainers_own_steps_shows_progress_only() {
        let rules = progress_rules(Some(r"batch (\d+)"), true);
        assert_eq!((rules.len(), &rules[0].kind), (1, &RuleKind::Beat));
        assert!(progress_rules(None, true).is_empty());
        assert_eq!(progress_rules(Some(r"batch (\d+)"), false)[0].kind, RuleKind::Step);
    }
}
