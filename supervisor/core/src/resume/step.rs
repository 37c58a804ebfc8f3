//! Resuming from one step: what is loaded, what is lost, and which disk edits come first.

use super::needs_operator::unfamiliar;
use super::{ResumeChoice, is_elsewhere, refusal_reason, start};
use crate::checkpoint::kind::is_live;
use crate::checkpoint::{CheckpointSummary, PinsHash, StateKind, Verdict};
use crate::event::{ScanReport, TrackerState};
use crate::journal::reason::Reason;
use crate::journal::record::{DiskEdit, RunOutcome, StartPoint};
use crate::resume::generations::arranged;
use crate::spec::RunSpec;
use crate::spec::policy::DegradedPolicy;
use crate::state::RunState;
use std::collections::BTreeMap;

/// Contents of a step that are loaded.
pub(super) struct LoadedParts<'a> {
    pub(super) holds: &'a BTreeMap<String, Vec<String>>,
    /// Contents of the roles that `holds` does not list.
    pub(super) every: &'a [String],
    /// State that is lost because the step does not contain it.
    pub(super) lost: Vec<StateKind>,
    /// Pins of the files at the launch.
    pub(super) pins: PinsHash,
    /// Files of the step itself that are moved aside.
    pub(super) put_away: Vec<DiskEdit>,
}

/// Resumes from this step, loading these contents.
#[expect(
    clippy::too_many_arguments,
    reason = "one choice, all of whose parts come from the caller"
)]
pub(super) fn from_loaded(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    loaded: LoadedParts<'_>,
    care: bool,
    foreign: bool,
    mut reasons: Vec<Reason>,
) -> ResumeChoice {
    let in_place = |x: &CheckpointSummary| is_live(&x.id) && !is_live(&c.id);
    let goes = |x: &&CheckpointSummary| (x.step > c.step || in_place(x)) && !is_elsewhere(&x.id);
    let above = scan.steps.iter().filter(goes);
    if let Some(x) = above.into_iter().find(|x| x.verdict == Verdict::Unreadable) {
        // It would have to be moved aside, and nothing is known about it.
        reasons.insert(0, refusal_reason("unreadable", x));
        return ResumeChoice::Unreadable { reasons };
    }
    if let Some((outcome, reason)) = unfamiliar(s, spec, c) {
        reasons.insert(0, reason);
        return ResumeChoice::Refuse { outcome, reasons };
    }
    if let Some(mark) = s.progress.mark.filter(|m| c.step < *m && !care)
        && s.budget.step_backs > spec.policy.failure.step_backs
    {
        let why = format!(
            "stepping back from {mark} to {} would be step-back {} (limit {})",
            c.step, s.budget.step_backs, spec.policy.failure.step_backs
        );
        reasons.insert(0, Reason::new("too_many_step_backs", why.clone()));
        return ResumeChoice::Refuse {
            outcome: RunOutcome::GaveUp { why },
            reasons,
        };
    }
    let (load, roles) = load_contents(s, spec, &loaded);
    let left_out = left_out(spec, &load, &roles, &loaded);
    let mut lost = loaded.lost;
    let from = StartPoint::Step {
        ckpt: c.id.clone(),
        step: c.step,
        pins: loaded.pins,
        load,
        roles,
    };
    let mut edits = match spec.saves.is_in_place() {
        true => arranged(s, &scan.steps, c, foreign),
        false => move_aside(s, scan, Some(c), foreign, &reasons),
    };
    edits.extend(loaded.put_away);
    let is_right = matches!(&scan.tracker, TrackerState::Unused) || scan.tracker == TrackerState::Step(c.step);
    if spec.saves.is_steps() && !is_right && !is_elsewhere(&c.id) {
        edits.push(DiskEdit::WriteTracker { step: c.step });
    }
    if s.derivation(c).is_some() {
        reasons.push(Reason::new("derived", derived_words(c)));
        lost.push(StateKind::Rng);
    }
    if !left_out.is_empty() {
        let text = format!(
            "load_contents leaves out, this once: {}",
            named(&unique(left_out.clone()))
        );
        reasons.push(Reason::new("load_contents", text));
        lost.extend(left_out);
    }
    let lost = unique(lost);
    if !lost.is_empty() {
        let text = format!("lost at this resume: {}", named(&lost));
        reasons.push(Reason::new("degraded", text));
    }
    start(from, edits, lost, care, reasons)
}

