//! The timeline of a run's attempts: decisions, observations, and why each ended.

mod line;

pub use line::TimelineLine;

pub use super::account::SightingView;
use super::account::{FailureAccount, FirstFailure};
use super::advice::advice;
use super::record::{diagnosis, line, start_point, words};
use super::terminal::shown;
use super::time::{local_stamp, span};
use super::{one_line, outcome::outcome_words, record::rehearsed};
use camino::Utf8Path;
use serde::Serialize;
use std::collections::VecDeque;
use supervise_core::diagnosis::last_lines;
use supervise_core::event::rehearsal::RehearsalResult;
use supervise_core::event::{EventKind, ExitStatus};
use supervise_core::id::{AttemptNo, Ms, Step, WallMs};
use supervise_core::journal::LineHeader;
use supervise_core::journal::reason::{Evidence, Reason};
use supervise_core::journal::record::{Act, ActKind, Decision, Diagnosis, JournalRecord, StartPoint};
use supervise_core::state::RunState;

/// Lines kept from the start of an attempt (and as many more from its end): a run of months has many.
const FIRST: usize = 50;
const LAST: usize = 450;

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptStory {
    /// Attempt number; 0 for everything before the first.
    pub attempt: u32,
    pub from: Option<StartPoint>,
    /// When its workers started.
    pub launched: Option<WallMs>,
    pub argv: Vec<String>,
    pub step: Option<Step>,
    pub exits: Vec<(u32, ExitStatus)>,
    pub sightings: Vec<SightingView>,
    pub ended_by_us: Option<String>,
    pub diagnosis: Option<Diagnosis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<FailureAccount>,
    /// Lines of its timeline.
    pub told: Vec<TimelineLine>,
    /// Lines left out after the first 50, if there were more than 500.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The newest lines while reading.
    #[serde(skip)]
    last: VecDeque<TimelineLine>,
    /// The last output of the worker that failed first, if no line in it is known.
    #[serde(skip)]
    output: Vec<String>,
    /// Time of the newest record while any process was running.
    #[serde(skip)]
    until: WallMs,
    #[serde(skip)]
    gone: bool,
    #[serde(skip)]
    seen: FirstFailure,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl AttemptStory {
    fn tell(&mut self, told: TimelineLine) {
        if self.told.len() < FIRST {
            return self.told.push(told);
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(told);
    }
}

/// The timeline of all attempts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainView {
    pub version: u32,
    pub run: String,
    /// One per attempt, oldest first.
    pub attempts: Vec<AttemptStory>,
    pub outcome: Option<String>,
    pub exit_code: Option<u8>,
    /// Reasons of the newest decision, and a refused rehearsal.
    #[serde(skip)]
    because: Vec<String>,
    #[serde(skip)]
    advice: Vec<String>,
}

/// Builds the timeline from journal records.
#[derive(Debug, Clone, Default)]
pub struct StoryBuilder {
    state: RunState,
    stories: Vec<AttemptStory>,
    /// Earlier attempts are dropped: only their ends are known.
    first: AttemptNo,
    host: Option<String>,
}

impl StoryBuilder {
    /// Starts with this attempt, whose first record is at `at`.
    #[must_use]
    pub fn since(first: AttemptNo, at: &LineHeader) -> Self {
        let mut out = Self {
            first,
            ..Self::default()
        };
        (out.state.wall, out.state.now) = (at.wall, at.tick);
        out
    }

    /// Adds the next record.
    pub fn add(&mut self, r: &JournalRecord) {
        let launches = |act: &Act| matches!(act.kind, ActKind::Launch(_));
        if matches!(r, JournalRecord::Intended { act, .. } if launches(act)) {
            self.settle();
        }
        self.state.apply(r);
        if let JournalRecord::Fact(e) = r
            && let EventKind::TermStarted { host, .. } = &e.kind
        {
            self.host = Some(one_line(host, 200));
        }
        let no = match r {
            // A start decision belongs to the attempt it will launch.
            JournalRecord::Decided {
                what: Decision::StartFrom { order, .. },
                ..
            } => order.attempt.0,
            _ => self.state.attempt.as_ref().map_or(0, |a| a.no.0),
        };
        let text = line(r, &self.state);
        let wall = self.state.wall;
        let story = self.story(no);
        let newest = story.last.back().or(story.told.last());
        if let Some(text) = text
            && newest.is_none_or(|t| t.text != text)
        {
            story.tell(TimelineLine {
                at: wall,
                text,
                reasons: reasons(r),
                routine: is_routine(r),
            });
        }
        self.look(r);
    }

    /// Notes how long the current attempt has run, when its first failure was seen, and the decisions after its
    /// diagnosis.
    fn look(&mut self, r: &JournalRecord) {
        let Some(a) = &self.state.attempt else { return };
        let (no, gone, wall) = (a.no.0, a.end.gone, self.state.wall);
        let (failed, known) = (a.end.first_failure.is_some(), a.end.diagnosis.is_some());
        let told = matches!(
            r,
            JournalRecord::Decided {
                what: Decision::Wait { .. }
                    | Decision::StartFrom { .. }
                    | Decision::Finish { .. }
                    | Decision::Charge { .. },
                ..
            }
        );
        let decided = (told && known).then(|| words(r, &self.state)).flatten();
        let at = self.place(no);
        let Some(story) = self.stories.get_mut(at) else { return };
        // The pause after its end does not count as running.
        if !story.gone {
            (story.until, story.gone) = (wall, gone);
        }
        if (failed || known) && story.seen.at.is_none() {
            (story.seen.at, story.seen.host) = (Some(wall), self.host.clone());
        }
        if let Some(text) = decided {
            story.seen.decide(text);
        }
    }

    fn story(&mut self, no: u32) -> &mut AttemptStory {
        let at = self.place(no);
        &mut self.stories[at]
    }

    /// Index of an attempt's timeline: usually the last one.
    fn place(&mut self, no: u32) -> usize {
        self.stories.iter().rposition(|s| s.attempt == no).unwrap_or_else(|| {
            self.stories.push(blank(no));
            self.stories.len() - 1
        })
    }

    /// Copies what the state knows of the current attempt, before the next one starts and at the end.
    fn settle(&mut self) {
        let Some(a) = &self.state.attempt else { return };
        let no = a.no.0;
        let at = self.place(no);
        let (Some(a), Some(story)) = (&self.state.attempt, self.stories.get_mut(at)) else {
            return;
        };
        story.output = last_lines(a).to_vec();
        story.from = Some(a.order.from.clone());
        story.launched = a.launch.launched_wall;
        story.argv = a.launch.argv.iter().map(|w| super::shown_word(w)).collect();
        story.step = a.training.step;
        story.exits = a.exits.iter().map(|(w, e)| (w.0, *e)).collect();
        story.ended_by_us = a.end.ended_by_us.as_ref().map(|cause| cause.words().to_owned());
        story.diagnosis.clone_from(&a.end.diagnosis);
        story.sightings = a
            .output
            .sightings
            .iter()
            .map(|(means, s)| SightingView {
                means: means.clone(),
                worker: s.worker.0,
                line: s.line,
                text: one_line(&s.text, 1000),
                count: s.count,
            })
            .collect();
        let account = |d| FailureAccount::of(a, d, &story.sightings, &story.seen);
        story.account = a.end.diagnosis.as_ref().map(account);
    }

    /// The state after the newest record.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The machine of the newest term.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Completes the timeline; `only`: a single attempt.
    #[must_use]
    pub fn finish(mut self, run: &str, only: Option<u32>) -> ExplainView {
        self.settle();
        let first = self.first.0;
        self.stories
            .retain(|s| s.attempt >= first && only.is_none_or(|n| s.attempt == n));
        self.stories.sort_by_key(|s| s.attempt);
        for story in &mut self.stories {
            story.told.extend(std::mem::take(&mut story.last));
        }
        let s = &self.state;
        let worker = s.attempt.as_ref().map(|a| a.blamed().map_or(0, |w| w.0));
        let refused = s
            .rehearsal
            .iter()
            .filter(|r| matches!(r.result, RehearsalResult::Refused { .. }));
        let because = s.why.iter().map(|r| one_line(&r.text, 600));
        ExplainView {
            because: because.chain(refused.map(|r| rehearsed(&r.result))).collect(),
            advice: s.outcome.as_ref().map_or_else(Vec::new, |o| advice(o, s, run, worker)),
            version: 1,
            run: run.to_owned(),
            attempts: self.stories,
            outcome: self.state.outcome.as_ref().map(outcome_words),
            exit_code: self.state.exit_code(),
        }
    }
}

fn blank(no: u32) -> AttemptStory {
    AttemptStory {
        attempt: no,
        from: None,
        launched: None,
        argv: Vec::new(),
        step: None,
        exits: Vec::new(),
        sightings: Vec::new(),
        ended_by_us: None,
        diagnosis: None,
        told: Vec::new(),
        left_out: 0,
        last: VecDeque::new(),
        output: Vec::new(),
        until: WallMs(0),
        gone: false,
        account: None,
        seen: FirstFailure::default(),
    }
}

fn is_routine(r: &JournalRecord) -> bool {
    match r {
        JournalRecord::Decided { what, .. } => matches!(
            what,
            Decision::Mark { .. } | Decision::SaveGrows { .. } | Decision::SaveRequestEnded { .. }
        ),
        JournalRecord::Intended { act, .. } => matches!(
            act.kind,
            ActKind::Prune(_) | ActKind::Keep { .. } | ActKind::RequestSave(_)
        ),
        JournalRecord::Fact(_) | JournalRecord::Ignored { .. } => false,
    }
}

fn reasons(r: &JournalRecord) -> Vec<Reason> {
    match r {
        JournalRecord::Decided { reasons, .. } | JournalRecord::Intended { reasons, .. } => reasons.clone(),
        JournalRecord::Fact(_) | JournalRecord::Ignored { .. } => Vec::new(),
    }
}

impl ExplainView {
    /// The cause first, then one line per attempt, then advice.
    #[must_use]
    pub fn brief(&self, run_dir: &Utf8Path) -> String {
        let mut out = match (&self.outcome, self.exit_code) {
            (Some(words), Some(code)) => format!("run {} ended: {} (exit code {code})\n", self.run, shown(words)),
            _ => format!("run {} has not ended (`supervise status {}`)\n", self.run, self.run),
        };
        // Do not repeat the outcome.
        for why in self
            .because
            .iter()
            .filter(|why| !out.contains(why.as_str()))
            .collect::<Vec<_>>()
        {
            out.push_str(&format!("  because {}\n", shown(why)));
        }
        if let Some(last) = self.attempts.last() {
            for line in &last.output {
                out.push_str(&format!("  last output: {}\n", one_line(line, 300)));
            }
            match (&last.account, &last.diagnosis) {
                (Some(account), Some(d)) => {
                    for line in account.lines(&d.class, Some(run_dir)) {
                        out.push_str(&format!("  {line}\n"));
                    }
                }
                _ => {
                    for seen in last.sightings.iter().filter(|s| s.matters()) {
                        out.push_str(&format!("  {}\n", seen.words()));
                    }
                }
            }
        }
        for story in self.attempts.iter().filter(|s| s.attempt > 0) {
            out.push_str(&story.brief());
        }
        // The first line of advice names this command.
        for line in self.advice.iter().skip(1) {
            out.push_str(&format!("{line}\n"));
        }
        out
    }

    /// All decisions and observations.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("run {}\n", self.run);
        for story in &self.attempts {
            out.push_str(&story_text(story));
        }
        if let (Some(words), Some(code)) = (&self.outcome, self.exit_code) {
            out.push_str(&format!("\n{} (exit code {code})\n", shown(words)));
        }
        out
    }
}

