//! Where an attempt starts: the newest proven step of this run, or why there is none. The directory decides. A tracker
//! file that disagrees only raises a question for the operator, who may have rolled back.

mod degraded;
mod finished;
mod fit;
mod fresh_start;
pub mod generations;
mod interval;
mod needs_operator;
mod next;
mod reshard;
pub mod retention;
mod spread;
mod step;
mod tail;
mod unproven;

use crate::checkpoint::kind::is_older;
use crate::checkpoint::{CheckpointSummary, CkptId, Depth, Resumability, StateKind, Verdict};
use crate::event::ScanReport;
use crate::id::Step;
use crate::journal::reason::{Evidence, Reason};
use crate::journal::record::{ASKED_STEP_NOT_WHOLE, DiskEdit, RunOutcome, StartPoint};
use crate::resume::generations::{beyond, is_distrusted};
use crate::resume::interval::kept_interval;
pub use crate::resume::interval::save_interval;
use crate::spec::{ResumeIntent, RunSpec};
use crate::state::{RunMode, RunState, StepOrigin};
use degraded::or_degraded;
use finished::ended_before;
use fit::{from_path, from_step};
use fresh_start::{fresh_by_wish, from_nothing, go_on_clearing};
use needs_operator::{link_words, linked, rolled_back, set_back, stranger, unsafe_step, went_back};
use tail::undone_tail;
use unproven::unproven;

pub(crate) use finished::last_step_done;
pub use tail::is_overrun;

pub use next::in_next_term;

/// Where to start, chosen from a scan, or why not.
#[derive(Debug, Clone, PartialEq)]
pub enum ResumeChoice {
    /// Start here, after these edits.
    Start {
        from: StartPoint,
        edits: Vec<DiskEdit>,
        lost: Vec<StateKind>,
        /// Whether this is the first choice for this run (it is *adopted* here): steps above it may belong to another run.
        care: bool,
        reasons: Vec<Reason>,
    },
    /// The last planned step is on disk.
    Finished {
        /// The step that was found.
        step: Step,
        reasons: Vec<Reason>,
    },
    /// The root or a step cannot be read, or the step is not proven deep enough yet: wait, never skip it.
    Unreadable {
        /// Why it cannot be read.
        reasons: Vec<Reason>,
    },
    /// No start is allowed.
    Refuse {
        /// How the run ends.
        outcome: RunOutcome,
        reasons: Vec<Reason>,
    },
}

/// The last planned step: the configuration's, else what the trainer printed. For a checkpoint that is overwritten, the
/// smaller of both, because there a number of steps is a limit and the data may end earlier.
#[must_use]
pub fn last_step(s: &RunState, spec: &RunSpec) -> Option<Step> {
    match (spec.last_step, s.progress.total) {
        (Some(said), Some(printed)) if spec.saves.is_in_place() => Some(said.min(printed)),
        (said, printed) => said.or(printed),
    }
}

/// The outcome that a start repeats without acting, because it needs an operator; `None`: the start acts. A start with
/// other options acts again, because it may be allowed what the last one was refused.
#[must_use]
pub fn answered_again<'a>(s: &'a RunState, spec: &RunSpec) -> Option<&'a RunOutcome> {
    let p = &spec.policy;
    let asks_anew = s.requests.roll_back.is_some()
        || p.start.from.is_some()
        || p.start.fresh
        || p.start.allow_fresh
        || p.elastic
        || spec.config_hash != s.context.config;
    let unfit = s.why.iter().any(|r| r.code == "does_not_fit");
    let ended = s.needs_a_person().filter(|_| s.mode == RunMode::Finished)?;
    (!asks_anew || !unfit && !matches!(ended, RunOutcome::NoProof { .. })).then_some(ended)
}

