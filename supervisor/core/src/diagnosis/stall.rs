//! Messages of watchdogs that report a hang, at the end of a log: each monitor has its own.
//!
//! They are recognized by their parts, in any order: what does not move, a word for it, and for how long. In the middle of a log they
//! mean nothing, because the run continued after them.

use crate::event::scan::opens_sample;
use crate::rulebook::taxonomy::{Class, Family};
use regex::bytes::Regex;

/// Lines after the message that may still belong to it.
const BELOW: usize = 40;

/// Seconds from which a wait is unusually long.
const LONG: f64 = 600.0;

/// Returns true for classes of waits, which may end without a restart.
pub(super) fn is_wait(class: Class) -> bool {
    class.family() == Family::Hang || matches!(class, Class::RolloutStall | Class::EngineAllGone)
}

const TIME: &str = r"(\d[\d,]*(?:\.\d+)?) ?(s|sec\w*|min\w*|m|h|hours?|hrs?)\b";

/// Words for what a running job produces.
const PROGRESS: &str = r"\b(?:steps?|iterations?|progress\w*|samples?|trajector\w+|completions?|responses?|heartbeats?|output|lines?|tokens?|return\w*|answer\w*|report\w*|finish\w*|done|complet\w*|moved?|advanc\w*|arriv\w*|respond\w*|produc\w*|passed)\b";

const NONE: &str = r"(?:\b(?:no|none|not|nothing|never|without)\b|n't\b|(?:^|[\s:(])0 )";
const SINCE: &str = r"(?:\b(?:for|since|in|after)\b|\()\D{0,12}";

pub(super) struct Stall {
    waits: Vec<Regex>,
    exceeds: Regex,
    /// The startup limit was exceeded: no duration needed.
    unbegun: Regex,
    /// Words before a number that make it a limit or a usual value.
    bound: Regex,
    /// Nothing bad happened, or a wait is over.
    well: Regex,
    last: Regex,
    of_save: Regex,
    of_rollout: Regex,
    of_engine: Regex,
    of_step: Regex,
}

/// The first hang report at the end of a log: class, line number and text.
pub(super) struct StallNote {
    pub(super) seen: Option<(Class, u64, Vec<u8>)>,
    below: usize,
    line: u64,
    stepped: bool,
}

impl StallNote {
    /// Starts before line `line`; `stepped`: training reached a step.
    pub(super) fn new(line: u64, stepped: bool) -> Self {
        Self {
            seen: None,
            below: 0,
            line,
            stepped,
        }
    }

