//! Settings injected into verl, each with its reason and the setting that switches it off.

use super::VerlFacts;
use super::version::ReleaseSeries;
use crate::adapter::{HostFacts, InjectedSetting, save_door};
use crate::hydra::encode_list;
use crate::kit::MetricsTool;
use crate::launch::RayMode;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::RunSpec;

/// Variable with the time of preemption, in seconds since 1970, as verl's trainers read it.
const EXPIRY: &str = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP";
const EXPIRY_TOO: &str = "SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP";

pub(crate) fn helps(sft: bool, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Vec<InjectedSetting> {
    let assist = &spec.policy.assist;
    let mut out = Vec::new();
    out.extend(assist.environment.then(|| environment(sft, host)));
    if order.from == StartPoint::AsIs {
        return out;
    }
    if assist.logger {
        out.extend(logger(spec, order, host));
    }
    let save_door = save_door::setting(spec, order);
    // With it, verl would save at every step of its last minutes.
    out.extend(expiry(sft, spec, host).filter(|_| assist.expiry && save_door.is_none()));
    out.extend(save_door);
    let relaunch = matches!(order.from, StartPoint::Step { .. });
    out.extend(
        (assist.skip_validation && relaunch && VerlFacts::of(&host.trainer).validates_first).then(|| InjectedSetting {
            overrides: vec!["trainer.val_before_train=False".to_owned()],
            ..InjectedSetting::new(
                "assist.skip_validation",
                "the validation before the first step was made when the run began",
            )
        }),
    );
    out
}

fn environment(sft: bool, host: &HostFacts) -> InjectedSetting {
    let mut help = InjectedSetting::new("assist.environment", "what goes wrong is told in full, and at once");
    help.set("PYTHONUNBUFFERED", "1");
    help.set("HYDRA_FULL_ERROR", "1");
    if host.trainer.ray != RayMode::Unused {
        help.set("RAY_DEDUP_LOGS", "0");
    }
    if sft {
        // Only then does the trainer log which step it resumes from.
        help.set("VERL_SFT_LOGGING_LEVEL", "INFO");
    }
    help
}

/// A metrics file for each attempt, since verl truncates it at every start, and a console logger if there is none.
fn logger(spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Option<InjectedSetting> {
    let loggers = &VerlFacts::of(&host.trainer).loggers;
    let has = |name: &str| loggers.iter().any(|l| l == name);
    let mut help = InjectedSetting::new(
        "assist.logger",
        "each attempt has a metrics file of its own: verl truncates it at every start",
    );
    let mut with_file = VerlFacts::of(&host.trainer).file_logger;
    if !loggers.is_empty() && !has("console") {
        help.why = "none of trainer.logger's prints its steps, by which progress and hangs are known".to_owned();
        let mut all: Vec<&str> = loggers.iter().map(String::as_str).chain(["console"]).collect();
        // verl 0.5 and older refuse a logger of this name.
        if !has("file") && version(spec).is_some_and(|v| v >= ReleaseSeries::V0_6) {
            all.push("file");
            with_file = true;
        }
        help.overrides.push(format!("trainer.logger={}", encode_list(&all)));
    }
    if with_file {
        let attempt = spec.run_dir.join("attempts").join(format!("{:04}", order.attempt.0));
        help.set("VERL_FILE_LOGGER_PATH", attempt.join("metrics.jsonl").as_str());
    }
    (!help.env.is_empty() || !help.overrides.is_empty()).then_some(help)
}

/// Returns true if the trainer saves before its machine is preempted. Only the older one checks, from verl 0.5 on,
/// and only if it saves at all.
pub(crate) fn saves_on_demand(sft: bool, spec: &RunSpec, on_demand: bool) -> bool {
    !sft && on_demand && spec.cadence.every.is_some() && version(spec).is_none_or(|v| v >= ReleaseSeries::V0_5)
}

fn expiry(sft: bool, spec: &RunSpec, host: &HostFacts) -> Option<InjectedSetting> {
    let end = spec.policy.assist.deadline?;
    let said = [EXPIRY, EXPIRY_TOO].into_iter().any(|name| host.is_set(spec, name));
    if said || !saves_on_demand(sft, spec, VerlFacts::of(&host.trainer).saves_on_demand) {
        return None;
    }
    let grace = spec.policy.grace.save.0 / 1000;
    let why = format!("verl saves before the machine is taken away (deadline, or the end of the job), {grace} s early");
    let mut help = InjectedSetting::new("assist.expiry", why);
    help.set(EXPIRY, &end.saturating_sub(grace).to_string());
    Some(help)
}

pub(crate) fn trackers(host: &HostFacts) -> Vec<MetricsTool> {
    let loggers = &VerlFacts::of(&host.trainer).loggers;
    loggers.iter().filter_map(|name| MetricsTool::of(name)).collect()
}

fn version(spec: &RunSpec) -> Option<ReleaseSeries> {
    ReleaseSeries::of(spec.trainer_version.as_deref()?)
}
