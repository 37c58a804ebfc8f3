//! Remarks before a launch: when verl saves, what a crash costs, what no resume restores.

use super::VerlFacts;
use super::assist;
use crate::adapter::TrainerFacts;
use crate::launch;
use supervise_core::checkpoint::{Finding, StateKind};
use supervise_core::spec::{RoleSpec, RunSpec};

pub(crate) fn preflight(sft: bool, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
    let never_resumes = VerlFacts::of(facts).never_resumes;
    let mut out = vec![if never_resumes {
        never_resumed(spec)
    } else {
        cadence(spec)
    }];
    out.extend(not_restored(spec).into_iter().filter(|_| !never_resumes));
    out.extend(retention(sft, spec, facts));
    if VerlFacts::of(facts).validates_first {
        out.push(Finding::note(
            "validates_first",
            "trainer.val_before_train: a validation runs again at the beginning of every relaunch; set it to False if it takes long",
        ));
    }
    out.extend(on_demand(sft, spec, facts));
    out.extend(all_or_nothing(spec));
    out.extend(finished_run(sft, spec));
    out.extend(launch::ray::findings(&facts.ray));
    out
}

/// Warns if the end of an allocation costs more than necessary.
fn on_demand(sft: bool, spec: &RunSpec, facts: &TrainerFacts) -> Option<Finding> {
    if spec.save_door {
        return None;
    }
    let saves = assist::saves_on_demand(sft, spec, VerlFacts::of(facts).saves_on_demand);
    let known = spec.policy.assist.deadline.is_some();
    if saves && known || !spec.policy.start.recovery {
        return None;
    }
    let detail = if saves {
        "verl can save before its machine is taken away, but nothing says when that is: set `deadline`".to_owned()
    } else {
        let which = if sft { "the SFT trainer" } else { "this trainer" };
        let save_freq = match spec.cadence.every {
            Some(1) => "",
            _ => "; choose trainer.save_freq so that few steps lie between saves",
        };
        format!(
            "{which} of verl cannot save on demand: the end of the allocation, or a stop, costs what was trained since the last save{save_freq}"
        )
    };
    Some(match known {
        true => Finding::warning("no_save_on_demand", detail),
        false => Finding::note("no_save_on_demand", detail),
    })
}

/// verl 0.4.0 asserts that FSDP saves and loads all three together; later releases load what is configured and do not
/// notice missing parts.
fn all_or_nothing(spec: &RunSpec) -> Option<Finding> {
    let bound = spec.trainer_version.as_deref().is_some_and(|v| v == "0.4.0");
    let all = |list: &[String]| {
        ["model", "optimizer", "extra"]
            .iter()
            .all(|c| list.iter().any(|l| l == c))
    };
    let apart = |r: &&RoleSpec| r.megatron.is_none() && !(all(&r.save_contents) && all(&r.load_contents));
    let role = spec.roles.iter().filter(|_| bound).find(apart)?;
    let of = if role.name.is_empty() {
        String::new()
    } else {
        format!(" of `{}`", role.name)
    };
    let detail = format!(
        "verl 0.4.0 starts FSDP only with model, optimizer and extra together, and the contents{of} leave something out"
    );
    Some(Finding::warning("contents_bound_together", detail))
}

/// Whatever is saved, a crash loses all training.
fn never_resumed(spec: &RunSpec) -> Finding {
    let saved = match (spec.cadence.every, spec.cadence.at_end) {
        (Some(1), _) => "every step is saved".to_owned(),
        (Some(n), _) => format!("every {n} steps are saved"),
        (None, true) => "only the last step is saved".to_owned(),
        (None, false) => "nothing is ever saved".to_owned(),
    };
    Finding::warning(
        "cadence",
        format!("{saved}, and nothing is resumed: a crash costs the whole run"),
    )
}