    /// Number of the next line.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

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
        let regex = |text: &str| Regex::new(&format!("(?i-u){text}"));
        let waits = [
            format!(r"{NONE}.{{0,40}}{PROGRESS}.{{0,60}}?{SINCE}{TIME}"),
            format!(r"{TIME} (?:since|after)\b.{{0,40}}{NONE}.{{0,30}}{PROGRESS}"),
            format!(
                r"\b(?:stall\w*|stuck|hung|hangs|frozen|blocked|unresponsive)\b.{{0,60}}(?:\b(?:for|since|in)\b|[(,])\D{{0,12}}{TIME}"
            ),
            format!(r"\bwaiting\b.{{0,80}}(?:{SINCE}|\balready\D{{0,4}}){TIME}"),
            format!(
                r"\bstill (?:running|waiting|busy|saving|writing|pending|open)\b.{{0,40}}\b(?:for|since|after)\D{{1,4}}{TIME}"
            ),
            format!(r"\b(?:last|newest|latest)\b.{{0,30}}\bfor\D{{1,4}}{TIME}"),
            format!(r"\b(?:in flight|pending|outstanding|running since)\b(?: for| since)?\D{{1,4}}{TIME}"),
            format!(r"\bwaiting, {TIME}"),
            format!(r"\b(?:section|phase)\b.{{0,40}}?\bfor\D{{1,4}}{TIME}"),
            format!(r"\bwaiting\b.{{0,80}}(?:\.\.|…) ?{TIME}\s*$"),
            format!(r"\D{TIME} already\b|\balready (?:for )?{TIME}"),
            format!(
                r"\b(?:steps?|iterations?) (?:\d+ )?(?:has been running|is running|runs) for\D{{1,4}}{TIME}.{{0,60}}\b(?:usual\w*|median|normal\w*|expected|no output)\b"
            ),
            format!(r"\bt ?\+ ?{TIME}.{{0,30}}\b(?:no|none|not|nothing|without)\b.{{0,40}}{PROGRESS}"),
        ];
        Ok(Self {
            waits: waits.iter().map(|w| regex(w)).collect::<Result<_, _>>()?,
            last: regex(&format!(r"\blast\b.{{0,60}}\D{TIME} ago\b"))?,
            exceeds: regex(&format!(r"\b(?:exceed\w*|over its|past its)\b.{{0,60}}\D{TIME}"))?,
            unbegun: regex(
                r"\bno (?:first|training|single) (?:step|iteration) (?:within|before|by)\b.{0,30}\b(?:limit|deadline)\b|\b(?:start-?up|launch) (?:limit|deadline|time-?out) (?:reached|exceeded|passed|expired|is over)\b.{0,60}\bno (?:first )?(?:step|iteration)",
            )?,
            bound: regex(
                r"\b(?:limit|time-?out|threshold|max\w*|median|usual\w*|average|mean|every|interval|up to|at most|another|within|next|grace)\b[^\d,;(]{0,12}$",
            )?,
            well: regex(
                r"\b(?:no|none|never|without|0) (?:\w+ )?(?:fail\w*|errors?|warnings?|retr\w+|restarts?|crash\w*|late|skipped|lost|preempt\w*|stall\w*|stuck|hung|hangs?)\b|\b(?:took|spent|lasted|total|at most|to go|remaining|\d ?(?:s|sec|min|h) left|eta|resumed|recovered)\b|\btime[/_:]|timing",
            )?,
            of_save: regex(r"\b(?:sav(?:e|ing)|checkpoint\w*|ckpt|writers?)\b")?,
            of_rollout: regex(
                r"\b(?:rollouts?|trajector(?:y|ies)|samples?|generation|generate\w*|requests?|completions?|sequences?|responses?)\b",
            )?,
            of_engine: regex(r"\b(?:engines?|servers?|replicas?|router)\b")?,
            of_step: regex(
                r"\b(?:steps?|iterations?|train\w*|ranks?|workers?|heartbeats?|progress|log|processes|process|job|run|gpus?|collective|barrier|all_\w+|call)\b",
            )?,
        })
    }

    /// The class of a hang report. Before the first step, it is startup that hangs.
    pub(super) fn class(&self, line: &[u8], stepped: bool) -> Option<Class> {
        let of_save = self.of_save.is_match(line);
        if !stepped && self.unbegun.is_match(line) {
            return Some(Class::HangStartup);
        }
        let exceeds = is_long(&self.exceeds, line, |_| true);
        let free = |before: &[u8]| !self.bound.is_match(before);
        let waits = || self.waits.iter().any(|w| is_long(w, line, free)) || !of_save && is_long(&self.last, line, free);
        if !exceeds && (!waits() || self.well.is_match(line)) {
            return None;
        }
        let (step, engine) = if stepped {
            (Class::HangStep, Class::RolloutStall)
        } else {
            (Class::HangStartup, Class::HangStartup)
        };
        match () {
            () if of_save => Some(Class::HangSave),
            () if self.of_rollout.is_match(line) => Some(Class::RolloutStall),
            () if self.of_engine.is_match(line) => Some(engine),
            () if self.of_step.is_match(line) => Some(step),
            () => None,
        }
    }
}