/// How deep a scan must prove before a launch. Every byte is read after a reboot or a full disk, which may have torn
/// the newest step, and for a step that this run did not write.
#[must_use]
pub fn needed_depth(s: &RunState, spec: &RunSpec) -> Depth {
    let candidate = || {
        let wanted = wanted_step(s, spec);
        let may_be = |c: &&CheckpointSummary| match wanted {
            Some(step) => c.step == step,
            None if wanted_path(s, spec) => is_named(spec, c),
            None => !is_elsewhere(&c.id) && !c.husk && !is_distrusted(s, spec, &c.id),
        };
        let steps = s.disk.scan.iter().flat_map(|scan| &scan.steps);
        steps
            .filter(may_be)
            .find(|c| c.verdict == Verdict::Whole || c.part.is_some())
    };
    if spec.policy.proof.depth_is_fixed {
        return spec.policy.proof.depth;
    }
    if s.disk.doubt || s.requests.care.is_none() {
        return Depth::Full;
    }
    candidate().map_or(spec.policy.proof.depth, |c| depth_of(s, spec, c))
}

/// How deep a step must be proven before a launch from it.
#[must_use]
pub fn depth_of(s: &RunState, spec: &RunSpec, c: &CheckpointSummary) -> Depth {
    match s.origin_of(c) {
        _ if spec.policy.proof.depth_is_fixed => spec.policy.proof.depth,
        StepOrigin::Own if !s.disk.doubt => spec.policy.proof.depth,
        StepOrigin::Own | StepOrigin::Changed | StepOrigin::Unknown => Depth::Full,
    }
}

/// How many whole steps a scan must prove: all if the operator named one, which may be old.
#[must_use]
pub fn scan_width(s: &RunState, spec: &RunSpec) -> u32 {
    if wanted_step(s, spec).is_some() || wanted_path(s, spec) {
        return u32::MAX;
    }
    let kept = match spec.saves.is_in_place() {
        true => spec.policy.protect.keep,
        false => spec
            .keep
            .map_or(0, |k| k.saturating_add(spec.policy.retention.keep_raise)),
    };
    let distrusted = u32::try_from(s.disk.distrusted.len()).unwrap_or(u32::MAX);
    kept.saturating_add(2).saturating_add(distrusted)
}

/// The step of `--from N` until the launch from there, else the step that an operator rolled back to until the next
/// launch.
fn wanted_step(s: &RunState, spec: &RunSpec) -> Option<Step> {
    let done = s.requests.care.as_ref().is_some_and(|c| c.term == s.term) && !s.care_is_unfinished();
    let sent_back = s.requests.roll_back.as_ref().filter(|_| !spec.policy.start.fresh);
    spec.policy.start.from.filter(|_| !done).or(sent_back.map(|r| r.to))
}

fn wish_words(s: &RunState, spec: &RunSpec) -> String {
    let roll_back = s.requests.roll_back.as_ref();
    match roll_back.filter(|_| spec.policy.start.from.is_none()) {
        Some(r) => format!("rollback by {}", r.by),
        None => "--from".to_owned(),
    }
}

/// Whether `resume_path` still counts, that is until we have proven a step of our own.
fn wanted_path(s: &RunState, spec: &RunSpec) -> bool {
    let ResumeIntent::Path { step, .. } = &spec.resume else {
        return false;
    };
    s.requests
        .care
        .as_ref()
        .is_none_or(|c| c.intent != spec.resume || !s.requests.wish_done && c.step == Some(*step))
}

/// Returns true if `resume_path` names this step.
fn is_named(spec: &RunSpec, c: &CheckpointSummary) -> bool {
    let ResumeIntent::Path { path, .. } = &spec.resume else {
        return false;
    };
    match &spec.root {
        Some(root) => root.join(&c.id.0) == *path,
        None => c.id.0 == *path,
    }
}

