//! A launch order as verl's command line and environment.
//!
//! The resume is always spelled out (`resume_path` and the step, or `disable`) and never left to verl's tracker file:
//! with `auto`, a missing or stale tracker silently starts from step 0. Only an unknown trainer keeps its `auto`: it
//! may load more that way, and the tracker has been repaired. Hydra lets later duplicates win, so our overrides come
//! last.

use super::VerlFacts;
use crate::adapter::{HostFacts, LaunchPlan};
use crate::command::{self, EntryPoint};
use crate::hydra::{encode_list, encode_str};
use crate::job;
use crate::kit::experiment;
use crate::verl::assist;
use crate::verl::call;
use crate::verl::defaults::VerlBaseConfig;
use crate::verl::names::{self, VerlRootName};
use crate::verl::ray;
use crate::verl::strategy::RoleKeys;
use crate::verl::version::{ReleaseSeries, VerlRelease};
use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_core::checkpoint::StateKind;
use supervise_core::id::Step;
use supervise_core::journal::reason::{Evidence, Reason};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{ResumeIntent, RoleSpec, RunSpec};

/// State that verl loads at a resume. FSDP ignores exported weights there; for Megatron, `model` means the weights
/// wherever they were saved.
const LOADABLE: [&str; 3] = ["model", "optimizer", "extra"];

const BY_PATH: &str = "trainer.resume_mode=resume_path";

pub(crate) fn arrange(sft: bool, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
    let mut plan = LaunchPlan::default();
    plan.overrides.extend(host.trainer.settings.iter().cloned());
    if order.from != StartPoint::AsIs {
        let resume = resume_overrides(sft, spec, order, host)?;
        if spec.learnt.is_none() {
            check_not_shadowed(&spec.command, &resume)?;
        }
        plan.notes.extend(replaced(spec, &resume));
        plan.overrides.extend(resume);
        plan.overrides.extend(retention_overrides(spec, host, &mut plan.notes));
        plan.overrides.extend(async_overrides(sft, host, &mut plan.notes));
    }
    plan.help(assist::helps(sft, spec, order, host), spec, host);
    experiment::go_on(&mut plan, &assist::trackers(host), spec, order, host);
    let ray = ray::apart(sft, spec, order, host);
    plan.overrides.extend(ray.overrides);
    plan.scratch = ray.scratch;
    let free = ray.env.into_iter().filter(|(name, _)| !host.is_set(spec, name));
    plan.env.extend(free.map(|(name, value)| (name.to_owned(), value)));
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    // A script's own arguments stay: our overrides go into its trainer call, or where the command says.
    let at_the_end = spec.learnt.is_none() || command::marks_overrides(&spec.command);
    let beside = if at_the_end { plan.overrides.as_slice() } else { &[] };
    plan.argv = command::fill(&spec.command, beside, config);
    plan.call = spec
        .learnt
        .as_ref()
        .map(|learnt| call::call_order(learnt, &plan.overrides));
    let by_environment = host.is_set(spec, "PET_MAX_RESTARTS");
    plan.notes
        .extend(command::forbid_restarts(&mut plan.argv, by_environment));
    plan.notes.extend(command::wait_for_job(&mut plan.argv));
    let id = job::id(&spec.run, order.attempt);
    plan.notes.extend(job::name(&mut plan.argv, &id));
    if let Some(call) = plan.call.as_mut().filter(|_| job::submits(spec.trainer_command())) {
        call.submission = Some(id);
    }
    let named = command::entry(spec.trainer_command()).is_some() || command::marks_overrides(&spec.command);
    if order.from != StartPoint::AsIs && !named {
        plan.notes.push(
            "the command names no entry point of verl: the overrides are at its end, and a script has to pass them on (\"$@\")"
                .to_owned(),
        );
    }
    Ok(plan)
}

