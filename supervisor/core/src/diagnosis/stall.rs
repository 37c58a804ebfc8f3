//! The words of something that watches a run and sees it stand still, at the end of a log: each monitor has its own.
//!
//! They are known by their parts, in any order: what stands, a word for it, and how long. In the middle of a log they tell nothing, for
//! what came after them went on.

use crate::scan::opens_sample;
use regex::bytes::Regex;

/// Lines after the words that may still belong to them.
const BELOW: usize = 40;

/// Seconds from which on a wait is none of the ordinary.
const LONG: f64 = 600.0;

/// Classes of what does not move, and may move again.
pub(super) fn is_wait(class: &str) -> bool {
    class.starts_with("hang.") || matches!(class, "rollout.stall" | "engine.all_gone")
}

/// The parts.
pub(super) struct Stall {
    lacks: Regex,
    long: Regex,
    exceeds: Regex,
    /// Words before a number that make it a limit, or what is usual.
    bound: Regex,
    /// A sum of times, or a wait that is over.
    told: Regex,
    of_save: Regex,
    of_rollout: Regex,
    of_engine: Regex,
    of_step: Regex,
}

/// The first line of the end of a log that says so: its class, its number and its words.
pub(super) struct Standing {
    pub(super) seen: Option<(&'static str, u64, Vec<u8>)>,
    below: usize,
    line: u64,
    stepped: bool,
}

impl Standing {
    /// Before the line with this number, in a log whose training came to a step or did not.
    pub(super) fn new(line: u64, stepped: bool) -> Self {
        Self {
            seen: None,
            below: 0,
            line,
            stepped,
        }
    }

    /// Takes the next line in.
    pub(super) fn note(&mut self, stall: &Stall, text: &[u8], goes_on: bool, ends: bool) {
        let class = match opens_sample(text) {
            true => None,
            false => stall.class(text, self.stepped),
        };
        self.below += usize::from(!text.is_empty());
        match class {
            Some(_) if self.seen.is_some() => self.below = 0,
            Some(class) => {
                self.seen = Some((class, self.line, text.to_vec()));
                self.below = 0;
            }
            None if goes_on || self.below > BELOW => self.seen = None,
            None => {}
        }
        self.line += u64::from(ends);
    }
}

impl Stall {
    pub(super) fn new() -> Result<Self, regex::Error> {
        let regex = Regex::new;
        Ok(Self {
            lacks: regex(
                r"(?i-u)\b(?:no|not|nothing|never|stall\w*|stuck|hung|hangs?|still|silent|without|waiting|last|already|missing|blocked|frozen|unresponsive)\b|n't\b",
            )?,
            long: regex(r"(?i-u)(?:^|[^\w.,:-])(\d[\d,]*(?:\.\d+)?) ?(s|sec\w*|min\w*|m|h|hours?|hrs?)\b")?,
            exceeds: regex(r"(?i-u)\b(?:exceed\w*|overdue|over its|past its)\b")?,
            bound: regex(
                r"(?i-u)\b(?:limit|time-?out|threshold|max\w*|median|usual\w*|average|mean|every|interval|up to|at most|within|next in|grace)\b[^\d,;(]{0,12}$",
            )?,
            told: regex(
                r"(?i-u)\b(?:took|spent|lasted|total|average|time[sd]? out|timed|finished|completed|done|ready|started|resumed|recovered|eta|remaining)\b|time/|time_|timing|[tT]raceback|Error:",
            )?,
            of_save: regex(r"(?i-u)\b(?:sav(?:e|ing)|checkpoint\w*|ckpt|writers?)\b")?,
            of_rollout: regex(
                r"(?i-u)\b(?:rollouts?|trajector(?:y|ies)|samples?|generation|generate\w*|requests?|completions?|sequences?|responses?)\b",
            )?,
            of_engine: regex(r"(?i-u)\b(?:engines?|servers?|replicas?|router)\b")?,
            of_step: regex(
                r"(?i-u)\b(?:steps?|iterations?|train\w*|ranks?|workers?|heartbeats?|progress|log|processes|process|job|run|gpus?)\b",
            )?,
        })
    }