impl AttemptStory {
    pub(super) fn ended(&self) -> WallMs {
        self.seen.at.unwrap_or(self.until)
    }

    /// How long its workers ran, or have been running. `None`: it was not launched.
    pub(super) fn ran(&self) -> Option<Ms> {
        let ran = self.ended().0.saturating_sub(self.launched?.0);
        Some(Ms(u64::try_from(ran).unwrap_or_default()))
    }

    pub(super) fn brief(&self) -> String {
        let mut out = format!("attempt {}", self.attempt);
        if let Some(from) = &self.from {
            out.push_str(&format!(": {}", shown(&start_point(from))));
        }
        if let (Some(at), Some(ran)) = (self.launched, self.ran()) {
            out.push_str(&format!(" at {}, ran {}", local_stamp(at), span(ran)));
        }
        if let Some(step) = self.step {
            out.push_str(&format!(" to step {step}"));
        }
        let end = match (&self.diagnosis, &self.ended_by_us, self.exits.first()) {
            (Some(d), ..) => format!("; {} [{}]", one_line(&d.text, 300), d.class),
            (None, Some(why), _) => format!("; the supervisor ended it ({})", shown(why)),
            (None, None, Some((worker, exit))) => format!("; worker {worker} {}", exit.words()),
            (None, None, None) => String::new(),
        };
        out + &end + "\n"
    }
}

