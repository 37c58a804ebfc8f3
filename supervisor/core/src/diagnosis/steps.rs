//! Training records in a log: they show that a run continued after a line that looked like its end.

use crate::id::Step;
use regex::bytes::Regex;

/// A record contains one of these texts.
pub(super) const TEXTS: [&str; 7] = ["\" 20", "\" 50", "step", "iter", "'loss'", "\"loss\"", "%|"];

/// Steps by which ranks may lag behind each other.
const SKEW: u64 = 3;

/// Progress bars in a row, each further than the last, that prove work: the bars of an exiting program rise once.
const DRAWN: u32 = 4;

/// Last records among which the newest step is searched.
const LAST: usize = 8;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogStep {
    /// Step, if the record has one.
    pub(super) step: Option<u64>,
    /// Last planned step.
    pub(super) total: Option<u64>,
    /// Whether its loss or gradient norm is non-finite.
    pub(super) bad: bool,
    /// Whether all its rewards are zero.
    pub(super) unrewarded: bool,
    pub(super) bar: bool,
}

pub(super) struct StepPatterns {
    numbered: Regex,
    bar: Regex,
    /// A bar too fast for training: 50 steps/s and more.
    fast: Regex,
    loss: Regex,
    bad: Regex,
    unrewarded: Regex,
    other: Regex,
    idle: Regex,
}

