//! Command and environment of a launch.
//!
//! If the program takes flags of `TrainingArguments`, the step is named; otherwise every newer step was moved aside
//! before, so that `get_last_checkpoint` finds the right one, or none for a fresh start.

use super::call::{self, ArgStyle};
use super::script;
use super::seen::STEP_VARIABLE;
use crate::adapter::{HostFacts, InjectedSetting, LaunchPlan, save_door};
use crate::command;
use crate::kit::experiment;
use camino::Utf8Path;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{ResumeIntent, RunSpec};

/// A switch of ms-swift.
pub(super) const RESUME_ONLY_MODEL: &str = "resume_only_model";

pub(crate) fn arrange(spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
    let mut plan = LaunchPlan::default();
    let style = call::style(spec.trainer_command());
    // A script's own arguments stay: our overrides go into its trainer call, or where the command says.
    let is_ours = spec.learnt.is_none();
    let without = |name: &str| match is_ours {
        true => call::without(&spec.command, name),
        false => spec.command.clone(),
    };
    let mut words = spec.command.clone();
    plan.overrides.extend(host.trainer.settings.iter().filter_map(|set| {
        let (key, value) = set.split_once('=')?;
        call::spelt(style, key, value)
    }));
    match &order.from {
        StartPoint::AsIs => {}
        StartPoint::Fresh => {
            words = without(call::RESUME);
            if style == ArgStyle::Pairs {
                plan.overrides.push(format!("{}=null", call::RESUME));
            }
        }
        StartPoint::Step { ckpt, .. } => {
            let root = spec.root.as_deref().filter(|root| root.is_absolute());
            let root =
                root.ok_or_else(|| Reason::new("no_root", "the output directory is not known as an absolute path"))?;
            words = without(call::RESUME);
            let path = root.join(&ckpt.0);
            with_all_state(style, spec, &path, &mut plan);
            if spec.last_step.is_some_and(|last| order.from.step() >= last) {
                plan.notes.push(
                    "Trainer trains one step more where it resumes at the last one, and what the command does after it is done with those weights; the planned step stays as it is".to_owned(),
                );
            }
            match call::spelt(style, call::RESUME, path.as_str()) {
                Some(word) => plan.overrides.push(word),
                None if host.trainer.hooked => {
                    plan.notes.push(format!(
                        "if the script gives train() no step, it is given {path}; supervisor.interpreter=plain leaves the script alone"
                    ));
                    plan.env.push((STEP_VARIABLE.to_owned(), path.into_string()));
                }
                None => plan.notes.push(format!(
                    "the script is to resume from {path} by itself: it is the newest step in the output directory"
                )),
            }
        }
    }
    if order.from != StartPoint::AsIs {
        retention(style, spec, host, &mut plan);
    }
    // A script may put the time or its job id into the directory name.
    if let Some(root) = spec
        .root
        .as_deref()
        .filter(|_| !is_ours && order.from != StartPoint::AsIs)
    {
        plan.overrides
            .extend(call::spelt(style, call::OUTPUT_DIR, root.as_str()));
    }
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    let at_the_end = is_ours || command::marks_overrides(&spec.command);
    let beside = if at_the_end { plan.overrides.as_slice() } else { &[] };
    plan.argv = command::fill(&words, beside, config);
    let learnt = spec.learnt.as_ref();
    plan.call = learnt.map(|learnt| script::call_order(learnt, &plan.overrides, &order.from));
    if spec.policy.assist.environment {
        plan.help(vec![told_in_time()], spec, host);
    }
    plan.help(save_door::setting(spec, order).into_iter().collect(), spec, host);
    // Other processes that the script starts would continue the same experiment.
    if is_ours {
        experiment::go_on(&mut plan, &host.trainer.trackers, spec, order, host);
    }
    let by_environment = host.is_set(spec, "PET_MAX_RESTARTS");
    plan.notes
        .extend(command::forbid_restarts(&mut plan.argv, by_environment));
    Ok(plan)
}

/// ms-swift's `resume_only_model` is meant for the step the user named: a resume from the run's own step must lose
/// nothing.
fn with_all_state(style: ArgStyle, spec: &RunSpec, step: &Utf8Path, plan: &mut LaunchPlan) {
    let is_named = matches!(&spec.resume, ResumeIntent::Path { path, .. } if path == step);
    let said = call::settings(spec.trainer_command());
    let is_on = |text: &String| !matches!(text.to_lowercase().as_str(), "false" | "no" | "f" | "n" | "0");
    if is_named || !said.get(RESUME_ONLY_MODEL).is_some_and(is_on) {
        return;
    }
    if let Some(word) = call::spelt(style, RESUME_ONLY_MODEL, "false") {
        plan.overrides.push(word);
        plan.notes.push(format!(
            "{RESUME_ONLY_MODEL} is switched off: the step is one of this run, and its optimizer, schedule and random states are restored"
        ));
    }
}

/// `save_total_limit` goes by modification time and counts torn steps too: it is raised, and the supervisor retains
/// the user's number.
fn retention(style: ArgStyle, spec: &RunSpec, host: &HostFacts, plan: &mut LaunchPlan) {
    if !spec.policy.retention.prune || spec.policy.start.observe || spec.policy.retention.keep_raise == 0 {
        return;
    }
    for (key, n) in &host.trainer.keep {
        let (to, kept) = (n.saturating_add(spec.policy.retention.keep_raise), n.max(&2));
        if let Some(word) = call::spelt(style, key, &to.to_string()) {
            plan.overrides.push(word);
            plan.notes.push(format!(
                "{key} is raised from {n} to {to} for the trainer; the supervisor keeps the newest {kept}"
            ));
        }
    }
}

fn told_in_time() -> InjectedSetting {
    let mut help = InjectedSetting::new(
        "assist.environment",
        "what the trainer does is told at once, resumes and saves included",
    );
    help.set("PYTHONUNBUFFERED", "1");
    help.set("TRANSFORMERS_VERBOSITY", "info");
    help
}
