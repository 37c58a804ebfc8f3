//! The story of a run's attempts: what was decided, what was seen, why it ended.

use super::record::{diagnosis, line, start_point};
use super::terminal::{paragraph, shown};
use super::time::stamp;
use super::{one_line, record::outcome_words};
use serde::Serialize;
use supervise_core::event::{EventKind, ExitStatus};
use supervise_core::id::{AttemptNo, Step, WallMs};
use supervise_core::journal::Line;
use supervise_core::reason::{Evidence, Reason};
use supervise_core::record::{Decision, Diagnosis, Record, StartPoint};
use supervise_core::scan::RuleKind;
use supervise_core::state::State;

/// Lines kept per attempt: a run of months has many.
const LINES: usize = 500;

/// One line of the story.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// When, in ms since 1970.
    pub at: WallMs,
    /// In words, with the time of day.
    pub text: String,
    /// Why, with the evidence.
    pub reasons: Vec<Reason>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Story {
    /// Its number; 0 for what came before the first.
    pub attempt: u32,
    /// Where it started.
    pub from: Option<StartPoint>,
    /// When its workers ran.
    pub launched: Option<WallMs>,
    /// The command, secrets hidden.
    pub argv: Vec<String>,
    /// The newest step it printed.
    pub step: Option<Step>,
    /// How its workers ended.
    pub exits: Vec<(u32, ExitStatus)>,
    /// Lines of output that mattered: class or meaning, worker, line number, text, times seen.
    pub sightings: Vec<Sighted>,
    /// Why it was ended by us.
    pub ended_by_us: Option<String>,
    /// What ended it.
    pub diagnosis: Option<Diagnosis>,
    /// What was said meanwhile.
    pub told: Vec<Told>,
}

/// A line of output that mattered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sighted {
    /// What it means.
    pub means: RuleKind,
    /// Whose output.
    pub worker: u32,
    /// Line number from 1.
    pub line: u64,
    /// The line.
    pub text: String,
    /// How often.
    pub count: u64,
}

/// The whole story.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainView {
    /// Version of this shape.
    pub version: u32,
    /// Identity.
    pub run: String,
    /// One per attempt, oldest first.
    pub attempts: Vec<Story>,
    /// How the run ended, in words.
    pub outcome: Option<String>,
    /// The exit code of that.
    pub exit_code: Option<u8>,
}

/// Folds records into stories.
#[derive(Debug, Default)]
pub struct Teller {
    state: State,
    stories: Vec<Story>,
    /// Of the attempts before it only the end is known.
    first: AttemptNo,
}

impl Teller {
    /// A story that is told from the middle on: from this attempt, whose first record this is.
    #[must_use]
    pub fn since(first: AttemptNo, at: &Line) -> Self {
        let mut out = Self {
            first,
            ..Self::default()
        };
        (out.state.wall, out.state.now) = (at.wall, at.tick);
        out
    }

    /// Takes the next record in.
    pub fn add(&mut self, r: &Record) {
        self.state.apply(r);
        let no = match r {
            // What is chosen belongs to the attempt it will be.
            Record::Decided {
                what: Decision::StartFrom { order, .. },
                ..
            } => order.attempt.0,
            _ => self.state.attempt.as_ref().map_or(0, |a| a.no.0),
        };
        let text = line(r, &self.state);
        let wall = self.state.wall;
        let story = self.story(no);
        if let Some(text) = text
            && story.told.len() < LINES
            && story.told.last().is_none_or(|t| t.text != text)
        {
            story.told.push(Told {
                at: wall,
                text,
                reasons: reasons(r),
            });
        }
        self.refresh(r);
    }

    fn story(&mut self, no: u32) -> &mut Story {
        let at = match self.stories.iter().position(|s| s.attempt == no) {
            Some(at) => at,
            None => {
                self.stories.push(blank(no));
                self.stories.len() - 1
            }
        };
        &mut self.stories[at]
    }