pub(super) fn allowed(
    spec: &RunSpec,
    c: &CheckpointSummary,
    lost: &[StateKind],
) -> Result<Vec<StateKind>, (RunOutcome, Reason)> {
    if spec.policy.degraded.allows(lost) {
        return Ok(lost.to_vec());
    }
    let why = format!("{} can only be resumed without its {}", c.id, named(lost));
    let asks = match spec.policy.degraded {
        DegradedPolicy::Ask => "you are asked first",
        _ => "the settings do not allow that",
    };
    let agree = DegradedPolicy::that_allows(lost).map_or_else(String::new, |word| {
        format!(": to agree, say `run --set supervisor.degraded_resume={word}`")
    });
    let text = format!("{why}; {asks} (degraded_resume){agree}");
    Err((
        RunOutcome::NoProof { why: text.clone() },
        Reason::new("degraded_not_allowed", text),
    ))
}

/// Contents that each role loads: what the step contains, limited by the user's own choice for the first resume. The
/// first result is what every role loads, the second lists all roles if they differ.
fn load_contents(
    s: &RunState,
    spec: &RunSpec,
    loaded: &LoadedParts<'_>,
) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let all: BTreeMap<&str, Vec<String>> = spec
        .roles
        .iter()
        .map(|role| {
            let wish = Some(&role.load_contents).filter(|_| role.load_wish && !s.requests.wish_done);
            (role.name.as_str(), narrowed(held(loaded, &role.name), wish))
        })
        .collect();
    let first = all
        .values()
        .next()
        .cloned()
        .unwrap_or_else(|| narrowed(loaded.every, None));
    if all.values().all(|list| *list == first) {
        return (first, BTreeMap::new());
    }
    let everywhere = |c: &String| all.values().all(|list| list.contains(c));
    let common = first.into_iter().filter(everywhere).collect();
    (
        common,
        all.into_iter().map(|(name, list)| (name.to_owned(), list)).collect(),
    )
}

fn held<'a>(loaded: &'a LoadedParts<'_>, role: &str) -> &'a [String] {
    loaded.holds.get(role).map_or(loaded.every, Vec::as_slice)
}

/// Exported weights cannot be named at a resume.
fn narrowed(held: &[String], wish: Option<&Vec<String>>) -> Vec<String> {
    held.iter()
        .filter(|c| *c != "hf_model" && wish.is_none_or(|w| w.contains(c)))
        .cloned()
        .collect()
}

/// State that is lost because the user asked not to load it.
fn left_out(
    spec: &RunSpec,
    load: &[String],
    roles: &BTreeMap<String, Vec<String>>,
    loaded: &LoadedParts<'_>,
) -> Vec<StateKind> {
    use StateKind::{LrSchedule, Optimizer, Rng};
    let mut out = Vec::new();
    for role in &spec.roles {
        let list = roles.get(&role.name).map_or(load, Vec::as_slice);
        for content in held(loaded, &role.name).iter().filter(|c| !list.contains(c)) {
            // Megatron saves the schedule with the optimizer, FSDP with the rest.
            out.extend_from_slice(match (content.as_str(), role.megatron.is_some()) {
                ("optimizer", false) => &[Optimizer],
                ("optimizer", true) => &[Optimizer, LrSchedule],
                ("extra", false) => &[LrSchedule, Rng],
                ("extra", true) => &[Rng],
                _ => &[],
            });
        }
    }
    out
}

/// Moves every step above the start aside, because the trainer would write into it and its markers survive a re-save.
/// The same goes for a second name of the start step, which the trainer could mistake for it.
pub(super) fn move_aside(
    s: &RunState,
    scan: &ScanReport,
    start: Option<&CheckpointSummary>,
    foreign: bool,
    reasons: &[Reason],
) -> Vec<DiskEdit> {
    let goes = |c: &&CheckpointSummary| {
        let twin = |start: &CheckpointSummary| c.step == start.step && c.id != start.id && !is_elsewhere(&start.id);
        !is_elsewhere(&c.id) && !s.is_immovable(&c.id) && start.is_none_or(|start| c.step > start.step || twin(start))
    };
    let why = |c: &CheckpointSummary| match start {
        Some(start) if c.step == start.step => format!("another name for step {}", c.step),
        Some(start) => format!("above the resume point {}", start.step),
        None => reasons
            .first()
            .map_or_else(|| format!("fresh start, {}", c.verdict), |r| r.text.clone()),
    };
    scan.steps
        .iter()
        .filter(goes)
        .map(|c| DiskEdit::MoveAside {
            from: c.id.clone(),
            whole: c.verdict == Verdict::Whole,
            foreign,
            others: c.other_owner.is_some(),
            why: why(c),
        })
        .collect()
}

fn unique(mut kinds: Vec<StateKind>) -> Vec<StateKind> {
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

pub(super) fn named(lost: &[StateKind]) -> String {
    let words: Vec<&str> = lost.iter().map(|k| k.words()).collect();
    words.join(", ")
}

fn derived_words(c: &CheckpointSummary) -> String {
    format!(
        "{} was cut anew from the step of that number: its ranks go on with the random numbers of those that saved it, as far as these reach",
        c.id
    )
}
