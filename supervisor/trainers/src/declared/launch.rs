//! Command and environment of a launch.

use super::Declaration;
use super::schema::{StepNames, WordStyle};
use super::words;
use crate::adapter::{HostFacts, InjectedSetting, LaunchPlan};
use crate::command;
use camino::Utf8Path;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::RunSpec;

/// The step that a launch resumes from, for the placeholders in words.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResumePoint<'a> {
    pub(super) root: &'a str,
    pub(super) dir: &'a str,
    pub(super) step: u64,
}

impl ResumePoint<'_> {
    pub(super) fn fill(self, word: &str) -> String {
        let path = format!("{}/{}", self.root, self.dir);
        let step = self.step.to_string();
        let mut out = String::new();
        let mut rest = word;
        // What was filled in is not looked at again: a directory may have braces in its name.
        while let Some((before, after)) = rest.split_once('{') {
            let (inside, left) = after.split_once('}').unwrap_or((after, ""));
            out.push_str(before);
            out.push_str(match inside {
                "root" => self.root,
                "step" => &step,
                _ => &path,
            });
            rest = left;
        }
        out + rest
    }
}

pub(super) fn arrange(
    of: &Declaration,
    spec: &RunSpec,
    order: &LaunchOrder,
    host: &HostFacts,
) -> Result<LaunchPlan, Reason> {
    let mut plan = LaunchPlan::default();
    let style = of.command.style;
    let mut command = spec.command.clone();
    plan.overrides.extend(host.trainer.settings.iter().filter_map(|set| {
        let (key, value) = set.split_once('=')?;
        words::spelt(style, key, value)
    }));
    match &order.from {
        StartPoint::AsIs => {}
        StartPoint::Fresh => fresh(of, spec, &mut command, &mut plan),
        StartPoint::Step { ckpt, step, .. } => {
            let root = spec.root.as_deref().filter(|root| root.is_absolute());
            let root =
                root.ok_or_else(|| Reason::new("no_root", "the checkpoint root is not known as an absolute path"))?;
            // A step outside the root is named by its absolute path.
            let path = match &of.steps.names {
                StepNames::InPlace(file) if !ckpt.0.is_absolute() => root.join(file),
                _ => root.join(&ckpt.0),
            };
            let at = ResumePoint {
                root: root.as_str(),
                dir: path.strip_prefix(root).map_or(path.as_str(), Utf8Path::as_str),
                step: step.0,
            };
            command = words::without(style, &command, &of.resume.strip);
            plan.overrides.extend(of.resume.at.iter().map(|word| at.fill(word)));
            if let Some((name, value)) = &of.resume.script {
                plan.env.push((name.clone(), at.fill(value)));
            }
            if of.resume.at.is_empty() && of.resume.script.is_none() {
                plan.notes.push(format!(
                    "{} resumes from {path} by itself: it is the newest step in the checkpoint root",
                    of.title
                ));
            }
        }
    }
    if order.from != StartPoint::AsIs {
        retention(style, spec, host, &mut command, &mut plan);
    }
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    plan.argv = command::fill(&command, &plan.overrides, config);
    if spec.policy.assist.environment {
        plan.help(vec![unbuffered()], spec, host);
    }
    let by_environment = host.is_set(spec, "PET_MAX_RESTARTS");
    plan.notes
        .extend(command::forbid_restarts(&mut plan.argv, by_environment));
    Ok(plan)
}

/// A user may begin from a model elsewhere: what the command says about that stays, unless `--fresh` was given.
fn fresh(of: &Declaration, spec: &RunSpec, command: &mut Vec<String>, plan: &mut LaunchPlan) {
    let style = of.command.style;
    *command = words::without(style, command, &of.resume.strip_fresh);
    let own = words::keys(style, &of.resume.fresh);
    let is_said = own.iter().any(|key| words::value(style, command, key).is_some());
    if is_said && !spec.policy.start.fresh {
        return;
    }
    *command = words::without(style, command, &own);
    let root = spec.root.as_ref().map_or("", |root| root.as_str());
    plan.overrides.extend(of.fresh_words(root));
}

/// The trainer may delete by number, proven or not: its number is raised, and the supervisor retains the user's.
fn retention(style: WordStyle, spec: &RunSpec, host: &HostFacts, command: &mut Vec<String>, plan: &mut LaunchPlan) {
    let raise = spec.policy.retention.keep_raise;
    if !spec.policy.retention.prune || spec.policy.start.observe || raise == 0 || spec.saves.is_in_place() {
        return;
    }
    for (key, n) in &host.trainer.keep {
        let (to, kept) = (n.saturating_add(raise), n.max(&2));
        if let Some(word) = words::spelt(style, key, &to.to_string()) {
            *command = words::without(style, command, std::slice::from_ref(key));
            plan.overrides.push(word);
            plan.notes.push(format!(
                "{key} is raised from {n} to {to} for the trainer; the supervisor keeps the newest {kept}"
            ));
        }
    }
}

fn unbuffered() -> InjectedSetting {
    let mut help = InjectedSetting::new("assist.environment", "what the trainer prints is seen at once");
    help.set("PYTHONUNBUFFERED", "1");
    help
}