fn cadence(spec: &RunSpec) -> Finding {
    let last = spec.last_step.map(|s| format!(" of {s}")).unwrap_or_default();
    match (spec.cadence.every, spec.cadence.at_end) {
        (Some(1), _) => Finding::note(
            "cadence",
            format!("every step{last} is saved: a crash costs the step it happens in"),
        ),
        (Some(n), end) => {
            let end = if end { ", and the last step" } else { "" };
            Finding::note(
                "cadence",
                format!("every {n} steps{last} are saved{end}: a crash costs up to {n} steps"),
            )
        }
        (None, true) => Finding::warning(
            "cadence",
            format!("only the last step{last} is saved: a crash before it costs the whole run; set trainer.save_freq"),
        ),
        (None, false) => Finding::warning(
            "cadence",
            "nothing is ever saved: a crash costs the whole run; set trainer.save_freq",
        ),
    }
}

fn not_restored(spec: &RunSpec) -> Vec<Finding> {
    let mut out = Vec::new();
    for role in &spec.roles {
        // Megatron loads exported weights, too.
        let exported = |saved: &str, c: &str| role.megatron.is_some() && c == "model" && saved == "hf_model";
        let missing: Vec<&str> = ["model", "optimizer", "extra"]
            .into_iter()
            .filter(|c| !role.save_contents.iter().any(|s| s == c || exported(s, c)))
            .map(|c| match (c, role.megatron) {
                ("extra", None) => "learning-rate schedule and random number generators",
                ("extra", Some(_)) => "random number generators",
                ("optimizer", Some(_)) => "optimizer and learning-rate schedule",
                _ => c,
            })
            .collect();
        if !missing.is_empty() {
            let of = if role.name.is_empty() {
                String::new()
            } else {
                format!(" of `{}`", role.name)
            };
            let detail = format!(
                "save_contents leaves out the {}{of}: no resume brings it back",
                missing.join(", ")
            );
            out.push(Finding::warning("not_saved", detail));
        }
    }
    let never: Vec<&str> = spec.not_restored.iter().copied().map(StateKind::words).collect();
    if !never.is_empty() {
        out.push(Finding::note(
            "not_restored",
            format!("never restored by this trainer: {}", never.join(", ")),
        ));
    }
    out
}

fn retention(sft: bool, spec: &RunSpec, facts: &TrainerFacts) -> Vec<Finding> {
    let mut out = Vec::new();
    let raises = spec.policy.retention.prune && !spec.policy.start.observe && spec.policy.retention.keep_raise > 0;
    for (key, n) in facts.keep.iter().filter(|(_, n)| *n > 0) {
        if *n == 1 && !raises {
            let what = if sft { "step" } else { "role" };
            out.push(Finding::warning(
                "keep_one",
                format!("{key}=1: verl deletes the only older {what} as soon as the new one is written, before it is proven; keep at least 2"),
            ));
        } else if *n == 1 {
            out.push(Finding::note(
                "keep_two",
                format!("{key}=1: two steps are kept, because the newest may turn out not to be whole"),
            ));
        }
    }
    let unset = spec
        .roles
        .iter()
        .filter(|role| spec.keeps_by_role() && role.keep.is_none());
    for role in unset {
        out.push(Finding::note(
            "keep_all",
            format!(
                "trainer.max_{0}_ckpt_to_keep is not set: the {0} of every step stays on disk",
                role.name
            ),
        ));
    }
    if facts.keep.is_empty() {
        out.push(Finding::note(
            "keep_all",
            "no number of steps to keep is set: every step stays on disk",
        ));
    }
    out
}

/// verl's SFT trainer may train one more step when a finished run is started again.
fn finished_run(sft: bool, spec: &RunSpec) -> Option<Finding> {
    let last = spec.last_step.filter(|_| sft)?;
    let detail = format!(
        "started again after step {last}, verl's SFT trainer may train one more step: a run that is proven finished is not launched"
    );
    Some(Finding::note("finished_run", detail))
}
