//! Questions that only an operator can answer: another writer; a tracker that was set back; a checkpoint that would
//! import or run something unknown.

use super::{ResumeChoice, is_elsewhere};
use crate::checkpoint::kind::{is_kept, is_live, is_own, is_same_save, whole_live};
use crate::checkpoint::{CheckpointSummary, CkptId, Verdict};
use crate::event::{ScanReport, TrackerState};
use crate::journal::reason::{Evidence, Reason};
use crate::journal::record::{RunOutcome, UNFAMILIAR_GLOBALS};
use crate::resume::generations::{UnexpectedSet, is_distrusted, strange};
use crate::spec::RunSpec;
use crate::state::{RunState, StepOrigin};

/// Refuses a link in place of the only checkpoint or one of its directories: nothing can be moved aside or put back
/// there, whatever was requested, and the trainer would write through it.
pub(super) fn linked(spec: &RunSpec, scan: &ScanReport) -> Option<ResumeChoice> {
    let live = scan.steps.iter().find(|c| spec.saves.is_in_place() && is_live(&c.id))?;
    let found = live.findings.iter().find(|f| f.code == "linked")?;
    let path = found.file.as_ref()?;
    let why = format!(
        "{path} is a symbolic link: the only checkpoint must be a directory of its own, nothing was moved or started. Put the directory itself there, or remove the link (what it leads to stays): the newest copy is put back then"
    );
    Some(ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { why: why.clone() },
        reasons: vec![Reason::new("linked", why)],
    })
}

/// Says that a step, or a file in it, is a link.
pub(super) fn link_words(c: &CheckpointSummary) -> String {
    let file = c
        .findings
        .iter()
        .find(|f| f.code == "symlink")
        .and_then(|f| f.file.as_ref());
    let (what, instead) = match file {
        Some(file) => (format!("{file} in {} is a symbolic link or special file", c.id), "file"),
        None => (format!("{} is a symbolic link", c.id), "step"),
    };
    format!("{what}: put the {instead} itself there, or say which step is meant (--from N)")
}

/// Refuses steps that appeared while no attempt of this run was running.
pub(super) fn stranger(s: &RunState, scan: &ScanReport) -> Option<ResumeChoice> {
    let settled = s.disk.settled.as_ref()?;
    // What we put back ourselves is nobody else's.
    if s.attempt.is_none() || s.requests.care.is_none() || s.disk.arranged > 0 {
        return None;
    }
    let c = scan.steps.iter().find(|c| {
        // Which save is in one of the trainer's own directories is known once it is proven.
        let is_it = |s: &CkptId| is_own(s) && is_own(&c.id) && before_dot(s) == before_dot(&c.id);
        !settled.iter().any(|s| *s == c.id || is_same_save(s, &c.id) || is_it(s))
            && s.progress.mark.is_none_or(|m| c.step > m)
            && !is_elsewhere(&c.id)
            && c.other_owner.is_none()
    })?;
    let what = format!(
        "{} appeared while no worker of this run lived: it was copied in, or somebody else writes here",
        c.id
    );
    Some(ResumeChoice::Refuse {
        outcome: RunOutcome::Stranger {
            what: what.clone(),
            step: Some(c.step),
        },
        reasons: vec![Reason::new("stranger", what)],
    })
}

fn before_dot(id: &CkptId) -> Option<&str> {
    id.0.as_str().split('.').next()
}

/// The tracker names a step more than one save below the newest whole step.
pub(super) fn rolled_back(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
) -> Option<ResumeChoice> {
    let TrackerState::Step(named) = scan.tracker else {
        return None;
    };
    // A live set and its copies name their own steps.
    if spec.saves.is_in_place() && (is_live(&c.id) || is_kept(&c.id)) {
        return None;
    }
    let one_save = spec.cadence.every.unwrap_or(u64::MAX);
    if named.0.saturating_add(one_save) >= c.step.0 {
        return None;
    }
    // The trainer skips the tracker only if a save is killed, so by one save at most.
    let there = scan
        .steps
        .iter()
        .any(|x| x.step == named && !x.husk && x.verdict == Verdict::Whole)
        || scan.steps.iter().any(|x| x.step == named && x.proven.is_none());
    if !there && s.requests.care.is_some() {
        return None;
    }
    let why = format!(
        "the tracker names step {named}, but {} is whole: a person may have rolled back. Say which one is meant: --from {named} or --from {}",
        c.id, c.step
    );
    Some(ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { why: why.clone() },
        reasons: vec![Reason::new("rolled_back", why)],
    })
}

/// The live set is whole and older than the newest generation, and we did not put it there.
pub(super) fn set_back(s: &RunState, spec: &RunSpec, scan: &ScanReport, c: &CheckpointSummary) -> Option<ResumeChoice> {
    let live = scan.steps.iter().find(|x| is_live(&x.id))?;
    let older = spec.saves.is_in_place() && is_kept(&c.id) && live.verdict == Verdict::Whole && live.step < c.step;
    let ours = s
        .attempt
        .as_ref()
        .is_some_and(|a| a.order.from.step() <= live.step && a.launch.mark_before >= Some(c.step));
    // Nor right after we put it there.
    if !older || ours || s.disk.arranged > 0 || is_distrusted(s, spec, &live.id) {
        return None;
    }
    let why = format!(
        "the live set holds step {}, and {} was kept of a later one: it was put back by hand, or the trainer was started from scratch without us. Say which one is meant: --from {} or --from {}",
        live.step, c.id, live.step, c.step
    );
    Some(ResumeChoice::Refuse {
        outcome: RunOutcome::NoProof { why: why.clone() },
        reasons: vec![Reason::new("set_back", why)],
    })
}