/// Whether `--fresh` or `disable` still counts, that is until the fresh launch.
fn wanted_fresh(s: &RunState, spec: &RunSpec) -> bool {
    let disabled = spec.resume == ResumeIntent::Disabled;
    let open = s.care_is_unfinished();
    match &s.requests.care {
        None => spec.policy.start.fresh || disabled,
        Some(c) => {
            spec.policy.start.fresh && (c.term != s.term || open) || disabled && (c.intent != spec.resume || open)
        }
    }
}

/// Chooses where to start.
#[must_use]
pub fn choose(s: &RunState, spec: &RunSpec, scan: &ScanReport) -> ResumeChoice {
    let p = &spec.policy;
    let new = s.requests.care.is_none();
    if spec.root.is_none() || !p.start.recovery {
        let reasons = vec![Reason::new(
            "as_written",
            format!("{}: it starts as it was written", as_written(spec)),
        )];
        return start(StartPoint::AsIs, Vec::new(), Vec::new(), new, reasons);
    }
    if let Some(why) = &scan.unreadable {
        let text = format!("what could be resumed from cannot be read: {why}");
        return ResumeChoice::Unreadable {
            reasons: vec![Reason::new("root_unreadable", text)],
        };
    }
    if !p.proof.is_on {
        return unproven(spec, scan, new);
    }
    if let Some(refusal) = linked(spec, scan) {
        return refusal;
    }
    let from = wanted_step(s, spec);
    if from.is_none() {
        if wanted_fresh(s, spec) {
            return fresh_by_wish(s, spec, scan);
        }
        if let ResumeIntent::Path { path, .. } = &spec.resume
            && wanted_path(s, spec)
        {
            return from_path(s, spec, scan, path);
        }
        if let Some(stranger) = stranger(s, scan) {
            return stranger;
        }
        if s.care_is_unfinished() && s.requests.care.as_ref().is_some_and(|c| c.step.is_none() && c.cleared) {
            return go_on_clearing(s, scan);
        }
    }
    match newest(s, spec, scan, from) {
        Newest::Found(c, mut reasons) => {
            reasons.extend(vanished(s, spec, scan));
            from_newest(s, spec, scan, c, from.is_some(), reasons)
        }
        Newest::Unreadable(reasons) => ResumeChoice::Unreadable { reasons },
        Newest::Refused(why, reasons) => {
            let is_torn = reasons.first().is_some_and(|r| r.code == ASKED_STEP_NOT_WHOLE);
            let refused = ResumeChoice::Refuse {
                outcome: RunOutcome::NoProof { why },
                reasons,
            };
            if is_torn {
                or_degraded(s, spec, scan, from, refused)
            } else {
                refused
            }
        }
        Newest::None(reasons) => or_degraded(s, spec, scan, None, from_nothing(s, spec, scan, reasons)),
    }
}

/// Why we do not resume the run.
fn as_written(spec: &RunSpec) -> &'static str {
    let p = &spec.policy;
    match (p.start.recovery, p.start.off_by_command) {
        (true, _) => "nothing is known of this command's checkpoints",
        (false, true) if spec.declared.is_some() => "[resume] in its declaration has no words for a step",
        (false, true) => "the command switches recovery off",
        (false, false) => "recovery is off (--no-recovery, supervisor.recovery)",
    }
}

/// Reports that the newest proven step of this run has disappeared without being moved aside by us.
fn vanished(s: &RunState, spec: &RunSpec, scan: &ScanReport) -> Option<Reason> {
    // The only checkpoint is overwritten by every save.
    let mark = s.progress.mark.filter(|_| spec.saves.is_steps())?;
    let last = s.attempt.as_ref()?;
    let aside = last.order.from.step() < mark && last.launch.mark_before >= Some(mark);
    let there = scan.steps.iter().any(|c| c.step == mark);
    (!aside && !there).then(|| {
        let text = format!("step {mark} was proven in this run but is missing now: deleted or moved");
        Reason::new("vanished", text)
    })
}