fn story_text(s: &AttemptStory) -> String {
    let mut out = match (s.attempt, &s.from) {
        (0, _) => "\nbefore the first attempt\n".to_owned(),
        (n, Some(from)) => format!("\nattempt {n}: {}\n", shown(&start_point(from))),
        (n, None) => format!("\nattempt {n}\n"),
    };
    if let Some(at) = s.launched {
        out.push_str(&format!("  launched  {}\n", local_stamp(at)));
    }
    if !s.argv.is_empty() {
        let command = shown(&super::shown_command(&s.argv));
        out.push_str(&format!("  command   {command}\n"));
    }
    for (n, told) in s.told.iter().enumerate() {
        if n == FIRST && s.left_out > 0 {
            out.push_str(&format!("  ({} lines are left out)\n", s.left_out));
        }
        out.push_str(&format!("  {}\n", told.local()));
        for r in told.reasons.iter().skip(1) {
            out.push_str(&format!("      and {}\n", one_line(&r.text, 600)));
        }
        for e in told.reasons.iter().flat_map(|r| &r.evidence) {
            out.push_str(&format!("      {}\n", shown(&evidence(e))));
        }
    }
    for (worker, exit) in &s.exits {
        out.push_str(&format!("  worker {worker} {}\n", exit.words()));
    }
    for seen in s.sightings.iter().filter(|s| s.matters()) {
        out.push_str(&format!("  {}\n", seen.words()));
    }
    if let Some(why) = &s.ended_by_us {
        out.push_str(&format!("  the supervisor ended it ({})\n", shown(why)));
    }
    if let Some(d) = &s.diagnosis {
        out.push_str(&format!("  diagnosis [{}]: {}\n", d.class, diagnosis(d)));
    }
    out
}

