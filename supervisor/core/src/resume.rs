//! Where an attempt starts: the newest proven step of this lineage, or the reason why there is none.
//!
//! Pure: a scan, the state, the specification. The directory decides, never the tracker file; the tracker
//! can only raise a question (a person may have rolled back) that a person must answer.

use crate::checkpoint::{CheckpointSummary, CkptId, Resumability, StateKind, Verdict};
use crate::event::{ScanReport, Tracker};
use crate::id::Step;
use crate::reason::{Evidence, Reason};
use crate::record::{DiskEdit, Outcome, StartPoint};
use crate::spec::{ResumeIntent, RunSpec};
use crate::state::State;
use camino::Utf8PathBuf;

/// What a scan leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Start here, after these edits.
    Start {
        /// From where.
        from: StartPoint,
        /// Disk edits first.
        edits: Vec<DiskEdit>,
        /// What is lost.
        lost: Vec<StateKind>,
        /// The run is taken into care here.
        care: bool,
        /// Why.
        reasons: Vec<Reason>,
    },
    /// The last planned step is there.
    Finished {
        /// The step.
        step: Step,
        /// Why.
        reasons: Vec<Reason>,
    },
    /// A newer step cannot be read: wait, never pass it over.
    Unreadable {
        /// Why.
        reasons: Vec<Reason>,
    },
    /// No start is allowed.
    Refuse {
        /// How the run ends.
        outcome: Outcome,
        /// Why.
        reasons: Vec<Reason>,
    },
}

/// The last planned step: the configuration's, else what the trainer printed.
#[must_use]
pub fn last_step(s: &State, spec: &RunSpec) -> Option<Step> {
    spec.last_step.or(s.total)
}

/// Chooses where to start.
#[must_use]
pub fn choose(s: &State, spec: &RunSpec, scan: &ScanReport) -> Choice {
    let p = &spec.policy;
    if spec.root.is_none() || !p.recovery {
        let why = "nothing is known of this command's checkpoints: it starts as it was written";
        return start(
            StartPoint::AsIs,
            Vec::new(),
            Vec::new(),
            s.care.is_none(),
            vec![Reason::new("as_written", why)],
        );
    }
    if let Some(why) = &scan.unreadable {
        return Choice::Unreadable {
            reasons: vec![Reason::new(
                "root_unreadable",
                format!("the checkpoint root cannot be read: {why}"),
            )],
        };
    }
    if !p.prove {
        return unproven(spec, scan, s.care.is_none());
    }
    let care_term = s.care.as_ref().map(|c| c.term);
    let wish_open = s.care.as_ref().is_none_or(|c| c.intent != spec.resume);
    if p.fresh && care_term != Some(s.term) || spec.resume == ResumeIntent::Disabled && wish_open {
        return fresh_by_wish(spec, scan);
    }
    if let ResumeIntent::Path { path, .. } = &spec.resume
        && wish_open
    {
        return from_path(s, spec, scan, path);
    }
    if let Some(stranger) = stranger(s, scan) {
        return stranger;
    }
    let from = p.from.filter(|_| care_term != Some(s.term));
    match newest(s, scan, from) {
        Newest::Found(c, reasons) => from_newest(s, spec, scan, c, from.is_some(), reasons),
        Newest::Unreadable(reasons) => Choice::Unreadable { reasons },
        Newest::None(reasons) => match &spec.resume {
            ResumeIntent::Path { path, .. } if !s.wish_done => from_path(s, spec, scan, path),
            _ => from_nothing(s, spec, scan, reasons),
        },
    }
}

fn from_newest(
    s: &State,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    asked: bool,
    mut reasons: Vec<Reason>,
) -> Choice {
    if !asked && let Some(refusal) = rolled_back(s, spec, scan, c) {
        return refusal;
    }
    if let Some(last) = last_step(s, spec)
        && c.step >= last
    {
        reasons.push(Reason::new(
            "last_step",
            format!("step {} is the last planned one ({last})", c.step),
        ));
        return Choice::Finished { step: c.step, reasons };
    }
    from_step(s, spec, scan, c, s.care.is_none() || asked, reasons)
}

fn start(from: StartPoint, edits: Vec<DiskEdit>, lost: Vec<StateKind>, care: bool, reasons: Vec<Reason>) -> Choice {
    Choice::Start {
        from,
        edits,
        lost,
        care,
        reasons,
    }
}