fn from_newest(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    asked: bool,
    mut reasons: Vec<Reason>,
) -> ResumeChoice {
    if !asked
        && let Some(refusal) = went_back(s, spec, scan)
            .or_else(|| rolled_back(s, spec, scan, c))
            .or_else(|| set_back(s, spec, scan, c))
    {
        return refusal;
    }
    reasons.extend(beyond(s, spec, c).filter(|_| !asked));
    if let Some(last) = last_step(s, spec)
        && c.step >= last
    {
        let text = format!("step {} is the last planned one ({last})", c.step);
        reasons.push(Reason::new("last_step", text));
        let Some(undone) = undone_tail(s, spec) else {
            return ResumeChoice::Finished { step: c.step, reasons };
        };
        reasons.push(undone);
    }
    if let Some(reason) = ended_before(s, spec, c).filter(|_| !asked) {
        reasons.push(reason);
        return ResumeChoice::Finished { step: c.step, reasons };
    }
    if let Some(older) = scan.steps.iter().find(|x| is_older(&x.id) && x.id != c.id) {
        let text = format!(
            "{} was written in place by an older build: the trainer loads what LATEST names, and not that",
            older.id
        );
        reasons.push(Reason::new("older_layout", text));
    }
    let foreign = s.requests.care.is_none() && !asked;
    from_step(s, spec, scan, c, s.requests.care.is_none() || asked, foreign, reasons)
}

fn start(
    from: StartPoint,
    edits: Vec<DiskEdit>,
    lost: Vec<StateKind>,
    care: bool,
    reasons: Vec<Reason>,
) -> ResumeChoice {
    ResumeChoice::Start {
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
    Refused(String, Vec<Reason>),
    None(Vec<Reason>),
}

/// Walks from the newest step down and gives a reason for every step it passes over. A step that the operator named is
/// taken or refused, never replaced by an older one.
fn newest<'a>(s: &RunState, spec: &RunSpec, scan: &'a ScanReport, from: Option<Step>) -> Newest<'a> {
    let mut reasons = Vec::new();
    let candidates = scan.steps.iter().filter(|c| !c.husk && !is_elsewhere(&c.id));
    for c in candidates.filter(|c| from.is_none_or(|f| c.step == f)) {
        if from.is_none() && is_distrusted(s, spec, &c.id) {
            let text = format!("{} failed before: passed over", c.id);
            reasons.push(Reason::new("distrusted", text));
            continue;
        }
        if from.is_none() && is_overrun(s, spec, c.step) {
            let text = format!("{} was saved beyond the last planned step: passed over", c.id);
            reasons.push(Reason::new("overrun", text));
            continue;
        }
        // Whatever it contains, an operator has to vouch for it. Nobody else can hold up the run with it.
        if from.is_none() && c.other_owner.is_some() {
            reasons.push(refusal_reason("another_owner", c));
            continue;
        }
        let depth = depth_of(s, spec, c);
        match c.verdict {
            Verdict::Whole if c.is_proven(depth) => {
                let better = from.is_none().then(|| exact_below(s, spec, scan, c)).flatten();
                let Some(better) = better else {
                    reasons.extend(judged_anew(s, c));
                    reasons.extend(kept_interval(spec, c));
                    reasons.insert(0, found(c, from.map(|_| wish_words(s, spec))));
                    return Newest::Found(c, reasons);
                };
                let text = format!("{} lacks state that {} holds: its save was cut short", c.id, better.id);
                reasons.push(Reason::new("cut_short", text));
                reasons.insert(0, found(better, None));
                return Newest::Found(better, reasons);
            }
            Verdict::Whole => {
                let text = format!("{} is not proven yet (needed: {})", c.id, depth.word());
                reasons.insert(0, Reason::new("not_proven_yet", text));
                return Newest::Unreadable(reasons);
            }
            Verdict::Unreadable => {
                reasons.insert(0, refusal_reason("unreadable", c));
                return Newest::Unreadable(reasons);
            }
            // It is complete and nothing is torn: somebody put code into it, or we misjudge it. Falling back would hide
            // either.
            Verdict::Unsafe if from.is_none() => {
                let why = unsafe_step(s, c);
                reasons.insert(0, Reason::new("unsafe", why.clone()).with(evidence_of(c)));
                return Newest::Refused(why, reasons);
            }
            // A link is not followed, but not passed over either: it may point to the newest step.
            Verdict::Unknown if from.is_none() && c.findings.iter().any(|f| f.code == "symlink") => {
                let why = link_words(c);
                reasons.insert(0, Reason::new("symlink", why.clone()));
                return Newest::Refused(why, reasons);
            }
            _ => reasons.push(refusal_reason("not_whole", c)),
        }
    }
    let Some(step) = from else {
        return Newest::None(reasons);
    };
    let wish = wish_words(s, spec);
    let why = match reasons.first() {
        Some(r) => format!("step {step} was asked for ({wish}), but {}", r.text),
        None => format!("step {step} was asked for ({wish}), but there is none"),
    };
    reasons.insert(0, Reason::new(ASKED_STEP_NOT_WHOLE, why.clone()));
    Newest::Refused(why, reasons)
}