fn evidence(e: &Evidence) -> String {
    match e {
        Evidence::Line { worker, line, text } => format!("worker {worker} line {line}: {}", one_line(text, 300)),
        Evidence::File { path, finding } => format!("{path}: {}", one_line(finding, 300)),
        Evidence::Setting(text) => format!("setting {}", super::shown_word(text)),
        Evidence::Exit(text) => one_line(text, 300),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::id::Tick;

    #[test]
    fn a_long_attempt_is_told_by_its_first_lines_and_its_last_ones() {
        let told = |n: u64| {
            let mut teller = StoryBuilder::default();
            for step in 1..=n {
                teller.add(&JournalRecord::Decided {
                    at: Tick(step),
                    what: Decision::Mark { step: Step(step) },
                    reasons: vec![Reason::new("proven", format!("step {step} is whole"))],
                });
            }
            teller.finish("x", None)
        };
        let (all, many) = (told(500), told(2000));
        assert_eq!((all.attempts[0].told.len(), all.attempts[0].left_out), (500, 0));
        assert!(!all.text().contains("left out"));
        let story = &many.attempts[0];
        assert_eq!((story.told.len(), story.left_out), (500, 1500));
        let text = many.text();
        for step in [1, 50, 1551, 2000] {
            assert!(text.contains(&format!("step {step} is whole")), "{step}");
        }
        assert!(!text.contains("step 51 is whole") && !text.contains("step 1550 is whole"));
        let (first, last) = text.split_once("(1500 lines are left out)").unwrap();
        assert!(first.contains("step 50 is") && last.contains("step 1551 is"));
    }
}