enum Newest<'a> {
    Found(&'a CheckpointSummary, Vec<Reason>),
    Unreadable(Vec<Reason>),
    None(Vec<Reason>),
}

/// Walks from the newest step down; every step passed over leaves a reason.
fn newest<'a>(s: &State, scan: &'a ScanReport, from: Option<Step>) -> Newest<'a> {
    let mut reasons = Vec::new();
    for c in scan
        .steps
        .iter()
        .filter(|c| !c.husk && !is_elsewhere(&c.id) && from.is_none_or(|f| c.step <= f))
    {
        if s.distrusted.contains(&c.id) {
            reasons.push(Reason::new(
                "distrusted",
                format!("{} failed to load before: passed over", c.id),
            ));
            continue;
        }
        match c.verdict {
            Verdict::Whole if c.proven.is_some() => {
                reasons.insert(0, found(c));
                return Newest::Found(c, reasons);
            }
            Verdict::Unreadable => {
                reasons.insert(0, refusal_reason("unreadable", c));
                return Newest::Unreadable(reasons);
            }
            _ => reasons.push(refusal_reason("not_whole", c)),
        }
    }
    Newest::None(reasons)
}

/// A step the user named outside the root: scanned only for the wish that names it.
fn is_elsewhere(id: &CkptId) -> bool {
    id.0.is_absolute()
}

fn found(c: &CheckpointSummary) -> Reason {
    let depth = c.proven.map_or("not", |d| d.word());
    Reason::new(
        "newest_whole",
        format!("{} is the newest whole step (proven: {depth})", c.id),
    )
}

fn refusal_reason(code: &'static str, c: &CheckpointSummary) -> Reason {
    match c.why() {
        Some(f) => Reason::new(code, format!("{} is {}: {f}", c.id, c.verdict)).with(Evidence::File {
            path: f.file.as_ref().map_or_else(|| c.id.to_string(), ToString::to_string),
            finding: f.detail.clone(),
        }),
        None => Reason::new(code, format!("{} is {}", c.id, c.verdict)),
    }
}

fn from_step(
    s: &State,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    care: bool,
    mut reasons: Vec<Reason>,
) -> Choice {
    let lost = match &c.resume {
        Resumability::Exact => Vec::new(),
        Resumability::Degraded { lost } if spec.policy.degraded.allows(lost) => lost.clone(),
        Resumability::Degraded { lost } => {
            let names: Vec<_> = lost.iter().map(|k| k.words()).collect();
            let why = format!("{} can only be resumed without its {}", c.id, names.join(", "));
            reasons.insert(
                0,
                Reason::new(
                    "degraded_not_allowed",
                    format!("{why}; `supervisor.degraded_resume` does not allow that"),
                ),
            );
            return Choice::Refuse {
                outcome: Outcome::NoProof { why },
                reasons,
            };
        }
        Resumability::Not { why } => {
            let why = format!("{} is whole but does not fit this run: {why}", c.id);
            reasons.insert(0, Reason::new("does_not_fit", why.clone()));
            return Choice::Refuse {
                outcome: Outcome::Deterministic { why },
                reasons,
            };
        }
    };
    if let Some(mark) = s.mark
        && c.step < mark
        && !care
        && s.step_backs >= spec.policy.step_backs
    {
        let why = format!(
            "stepping back from {mark} to {} would be the {}th time",
            c.step,
            s.step_backs + 1
        );
        reasons.insert(0, Reason::new("too_many_step_backs", why.clone()));
        return Choice::Refuse {
            outcome: Outcome::GaveUp { why },
            reasons,
        };
    }
    let from = StartPoint::Step {
        ckpt: c.id.clone(),
        step: c.step,
        pins: c.pins,
        load: load_contents(s, spec, c),
    };
    let mut edits = move_aside(scan, Some(c.step), care, &reasons);
    if scan.tracker != Tracker::Step(c.step) && !is_elsewhere(&c.id) {
        edits.push(DiskEdit::WriteTracker { step: c.step });
    }
    if !lost.is_empty() {
        let names: Vec<_> = lost.iter().map(|k| k.words()).collect();
        reasons.push(Reason::new(
            "degraded",
            format!("lost at this resume: {}", names.join(", ")),
        ));
    }
    start(from, edits, lost, care, reasons)
}