/// If a step of this run lost some state while an older one has all of it, the save of the newer one was interrupted,
/// and resuming from it would lose state needlessly. This does not apply to the last planned step.
fn exact_below<'a>(
    s: &RunState,
    spec: &RunSpec,
    scan: &'a ScanReport,
    c: &CheckpointSummary,
) -> Option<&'a CheckpointSummary> {
    // A step that does not fit the run was not interrupted.
    if matches!(c.resume, Resumability::Exact | Resumability::Not { .. })
        || s.requests.care.is_none()
        || spec.saves.is_in_place()
        || last_step(s, spec).is_some_and(|last| c.step >= last)
    {
        return None;
    }
    scan.steps.iter().find(|x| {
        x.step < c.step
            && x.resume == Resumability::Exact
            && x.verdict == Verdict::Whole
            && x.is_proven(depth_of(s, spec, x))
            && !is_elsewhere(&x.id)
            && !s.disk.distrusted.contains(&x.id)
    })
}

/// A step outside the root, which is scanned only because the user named it.
fn is_elsewhere(id: &CkptId) -> bool {
    id.0.is_absolute()
}

fn found(c: &CheckpointSummary, asked: Option<String>) -> Reason {
    let known = match c.is_reported_only() {
        true => "reported".to_owned(),
        false => format!("proven: {}", c.proven.map_or("not", |d| d.word())),
    };
    if let Some(wish) = asked {
        let text = format!("{} was asked for ({wish}) and is whole ({known})", c.id);
        return Reason::new("asked_for", text);
    }
    let text = format!("{} is the newest whole step ({known})", c.id);
    Reason::new("newest_whole", text)
}

/// Reports that a step of this run was changed since and is judged like a foreign one.
fn judged_anew(s: &RunState, c: &CheckpointSummary) -> Option<Reason> {
    let text = format!(
        "{} is not as this run left it (copied, restored or replaced): every byte was read, and what loading it would run was looked for",
        c.id
    );
    (s.origin_of(c) == StepOrigin::Changed).then(|| Reason::new("judged_anew", text))
}

fn refusal_reason(code: &'static str, c: &CheckpointSummary) -> Reason {
    match c.why() {
        Some(f) => Reason::new(code, format!("{} is {}: {f}", c.id, c.verdict)).with(evidence_of(c)),
        None => Reason::new(code, format!("{} is {}", c.id, c.verdict)),
    }
}

fn evidence_of(c: &CheckpointSummary) -> Evidence {
    let deciding = c.why();
    let file = deciding.and_then(|f| f.file.as_ref());
    Evidence::File {
        path: file.map_or_else(|| c.id.to_string(), ToString::to_string),
        finding: deciding.map_or_else(|| c.verdict.to_string(), |f| f.detail.clone()),
    }
}