/// Warns about a trainer that is only assumed to behave like verl's: with `auto` it may load more than by a path.
fn replaced(spec: &RunSpec, resume: &[String]) -> Option<String> {
    let is_assumed = matches!(
        command::entry(spec.trainer_command()),
        Some((EntryPoint::Foreign | EntryPoint::Other, _))
    );
    let by_path = resume.iter().any(|o| o == BY_PATH);
    (is_assumed && by_path).then(|| {
        format!("{BY_PATH} takes the place of what is written: what this trainer loads with `auto` alone is not loaded")
    })
}

fn resume_overrides(sft: bool, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<Vec<String>, Reason> {
    let root = spec
        .root
        .as_deref()
        .filter(|root| root.is_absolute())
        .ok_or_else(|| Reason::new("no_root", "the checkpoint root is not known as an absolute path"))?;
    let mut out = Vec::new();
    let by_tracker = spec.resume == ResumeIntent::Tracker;
    match &order.from {
        StartPoint::AsIs => return Ok(out),
        // Without a tracker `auto` starts fresh.
        StartPoint::Fresh if by_tracker => {}
        StartPoint::Fresh => out.push("trainer.resume_mode=disable".to_owned()),
        StartPoint::Step {
            ckpt,
            step,
            load,
            roles,
            ..
        } => {
            let path = root.join(&ckpt.0);
            check_path(sft, &path, *step)?;
            if by_tracker && ckpt.0 == names::step_dir(*step) {
                out.extend(load_overrides(spec, host, load, roles, &order.lost)?);
                out.push(format!("trainer.default_local_dir={}", encode_str(root.as_str())));
                return Ok(out);
            }
            out.push(BY_PATH.to_owned());
            out.push(format!("trainer.resume_from_path={}", encode_str(path.as_str())));
            out.extend(load_overrides(spec, host, load, roles, &order.lost)?);
        }
    }
    out.push(format!("trainer.default_local_dir={}", encode_str(root.as_str())));
    Ok(out)
}

/// verl parses the step from the path: PPO from its end, SFT from the first match anywhere in it.
fn check_path(sft: bool, path: &Utf8Path, step: Step) -> Result<(), Reason> {
    let name = path.file_name().unwrap_or_default();
    if path.as_str().ends_with('/') || names::root_name(name) != VerlRootName::Step(step) {
        return Err(Reason::new(
            "resume_path",
            format!("{path} is not the directory of step {step}"),
        ));
    }
    let above = path.parent().unwrap_or(path);
    if sft && holds_step(above) {
        return Err(Reason::new(
            "resume_path",
            format!(
                "{above} itself holds `global_step_N`: verl's SFT trainer would take its step from there; choose another trainer.default_local_dir"
            ),
        ));
    }
    Ok(())
}

/// Returns true if a path contains what verl's SFT trainer would take for the step.
pub(crate) fn holds_step(path: &Utf8Path) -> bool {
    let text = path.as_str();
    text.match_indices("global_step_")
        .any(|(at, found)| text[at + found.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// `load_contents` of every role, always with weights: otherwise verl would continue from the step with fresh ones.
fn load_overrides(
    spec: &RunSpec,
    host: &HostFacts,
    load: &[String],
    roles: &BTreeMap<String, Vec<String>>,
    lost: &[StateKind],
) -> Result<Vec<String>, Reason> {
    let release = spec.trainer_version.as_deref().and_then(VerlRelease::of);
    let tree = if VerlFacts::of(&host.trainer).older_sft {
        VerlBaseConfig::SftOld
    } else {
        VerlBaseConfig::Ppo
    };
    // An unknown release may lack this key or have another one; it then loads what it saved.
    let mark = if release.is_some() { "" } else { "++" };
    let mut out = Vec::new();
    for role in &spec.roles {
        let wanted = roles.get(&role.name).map_or(load, Vec::as_slice);
        // Megatron stores nothing else in `extra`, and fails on random states saved with another parallel layout.
        let without = role.megatron.is_some() && lost.contains(&StateKind::Rng);
        let mut list: Vec<&'static str> = LOADABLE
            .into_iter()
            .filter(|known| wanted.iter().any(|c| c == known) && !(without && *known == "extra"))
            .collect();
        if !list.contains(&"model") {
            let of = if role.name.is_empty() {
                String::new()
            } else {
                format!(" of `{}`", role.name)
            };
            let text =
                format!("the order loads no model shards{of}: verl would count on from the step with fresh weights");
            return Err(Reason::new("load_contents", text));
        }
        if release.is_some_and(|r| !r.since(ReleaseSeries::V0_4, 1)) {
            check_loads_all(&list)?;
            continue;
        }
        let key = RoleKeys::in_tree(&role.name, tree).checkpoint;
        if release.is_none_or(|r| r.since(ReleaseSeries::V0_9, 0)) {
            list.iter_mut().for_each(|c| *c = spelt(role, c));
        }
        out.push(format!("{mark}{key}.load_contents={}", encode_list(&list)));
    }
    Ok(out)
}

/// verl 0.4.0 has no such key: it loads all three, or fails.
fn check_loads_all(load: &[&str]) -> Result<(), Reason> {
    if load.len() == LOADABLE.len() {
        return Ok(());
    }
    let only = load.join(", ");
    let text = format!("verl 0.4.0 loads model, optimizer and extra or nothing: a resume with only {only} needs 0.4.1");
    Err(Reason::new("load_contents", text))
}

/// If Megatron's manager writes its own shards, `model` means those; exported weights then have their own name.
fn spelt(role: &RoleSpec, content: &'static str) -> &'static str {
    let saves = |content: &str| role.save_contents.iter().any(|c| c == content);
    let exported_only = role.megatron.is_some_and(|m| !m.adapters) && saves("hf_model") && !saves("model");
    if content == "model" && exported_only {
        "hf_model"
    } else {
        content
    }
}

/// verl deletes old steps before the newer one is proven, so it is told to keep more; the supervisor prunes the rest.
fn retention_overrides(spec: &RunSpec, host: &HostFacts, notes: &mut Vec<String>) -> Vec<String> {
    if !spec.policy.retention.prune || spec.policy.start.observe || spec.policy.retention.keep_raise == 0 {
        return Vec::new();
    }
    let raised = host.trainer.keep.iter().filter(|(_, n)| *n > 0).map(|(key, n)| {
        let (to, kept) = (n.saturating_add(spec.policy.retention.keep_raise), n.max(&2));
        notes.push(format!(
            "{key} is raised from {n} to {to} for the trainer; the supervisor keeps the newest {kept}"
        ));
        format!("{key}={to}")
    });
    raised.collect()
}

fn async_overrides(sft: bool, host: &HostFacts, notes: &mut Vec<String>) -> Vec<String> {
    let off = VerlFacts::of(&host.trainer).async_save.iter().map(|key| {
        notes.push(format!(
            "{key} is switched off: asynchronous saves are not finished by every release of verl, and never by 0.9"
        ));
        // SFT's schema does not have the key, so only `++` can change it.
        format!("{}{key}=False", if sft { "++" } else { "" })
    });
    off.collect()
}

/// A user override after `{overrides}` would win over ours.
fn check_not_shadowed(words: &[String], ours: &[String]) -> Result<(), Reason> {
    let Some(at) = words.iter().position(|w| w == command::OVERRIDES) else {
        return Ok(());
    };
    let later = words[at + 1..].iter().find(|w| {
        w.contains('=')
            && ours
                .iter()
                .any(|o| command::override_key(o) == command::override_key(w))
    });
    match later {
        None => Ok(()),
        Some(word) => Err(Reason::new(
            "override_shadowed",
            format!("`{word}` comes after {{overrides}} in the command and would undo the choice of the resume point: put it before"),
        )
        .with(Evidence::Setting(word.clone()))),
    }
}