/// What the step holds, narrowed by the user's own wish for the first resume.
fn load_contents(s: &State, spec: &RunSpec, c: &CheckpointSummary) -> Vec<String> {
    let wish = spec
        .roles
        .iter()
        .find(|r| r.load_wish && !s.wish_done)
        .map(|r| &r.load_contents);
    c.contents
        .iter()
        .filter(|k| k.as_str() != "hf_model")
        .filter(|k| wish.is_none_or(|w| w.contains(k)))
        .cloned()
        .collect()
}

/// Every step above the start goes aside: the trainer would write into it, and its marks survive a re-save.
fn move_aside(scan: &ScanReport, above: Option<Step>, foreign: bool, reasons: &[Reason]) -> Vec<DiskEdit> {
    let why = |c: &CheckpointSummary| match above {
        Some(step) => format!("above the resume point {step}"),
        None => reasons
            .first()
            .map_or_else(|| format!("fresh start, {}", c.verdict), |r| r.text.clone()),
    };
    scan.steps
        .iter()
        .filter(|c| !is_elsewhere(&c.id) && above.is_none_or(|a| c.step > a))
        .map(|c| DiskEdit::MoveAside {
            from: c.id.clone(),
            whole: c.verdict == Verdict::Whole,
            foreign,
            why: why(c),
        })
        .collect()
}

fn fresh_by_wish(spec: &RunSpec, scan: &ScanReport) -> Choice {
    let (code, text) = if spec.policy.fresh {
        ("fresh_asked", "a fresh start was asked for (--fresh)")
    } else {
        (
            "resume_disabled",
            "the configuration says resume_mode=disable: this run starts from nothing, once",
        )
    };
    let reasons = vec![Reason::new(code, text)];
    fresh(scan, true, true, reasons)
}

fn fresh(scan: &ScanReport, foreign: bool, care: bool, reasons: Vec<Reason>) -> Choice {
    if let Some(c) = scan.steps.iter().find(|c| c.verdict == Verdict::Unreadable) {
        return Choice::Unreadable {
            reasons: vec![refusal_reason("unreadable", c)],
        };
    }
    let mut edits = move_aside(scan, None, foreign, &reasons);
    if scan.tracker != Tracker::Missing {
        edits.push(DiskEdit::RemoveTracker);
    }
    start(StartPoint::Fresh, edits, Vec::new(), care, reasons)
}

fn from_path(s: &State, spec: &RunSpec, scan: &ScanReport, path: &Utf8PathBuf) -> Choice {
    let is_it = |c: &&CheckpointSummary| match &spec.root {
        Some(root) => root.join(&c.id.0) == *path,
        None => c.id.0 == *path,
    };
    let asked = Reason::new(
        "resume_path",
        format!("the configuration asks for {path} (resume_mode=resume_path)"),
    );
    match scan.steps.iter().find(is_it) {
        Some(c) if c.verdict == Verdict::Whole => from_step(
            s,
            spec,
            scan,
            c,
            s.care.as_ref().is_none_or(|k| k.intent != spec.resume),
            vec![asked],
        ),
        Some(c) if c.verdict == Verdict::Unreadable => Choice::Unreadable {
            reasons: vec![refusal_reason("unreadable", c)],
        },
        Some(c) => {
            let why = refusal_reason("not_whole", c);
            Choice::Refuse {
                outcome: Outcome::NoProof { why: why.text.clone() },
                reasons: vec![asked, why],
            }
        }
        None => {
            let why = format!("{path} does not exist");
            Choice::Refuse {
                outcome: Outcome::NoProof { why: why.clone() },
                reasons: vec![asked, Reason::new("no_such_step", why)],
            }
        }
    }
}

/// Steps that appeared while no attempt of this run lived.
fn stranger(s: &State, scan: &ScanReport) -> Option<Choice> {
    let settled = s.settled.as_ref()?;
    if s.attempt.is_none() || s.care.is_none() {
        return None;
    }
    let c = scan
        .steps
        .iter()
        .find(|c| !settled.contains(&c.id) && s.mark.is_none_or(|m| c.step > m) && !is_elsewhere(&c.id))?;
    let by = format!(
        "{} appeared while no worker of this run lived: somebody else writes here, or it was copied in",
        c.id
    );
    Some(Choice::Refuse {
        outcome: Outcome::LeaseHeld { by: by.clone() },
        reasons: vec![Reason::new("stranger", by)],
    })
}