/// Returns true if the matched duration is long and `counts` accepts the text before it.
fn is_long(form: &Regex, line: &[u8], counts: impl Fn(&[u8]) -> bool) -> bool {
    let Some(c) = form.captures(line) else { return false };
    let (Some(number), Some(unit)) = (c.get(1).or(c.get(3)), c.get(2).or(c.get(4))) else {
        return false;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase().replace(',', "");
    let each = match text(unit.as_bytes()).as_bytes().first() {
        Some(b'h') => 3600.0,
        Some(b'm') => 60.0,
        _ => 1.0,
    };
    let long = text(number.as_bytes()).parse::<f64>().is_ok_and(|n| n * each >= LONG);
    long && counts(&line[..number.start()])
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
                Class::HangStep,
            ),
            (
                "agent WARN training stalled (no new log line in 20 min)",
                Class::HangStep,
            ),
            (
                "agent: no heartbeat from rank 12 since 10:00:01 (1803 s)",
                Class::HangStep,
            ),
            (
                "agent: step 13 exceeded the step limit of 900 s, dumping stacks",
                Class::HangStep,
            ),
            (
                "the save of step 100 takes 2400 s already, 30 s is usual",
                Class::HangSave,
            ),
            (
                "async checkpoint of step 100 not done after 1800 s, 3 of 8 writers still busy",
                Class::HangSave,
            ),
            (
                "batch 12: 63/64 trajectories, waiting for the last one since 40 min",
                Class::RolloutStall,
            ),
            (
                "trainer: the rollout has not returned anything for 1,800 s",
                Class::RolloutStall,
            ),
            ("it 5013 is the newest step for 22 min", Class::HangStep),
            (
                "collective all_gather in flight for 1500 s on ranks 0-6",
                Class::HangStep,
            ),
            ("building the process group (waiting, 1800 s)", Class::HangStep),
            (
                "3 samples are left, none finished in the last 30 min",
                Class::RolloutStall,
            ),
            ("rollouter: 0 samples produced in the last 20 min", Class::RolloutStall),
            ("waiting for generation of batch 311 ... 1200s", Class::RolloutStall),
            ("engine 2 has not answered for 1 h", Class::RolloutStall),
            (
                "[ctl] step 121 runs for 1200 s (usual 190 s), no output since 01:02",
                Class::HangStep,
            ),
            (
                "watchdog: no new log line for 1800 s (median step 92 s)",
                Class::HangStep,
            ),
            (
                "launcher: section 'step' is open for 900 s (limit 1200 s)",
                Class::HangStep,
            ),
            (
                "agent: phase=save for 960 s (median 41 s), limit 900 s reached",
                Class::HangSave,
            ),
        ] {
            assert_eq!(stall.class(line.as_bytes(), true), Some(class), "{line}");
        }
        for start in [
            "agent: 3600 s since the launch and no step yet",
            "watchdogd: t+1800s no training step seen yet, 31/32 ranks are there",
            "start-up limit reached, still no first step, rank 17 is silent",
            "no first step within the limit of the start: the last line of each rank follows",
        ] {
            assert_eq!(
                stall.class(start.as_bytes(), false),
                Some(Class::HangStartup),
                "{start}"
            );
        }
    }

    #[test]
    fn limits_sums_and_what_is_over_are_no_stall() {
        let stall = Stall::new().unwrap();
        for line in [
            "watchdog armed: no training step yet, timeout 3600 s",
            "no first step yet, 300 s of the limit of 1800 s are over",
            "t+3600s worker 0 step 12 done",
        ] {
            assert_eq!(stall.class(line.as_bytes(), false), None, "{line}");
        }
        for line in [
            "waiting for the rollout servers (timeout 1800 s)",
            "still saving, timeout=3600 s",
            "training is not watched before step 1; the limit is 1800 s",
            "time: 1200 s waiting for rollout, 300 s in training",
            "step 13: waiting for the slowest sample took 610 s",
            "rollout 12 finished after 1800 s, no request failed",
            "the last checkpoint was done 1800 s ago",
            "no step for 20 s",
            "step 12 has been running for 700 s",
            "2 of 512 requests timed out after 600 s and count as failed samples, none is missing",
            "last checkpoint saved at 10:00:01",
            "eval: 1200 samples/s, no errors",
            "step=812 loss=0.3 time=1200 s (no overlap)",
            "uptime of the engines: 12 h, no request failed",
            "last checkpoint: step 900, 45 min ago",
            "Epoch 3: still training, 12 h so far, 30 h to go",
            "rank 3: not the slowest rank for 3600 s",
            "saving in the background; training does not wait. The last one took 700 s",
            "no step failed in 3600 s",
            "no validation for another 1200 s",
            "heartbeats are reported every 600 s, hung ranks are killed after 1800 s",
        ] {
            assert_eq!(stall.class(line.as_bytes(), true), None, "{line}");
        }
    }
}
