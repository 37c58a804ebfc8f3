//! Notes for the operator before a launch. What depends only on the configuration is reported when it is read.

use crate::adapter::TrainerFacts;
use crate::launch::RayMode;
use crate::launch::ray;
use supervise_core::checkpoint::{Finding, StateKind};
use supervise_core::spec::RunSpec;

pub(super) fn preflight(spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
    let mut out: Vec<Finding> = ray::findings(&facts.ray).into_iter().collect();
    out.extend((facts.ray == RayMode::Submitted).then(submitted));
    if !spec.policy.start.recovery {
        return out;
    }
    out.extend(cadence(spec));
    out.extend(restored(spec));
    out.push(generations(spec));
    out
}

/// The job's driver process runs on the cluster, in its own environment.
fn submitted() -> Finding {
    Finding::note(
        "ray_job",
        "Ray: each attempt is a job of its own on the cluster, and is stopped by its name; the job has the cluster's environment: the checkpoint root, which has the user's name in it, has to be the same there (`--runtime-env-json '{\"env_vars\": {\"USER\": …}}'`)",
    )
}

fn cadence(spec: &RunSpec) -> Option<Finding> {
    let n = spec.cadence.every?;
    let last = spec.last_step.map(|s| format!(" of {s}")).unwrap_or_default();
    let text = match n {
        1 => format!("every step{last} is saved: a crash costs the step it happens in"),
        n => format!("every {n} steps{last} are saved: a crash costs up to {n} steps"),
    };
    let misses = spec.last_step.filter(|s| s.0 % n != 0 && !spec.cadence.at_end);
    Some(match misses {
        Some(last) => Finding::warning(
            "cadence",
            format!("{text}; the last one, {last}, is not saved to recover from"),
        ),
        None => Finding::note("cadence", text),
    })
}

fn restored(spec: &RunSpec) -> Vec<Finding> {
    let mut out = Vec::new();
    let optimizer = |contents: &[String]| contents.iter().any(|c| c == "optimizer");
    for role in spec.roles.iter().filter(|r| r.name != "critic") {
        let mut back = vec!["weights"];
        if optimizer(&role.load_contents) {
            back.push("optimizer");
        }
        match role.megatron {
            Some(m) if m.schedule => back.extend(["learning-rate schedule", "random numbers"]),
            Some(_) => back.push("random numbers"),
            None => {}
        }
        let text = format!(
            "a resume brings back {} of `{}`, the step and the place in the data",
            back.join(", "),
            role.name
        );
        out.push(Finding::note("restored", text));
    }
    let never: Vec<&str> = spec.not_restored.iter().copied().map(StateKind::words).collect();
    if !never.is_empty() {
        let text = format!("never restored by this trainer: {}", never.join(", "));
        out.push(Finding::note("not_restored", text));
    }
    out
}

fn generations(spec: &RunSpec) -> Finding {
    let p = &spec.policy.protect;
    if !p.enabled || !spec.policy.proof.is_on {
        return Finding::warning(
            "unprotected",
            "AReaL keeps one checkpoint and overwrites it in place: a save that is killed destroys it, and no copy is kept (protect.enabled, proof.enabled)",
        );
    }
    let keep = p.keep.max(2);
    let store = spec
        .saves
        .in_place()
        .map(|l| format!(" in {}", l.store))
        .unwrap_or_default();
    let text = format!(
        "AReaL keeps one checkpoint, which each save overwrites or replaces: each save that was proven is copied{store}; {keep} copies are kept, so {} times its size is needed, and once more while a copy is made",
        keep + 1
    );
    Finding::note("generations", text)
}