/// The tracker names less than the newest whole step by more than one save.
fn rolled_back(s: &State, spec: &RunSpec, scan: &ScanReport, c: &CheckpointSummary) -> Option<Choice> {
    let Tracker::Step(named) = scan.tracker else {
        return None;
    };
    let one_save = spec.cadence.every.unwrap_or(u64::MAX);
    if named.0.saturating_add(one_save) >= c.step.0 {
        return None;
    }
    // The trainer itself skips the tracker only in a save that is killed: one save at most.
    let there = scan
        .steps
        .iter()
        .any(|x| x.step == named && !x.husk && x.verdict == Verdict::Whole)
        || scan.steps.iter().any(|x| x.step == named && x.proven.is_none());
    if !there && s.care.is_some() {
        return None;
    }
    let why = format!(
        "the tracker names step {named}, but {} is whole: a person may have rolled back. Say which one is meant: --from {named} or --from {}",
        c.id, c.step
    );
    Some(Choice::Refuse {
        outcome: Outcome::NoProof { why: why.clone() },
        reasons: vec![Reason::new("rolled_back", why)],
    })
}

fn from_nothing(s: &State, spec: &RunSpec, scan: &ScanReport, mut reasons: Vec<Reason>) -> Choice {
    let steps = scan.steps.iter().filter(|c| !c.husk && !is_elsewhere(&c.id)).count();
    if s.mark.is_none() {
        if s.care.as_ref().is_some_and(|c| c.step.is_none()) {
            let text = "this run began from nothing and has no proven step yet: it begins again";
            reasons.insert(0, Reason::new("began_fresh", text));
            return fresh(scan, false, false, reasons);
        }
        if steps == 0 && scan.tracker == Tracker::Missing {
            reasons.insert(
                0,
                Reason::new("empty_root", "the checkpoint root holds no step: this is a fresh start"),
            );
            return fresh(scan, false, true, reasons);
        }
        if spec.policy.allow_fresh {
            let text = "no step is provable, and --allow-fresh was given: starting from nothing";
            reasons.insert(0, Reason::new("fresh_allowed", text));
            return fresh(scan, true, true, reasons);
        }
    }
    let why = match (s.mark, steps, &scan.tracker) {
        (Some(mark), _, _) => {
            format!("step {mark} was proven in this run, and no step is provable now")
        }
        (None, 0, t) => format!("the tracker {} but the root holds no step", tracker_words(t)),
        (None, n, _) => format!("none of the {n} steps in the root is provable"),
    };
    reasons.insert(0, Reason::new("no_proof", why.clone()));
    Choice::Refuse {
        outcome: Outcome::NoProof { why },
        reasons,
    }
}

fn tracker_words(t: &Tracker) -> String {
    match t {
        Tracker::Missing => "is missing,".into(),
        Tracker::Empty => "is empty,".into(),
        Tracker::Garbage(text) => format!("says {text:?},"),
        Tracker::Step(n) => format!("names step {n},"),
    }
}

/// With proof switched off: the highest number wins, as any restart loop would have it.
fn unproven(spec: &RunSpec, scan: &ScanReport, care: bool) -> Choice {
    let reason = |text: String| vec![Reason::new("proof_off", text)];
    match scan.steps.iter().find(|c| !c.husk && !is_elsewhere(&c.id)) {
        Some(c) => {
            if last_is(spec, c.step) {
                return Choice::Finished {
                    step: c.step,
                    reasons: reason(format!("{} has the last planned number", c.id)),
                };
            }
            let load = c
                .contents
                .iter()
                .filter(|k| k.as_str() != "hf_model")
                .cloned()
                .collect();
            let from = StartPoint::Step {
                ckpt: c.id.clone(),
                step: c.step,
                pins: c.pins,
                load,
            };
            start(
                from,
                Vec::new(),
                Vec::new(),
                care,
                reason(format!("{} has the highest number; proof is switched off", c.id)),
            )
        }
        None => start(
            StartPoint::Fresh,
            Vec::new(),
            Vec::new(),
            care,
            reason("no step is there; proof is switched off".into()),
        ),
    }
}

fn last_is(spec: &RunSpec, step: Step) -> bool {
    spec.last_step.is_some_and(|l| step >= l)
}