    /// The class of a line that says so. Before the first step it is the start that stands.
    pub(super) fn class(&self, line: &[u8], stepped: bool) -> Option<&'static str> {
        let exceeds = self.exceeds.is_match(line);
        let lacks = exceeds || self.lacks.is_match(line) && !self.is_told(line);
        if !lacks || !self.is_long(line, exceeds) {
            return None;
        }
        let step = if stepped { "hang.step" } else { "hang.startup" };
        let stands = [
            (&self.of_save, "hang.save"),
            (&self.of_rollout, "rollout.stall"),
            (&self.of_engine, if stepped { "rollout.stall" } else { "hang.startup" }),
            (&self.of_step, step),
        ];
        stands
            .into_iter()
            .find(|(what, _)| what.is_match(line))
            .map(|(_, class)| class)
    }

    /// It is over, or a sum; `not done` is neither.
    fn is_told(&self, line: &[u8]) -> bool {
        self.told.find_iter(line).any(|word| {
            let before = &line[word.start().saturating_sub(24)..word.start()];
            let before = String::from_utf8_lossy(before).to_ascii_lowercase();
            let denied = ["not ", "n't ", "no ", "never ", "not been ", "not yet ", "last "];
            !denied.iter().any(|d| before.contains(d))
        })
    }

    fn is_long(&self, line: &[u8], exceeds: bool) -> bool {
        self.long.captures_iter(line).any(|c| {
            let (Some(number), Some(unit)) = (c.get(1), c.get(2)) else {
                return false;
            };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase().replace(',', "");
            let each = match text(unit.as_bytes()).as_bytes().first() {
                Some(b'h') => 3600.0,
                Some(b'm') => 60.0,
                _ => 1.0,
            };
            let long = text(number.as_bytes()).parse::<f64>().is_ok_and(|n| n * each >= LONG);
            long && (exceeds || !self.bound.is_match(&line[..number.start()]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_is_known_by_its_parts() {
        let stall = Stall::new().unwrap();
        for (line, class) in [
            (
                "agent: stall detected: the GPUs are busy, but step 13 was the last one, 1900 s ago",
                "hang.step",
            ),
            ("agent WARN training stalled (no new log line in 20 min)", "hang.step"),
            ("agent: no heartbeat from rank 12 since 10:00:01 (1803 s)", "hang.step"),
            (
                "agent: step 13 exceeded the step limit of 900 s, dumping stacks",
                "hang.step",
            ),
            ("the save of step 100 takes 2400 s already, 30 s is usual", "hang.save"),
            (
                "async checkpoint of step 100 not done after 1800 s, 3 of 8 writers still busy",
                "hang.save",
            ),
            (
                "batch 12: 63/64 trajectories, waiting for the last one since 40 min",
                "rollout.stall",
            ),
            (
                "trainer: the rollout has not returned anything for 1,800 s",
                "rollout.stall",
            ),
            ("engine 2 has not answered for 1 h", "rollout.stall"),
        ] {
            assert_eq!(stall.class(line.as_bytes(), true), Some(class), "{line}");
        }
        let start = "agent: 3600 s since the launch and no step yet";
        assert_eq!(stall.class(start.as_bytes(), false), Some("hang.startup"));
    }

    #[test]
    fn limits_sums_and_what_is_over_are_no_stall() {
        let stall = Stall::new().unwrap();
        for line in [
            "waiting for the rollout servers (timeout 1800 s)",
            "still saving, timeout=3600 s",
            "training is not watched before step 1; the limit is 1800 s",
            "time: 1200 s waiting for rollout, 300 s in training",
            "step 13: waiting for the slowest sample took 610 s",
            "rollout 12 finished after 1800 s, no request failed",
            "the last checkpoint was done 1800 s ago",
            "no step for 20 s",
            "2 of 512 requests timed out after 600 s and count as failed samples, none is missing",
            "last checkpoint saved at 10:00:01",
            "eval: 1200 samples/s, no errors",
        ] {
            assert_eq!(stall.class(line.as_bytes(), true), None, "{line}");
        }
    }
}