    /// Copies what the state knows of the present attempt.
    fn refresh(&mut self, r: &Record) {
        let steady = matches!(r, Record::Fact(e) if matches!(e.kind, EventKind::Progress { .. } | EventKind::Timer(_)));
        let Some(a) = self.state.attempt.clone().filter(|_| !steady) else {
            return;
        };
        let story = self.story(a.no.0);
        story.from = Some(a.order.from);
        story.launched = a.launched_wall;
        story.argv = a.argv.iter().map(|w| crate::prepare::shown_word(w)).collect();
        story.step = a.step;
        story.exits = a.exits.iter().map(|(w, e)| (w.0, *e)).collect();
        story.ended_by_us = a.ended_by_us;
        story.diagnosis = a.diagnosis;
        story.sightings = a
            .sightings
            .iter()
            .map(|(means, s)| Sighted {
                means: means.clone(),
                worker: s.worker.0,
                line: s.line,
                text: one_line(&s.text, 1000),
                count: s.count,
            })
            .collect();
    }

    /// The end of the story; `only`: one attempt.
    #[must_use]
    pub fn finish(mut self, run: &str, only: Option<u32>) -> ExplainView {
        let first = self.first.0;
        self.stories
            .retain(|s| s.attempt >= first && only.is_none_or(|n| s.attempt == n));
        self.stories.sort_by_key(|s| s.attempt);
        ExplainView {
            version: 1,
            run: run.to_owned(),
            attempts: self.stories,
            outcome: self.state.outcome.as_ref().map(outcome_words),
            exit_code: self.state.exit_code(),
        }
    }
}

fn blank(no: u32) -> Story {
    Story {
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
    }
}

fn reasons(r: &Record) -> Vec<Reason> {
    match r {
        Record::Decided { reasons, .. } | Record::Intended { reasons, .. } => reasons.clone(),
        Record::Fact(_) | Record::Ignored { .. } => Vec::new(),
    }
}

impl ExplainView {
    /// For people.
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

fn story_text(s: &Story) -> String {
    let mut out = match (s.attempt, &s.from) {
        (0, _) => "\nbefore the first attempt\n".to_owned(),
        (n, Some(from)) => format!("\nattempt {n}: {}\n", shown(&start_point(from))),
        (n, None) => format!("\nattempt {n}\n"),
    };
    if let Some(at) = s.launched {
        out.push_str(&format!("  launched  {}\n", stamp(at)));
    }
    if !s.argv.is_empty() {
        let command = shown(&crate::prepare::shown_command(&s.argv));
        out.push_str(&format!("  command   {command}\n"));
    }
    for told in &s.told {
        out.push_str(&format!("  {}\n", paragraph(&told.text)));
        for r in told.reasons.iter().skip(1) {
            out.push_str(&format!("      and {}\n", one_line(&r.text, 600)));
        }
        for e in told.reasons.iter().flat_map(|r| &r.evidence) {
            out.push_str(&format!("      {}\n", shown(&evidence(e))));
        }
    }
    for (worker, exit) in &s.exits {
        out.push_str(&format!("  worker {worker} ended with {exit}\n"));
    }
    for seen in s
        .sightings
        .iter()
        .filter(|x| matches!(x.means, RuleKind::Failure(_) | RuleKind::Exception))
    {
        let times = if seen.count > 1 {
            format!(" ({} times)", seen.count)
        } else {
            String::new()
        };
        let line = if seen.line > 0 {
            format!(" line {}", seen.line)
        } else {
            String::new()
        };
        out.push_str(&format!(
            "  worker {}{line}: {}{times}\n",
            seen.worker,
            one_line(&seen.text, 300)
        ));
    }
    if let Some(why) = &s.ended_by_us {
        out.push_str(&format!("  ended by the supervisor: {}\n", shown(why)));
    }
    if let Some(d) = &s.diagnosis {
        out.push_str(&format!("  diagnosis: {}\n", diagnosis(d)));
    }
    out
}

fn evidence(e: &Evidence) -> String {
    match e {
        Evidence::Line { worker, line, text } => format!("worker {worker} line {line}: {}", one_line(text, 300)),
        Evidence::File { path, finding } => format!("{path}: {}", one_line(finding, 300)),
        Evidence::Setting(text) => format!("setting {}", crate::prepare::shown_word(text)),
        Evidence::Exit(text) => one_line(text, 300),
    }
}