impl StepPatterns {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            numbered: Regex::new(
                r#"(?i-u)(?:^|[^\w/.:-])["']?(?:global[_ ]|(?:train(?:ing)?|system)[_ /])?(?:global_step|step|iteration|iter)["']?(?:\s*[:=]\s*\[?|\s+#?\[?)\s*(\d+)(?:\s*(?:/|of)\s*(\d+))?(?:$|[^\w.%])"#,
            )?,
            bar: Regex::new(r"^\s*(?i-u:(?:train|epoch|step|iter)[^:|]{0,40}:\s*)?\d+%\|[^|]*\|\s*(\d+)/(\d+) \[")?,
            fast: Regex::new(r"[^\d.](?:[5-9]\d|\d{3,})(?:\.\d+)?it/s")?,
            loss: Regex::new(r#"^\s*(?:\[[^\]]{1,60}\][^{]{0,60})?\{.{0,200}['"](?:loss|train_loss)['"]: "#)?,
            bad: Regex::new(r#"(?i-u)\b\w*(?:loss|grad[_ ]norm)["']?\s*[:=]\s*["']?-?(?:nan|inf)\b"#)?,
            unrewarded: Regex::new(
                r"(?i-u)\b(?:critic/score/mean|critic/rewards?/mean|rewards?(?:[ _/]mean)?|score(?:[ _/]mean)?)\W{1,3}0(?:\.0+)?(?:$|[^\d.])",
            )?,
            idle: Regex::new(
                r"(?i-u)^[^\w=:]{0,6}(?:(?:is|has|was|been) ){0,3}(?:still|waiting|run(?:ning|s) for|no output|no progress|silent|hung|stuck)\b",
            )?,
            other: Regex::new(
                r"(?i-u)sav(?:e|ing)|load|resum|error|fail|exception|warm|time[sd]? ?out|abort|from step|kill|stuck|hung|every|until|per step",
            )?,
        })
    }

    pub(super) fn record(&self, line: &[u8]) -> Option<LogStep> {
        let number =
            |at: Option<regex::bytes::Match<'_>>| std::str::from_utf8(at?.as_bytes()).ok()?.parse::<u64>().ok();
        let bad = || self.bad.is_match(line);
        let unrewarded = || self.unrewarded.is_match(line);
        if let Some(c) = self.bar.captures(line) {
            if self.fast.is_match(line) {
                return None;
            }
            return Some(LogStep {
                step: number(c.get(1)),
                total: number(c.get(2)),
                bad: false,
                unrewarded: false,
                bar: true,
            });
        }
        if let Some(c) = self.numbered.captures(line) {
            let whole = c.get(0)?;
            let before = &line[whole.start().saturating_sub(48)..whole.start()];
            let after = &line[whole.end()..(whole.end() + 24).min(line.len())];
            let ends = &line[whole.end().saturating_sub(1)..];
            let idles = self.idle.is_match(&ends[..ends.len().min(48)]) || before.ends_with(b"waiting for");
            if idles || self.other.is_match(before) || self.other.is_match(after) {
                return None;
            }
            return Some(LogStep {
                step: number(c.get(1)),
                total: number(c.get(2)),
                bad: bad(),
                unrewarded: unrewarded(),
                bar: false,
            });
        }
        self.loss.is_match(line).then(|| LogStep {
            step: None,
            total: None,
            bad: bad(),
            unrewarded: unrewarded(),
            bar: false,
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LogSteps {
    /// Number of new steps so far.
    pub(super) count: u32,
    /// Newest step, if records have step numbers.
    pub(super) newest: Option<Step>,
    /// Records in a row with non-finite metrics.
    pub(super) bad: u32,
    /// New steps in a row without a reward.
    pub(super) unrewarded: u32,
    /// Like `count`, without steps that only a closing progress bar may have drawn.
    pub(super) sure: u32,
    pub(super) drawn: u32,
    /// Server requests among `count`.
    pub(super) served: u32,
}

impl LogSteps {
    pub(super) fn trained(&self) -> u32 {
        self.count.saturating_sub(self.served)
    }

    /// Counts a record: a new step counts once, no matter how many ranks print it.
    pub(super) fn note(&mut self, mark: LogStep) {
        let Some(step) = mark.step else {
            self.count = self.count.saturating_add(1);
            self.sure = self.count;
            self.judge(mark);
            return;
        };
        let newest = self.newest.map_or(0, |s| s.0);
        // A much smaller step is that of a restarted run.
        let new = self.newest.is_none() || step > newest || step.saturating_add(SKEW) <= newest;
        if new {
            self.newest = Some(Step(step));
            self.count = self.count.saturating_add(1);
            self.drawn = match mark.bar {
                true if step > newest => self.drawn + 1,
                _ => 0,
            };
            if !mark.bar || self.drawn >= DRAWN {
                self.sure = self.count;
            }
            self.judge(mark);
        }
    }

    fn judge(&mut self, mark: LogStep) {
        let next = |is: bool, so_far: u32| if is { so_far.saturating_add(1) } else { 0 };
        self.bad = next(mark.bad, self.bad);
        self.unrewarded = next(mark.unrewarded, self.unrewarded);
    }
}

/// The newest step of the last records, given in reverse order: ranks lag slightly behind each other.
pub(super) fn newest(back: impl Iterator<Item = u64>) -> Option<Step> {
    let mut last = back.take(LAST);
    let first = last.next()?;
    let near = last.filter(|step| *step <= first.saturating_add(SKEW));
    Some(Step(near.fold(first, u64::max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(line: &str) -> Option<(Option<u64>, Option<u64>)> {
        let mark = StepPatterns::new().unwrap().record(line.as_bytes())?;
        Some((mark.step, mark.total))
    }

    #[test]
    fn records_of_training_are_known_by_their_form() {
        for (line, found) in [
            (
                "step:12 - train/loss:0.5 - timing_s/save_checkpoint:3",
                (Some(12), None),
            ),
            (
                " iteration      120/     500 | consumed samples: 3840",
                (Some(120), Some(500)),
            ),
            ("Epoch 1/2 Step 3/4 Train step 3/8 done.", (Some(3), Some(4))),
            ("{'loss': 0.52, 'grad_norm': 1.2, 'epoch': 0.1}", (None, None)),
            (" 12%|#   | 120/1000 [01:20<10:00,  1.2s/it]", (Some(120), Some(1000))),
            ("{'loss': 0.5, 'step': 12}", (Some(12), None)),
            (
                "INFO metrics: {\"system/step\": 45, \"actor/pg_loss\": 0.1}",
                (Some(45), None),
            ),
            (" 12%|#   | 120/1000 [00:30<04:00, 12.55it/s]", (Some(120), Some(1000))),
            ("step 12 loss 1.2 time/waiting_for_rollout 340 s", (Some(12), None)),
            (
                "[INFO:swift] {'loss': '0.9', 'global_step/max_steps': '4/1000'}",
                (None, None),
            ),
            ("[INFO] [Rank 0] step=10, skipped=0, lr=[1e-6]", (Some(10), None)),
        ] {
            assert_eq!(step(line), Some(found), "{line}");
        }
        for line in [
            "Saving checkpoint at step 12",
            "error at step 12",
            "Loading checkpoint shards:  33%|###       | 1/3 [00:10<01:20,  1.0it/s]",
            "resumed from global_step: 40",
            "step 12 failed",
            "step 402 still waiting for rollouts, 0/512 samples",
            "step 12 ... no output for 300 s",
            "100%|##| 100/100 [00:00<00:00, 555.32it/s]",
        ] {
            assert_eq!(step(line), None, "{line}");
        }
    }

    #[test]
    fn a_step_counts_once_whichever_rank_prints_it() {
        let mut steps = LogSteps::default();
        for n in [1, 1, 2, 1, 2, 3, 1] {
            steps.note(LogStep {
                step: Some(n),
                total: None,
                bad: false,
                unrewarded: false,
                bar: false,
            });
        }
        assert_eq!((steps.count, steps.newest), (3, Some(Step(3))));
    }

    #[test]
    fn the_newest_of_the_last_records_is_no_old_one() {
        assert_eq!(newest([41, 42, 41, 40].into_iter()), Some(Step(42)));
        // Before the restart, the run had reached a later step.
        assert_eq!(newest([3, 2, 1, 400].into_iter()), Some(Step(3)));
        assert_eq!(newest(std::iter::empty()), None);
    }

    #[test]
    fn numbers_that_are_not_finite_are_told() {
        let forms = StepPatterns::new().unwrap();
        let bad = |line: &str| forms.record(line.as_bytes()).is_some_and(|m| m.bad);
        assert!(bad("step:3 - train/loss:nan - train/lr:1e-6"));
        assert!(bad("{'loss': nan, 'grad_norm': 1.0}"));
        assert!(!bad("step:3 - train/loss:0.3 - nan_guard:1"));
    }
}