/// The live set is whole but older than what the last attempt left, or another save of that step, and not one of our
/// copies.
pub(super) fn went_back(s: &RunState, spec: &RunSpec, scan: &ScanReport) -> Option<ResumeChoice> {
    let live = whole_live(&scan.steps).filter(|_| spec.saves.is_in_place())?;
    let a = s.attempt.as_ref().filter(|_| !s.disk.arranging)?;
    let (step, ckpt) = a.training.saved.as_ref()?;
    let strange = strange(live, *step, ckpt)?;
    let kept = |c: &CheckpointSummary| is_kept(&c.id) && is_same_save(&c.id, &live.id);
    if scan.steps.iter().any(kept) {
        return None;
    }
    let what = match strange {
        UnexpectedSet::Another => format!("holds another save of step {step} than attempt {} wrote", a.no),
        UnexpectedSet::Older => format!(
            "holds step {}, and attempt {} had saved step {step} there",
            live.step, a.no
        ),
    };
    let kept = scan
        .steps
        .iter()
        .find(|c| is_kept(&c.id) && c.verdict == Verdict::Whole);
    let ours = match kept {
        Some(c) if c.step == live.step => {
            "; to go on from this run's own save of it, move recover_info away first".to_owned()
        }
        Some(c) => format!("; to go on from the newest copy of this run's own: --from {}", c.step),
        None => String::new(),
    };
    let what =
        format!("the live set {what}: another trainer writes here, or an older state was put back by hand{ours}");
    Some(ResumeChoice::Refuse {
        outcome: RunOutcome::Stranger {
            what: what.clone(),
            step: Some(live.step),
        },
        reasons: vec![Reason::new("went_back", what)],
    })
}

/// Names listed in a question; the rest is counted.
const NAMES: usize = 4;

/// Why a step that is unsafe to load stops the run.
pub(super) fn unsafe_step(s: &RunState, c: &CheckpointSummary) -> String {
    let found = c.why().map_or_else(String::new, |f| format!(": {f}"));
    let whose = match s.origin_of(c) {
        StepOrigin::Own => "this run wrote or accepted it as it is",
        StepOrigin::Changed => "this run wrote it, so somebody changed it since",
        StepOrigin::Unknown => "it is nothing that this run wrote",
    };
    format!(
        "{} is unsafe{found}; loading it runs code, and {whose}. Nothing was started: look at the file, then go on from an older step (--from N), from scratch (--fresh), or set `proof.trust_unsafe: true` where you know the code",
        c.id
    )
}

/// A step that we did not write and whose files import names that neither torch nor an operator vouches for: asked
/// once, before the run is adopted with it. A setting to copy is only suggested for the user's own modules: a library's
/// name may be harmless or able to run anything, and nobody reading it here can know.
pub(super) fn unfamiliar(s: &RunState, spec: &RunSpec, c: &CheckpointSummary) -> Option<(RunOutcome, Reason)> {
    let first = c.unfamiliar.first().filter(|_| s.origin_of(c) != StepOrigin::Own)?;
    let names = listed(c.unfamiliar.iter());
    let told = c
        .findings
        .iter()
        .find(|f| f.code == "unfamiliar_global" && f.file.is_some());
    let place = told.and_then(|f| f.file.as_ref());
    let file = place.map_or_else(|| c.id.to_string(), |file| format!("{}/{file}", c.id));
    let is_own = |name: &&String| {
        let top = name.split('.').next();
        top.is_some_and(|top| c.own_modules.iter().any(|own| own == top))
    };
    let others: Vec<&String> = c.unfamiliar.iter().filter(|name| !is_own(name)).collect();
    let else_ = "take another step (--from N) or start from scratch (--fresh)";
    let way = if others.is_empty() {
        let list = c
            .unfamiliar
            .iter()
            .map(|n| format!("\"{n}\""))
            .collect::<Vec<_>>()
            .join(", ");
        format!(
            "If that is your own code, say so once: `proof: {{trust_globals: [{list}]}}` in the supervisor's settings, or SUPERVISE_PROOF__TRUST_GLOBALS='[{list}]'; else {else_}"
        )
    } else {
        let look = match &spec.root {
            Some(root) if !spec.saves.is_in_place() && !is_elsewhere(&c.id) => {
                format!("`supervise verify '{root}/{}'`", c.id)
            }
            _ => format!("`supervise verify '{}'`", c.id),
        };
        format!(
            "No module of your own is meant by {}: neither the working directory nor that of the launch script holds one of that name, and loading the file runs whatever it leads to. Look at the file ({look}), and find out who wrote it; or {else_}",
            listed(others.into_iter())
        )
    };
    let why = format!("{file} imports {names} when it is loaded, and no attempt of this run wrote it. {way}");
    let evidence = Evidence::File {
        path: file,
        finding: told.map_or_else(|| format!("it names {first}"), |f| f.detail.clone()),
    };
    let reason = Reason::new(UNFAMILIAR_GLOBALS, why.clone()).with(evidence);
    Some((RunOutcome::NoProof { why }, reason))
}

/// The first names, and how many more there are.
fn listed<'n>(mut all: impl ExactSizeIterator<Item = &'n String>) -> String {
    let more = all.len().saturating_sub(NAMES);
    let shown: Vec<&str> = all.by_ref().take(NAMES).map(String::as_str).collect();
    let mut out = shown.join(", ");
    if more > 0 {
        out.push_str(&format!(" and {more} more"));
    }
    out
}
