//! Settings and flags as decision policy, and how the workers are started.

use crate::prepare::gang;
use crate::prepare::request::PrepareRequest;
use std::time::Duration;
use supervise_config::interpolation::InterpolationResolver;
use supervise_config::settings::{
    AcceptAhead as AcceptAheadChoice, DegradedResume, GpuChoice, HardLimitChoice, LauncherChoice, PolicyChoice,
    ProofDepth, RestartChoice, ResumeCheckChoice, Settings,
};
use supervise_core::checkpoint::Depth;
use supervise_core::id::{Ms, Step};
use supervise_core::journal::record::FailureAction;
use supervise_core::policy::Changes;
use supervise_core::rulebook::failure_line::FailureLine;
use supervise_core::spec::policy::{
    BackoffPolicy, DegradedPolicy, FailurePolicy, GracePolicy, HardLimit, Policy, ProofPolicy, ResumeCheck,
    RetentionPolicy, StallPolicy, StartPolicy,
};
use supervise_core::spec::{AcceptAhead, Assist, GangSpec, LauncherKind, Protect};
use supervise_trainers::adapter;
use supervise_trainers::read::ReadOutput;

fn ms(d: Duration) -> Ms {
    Ms(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// The decision policy: from the settings, this request, and the trainer's abilities.
pub(super) fn policy(s: &Settings, request: &PrepareRequest, out: &ReadOutput, call: &[String]) -> Policy {
    let said = of_settings(s);
    Policy {
        start: StartPolicy {
            fresh: request.fresh,
            from: request.from.map(Step),
            recovery: s.recovery && out.recovery,
            off_by_command: s.recovery && !out.recovery,
            observe: request.observe,
            ..said.start
        },
        rehearse: s.rehearse && adapter(out.kind).rehearsed(call).is_some(),
        assist: Assist {
            deadline: s.deadline.or(request.ends).or_else(slurm_end),
            ..said.assist
        },
        ..said
    }
}

fn of_settings(s: &Settings) -> Policy {
    Policy {
        failure: FailurePolicy {
            retries: s.retries,
            step_backs: s.step_backs,
            rules: rules(s),
            lines: lines(s),
        },
        resume_check: match s.resume_check {
            ResumeCheckChoice::Report => ResumeCheck::Report,
            ResumeCheckChoice::Stop => ResumeCheck::Stop,
        },
        check_gpus: s.gang.check_gpus,
        backoff: BackoffPolicy {
            initial: ms(s.backoff.initial),
            factor: s.backoff.factor,
            max: ms(s.backoff.max),
            jitter: s.backoff.jitter,
        },
        grace: GracePolicy {
            stop: ms(s.grace.stop),
            save: ms(s.grace.save),
            orphan: ms(s.grace.orphan),
        },
        proof: ProofPolicy {
            depth: match s.proof.depth {
                ProofDepth::Structure => Depth::Structure,
                ProofDepth::Full => Depth::Full,
            },
            depth_is_fixed: false,
            is_on: s.proof.enabled,
            trust_globals: s.proof.trust_globals.clone(),
            trust_unsafe: s.proof.trust_unsafe,
            trust_reported: s.proof.trust_reported,
            trust_owners: s.proof.trust_owners.clone(),
            background_rate: s.proof.background_rate,
            memory: s.proof.memory,
        },
        degraded: match s.degraded_resume {
            DegradedResume::Never => DegradedPolicy::Never,
            DegradedResume::DataOrder => DegradedPolicy::DataOrder,
            DegradedResume::ModelOnly => DegradedPolicy::ModelOnly,
            DegradedResume::Ask => DegradedPolicy::Ask,
        },
        elastic: s.elastic,
        stall: StallPolicy {
            startup: ms(s.stall.startup),
            factor: s.stall.factor,
            minimum: ms(s.stall.minimum),
            save: ms(s.stall.save),
            hard: match s.stall.hard {
                HardLimitChoice::Auto => HardLimit::Auto,
                HardLimitChoice::Never => HardLimit::Never,
                HardLimitChoice::After(limit) => HardLimit::After(ms(limit)),
            },
            progress: s.progress.clone(),
        },
        retention: RetentionPolicy {
            prune: s.retention.prune,
            keep_raise: s.retention.raise_by,
        },
        start: StartPolicy {
            allow_fresh: s.allow_fresh,
            recovery: s.recovery,
            ..StartPolicy::default()
        },
        scan_interval: ms(s.scan_interval),
        max_loss: s.max_loss.map(ms),
        restart_for_memory: s.memory.restart_after_save == RestartChoice::Auto,
        rehearse: s.rehearse,
        assist: Assist {
            expiry: s.assist.expiry,
            logger: s.assist.logger,
            skip_validation: s.assist.skip_validation,
            environment: s.assist.environment,
            wandb: s.assist.wandb,
            save_requests: s.assist.save_requests,
            deadline: s.deadline,
        },
        protect: Protect {
            enabled: s.protect.enabled,
            keep: s.protect.keep.max(2),
            rate: s.protect.rate,
            reserve: s.protect.reserve,
            ahead: match s.protect.accept_ahead {
                AcceptAheadChoice::Never => AcceptAhead::Never,
                AcceptAheadChoice::Ask => AcceptAhead::Ask,
                AcceptAheadChoice::Always => AcceptAhead::Always,
            },
        },
    }
}

pub(crate) fn rules(s: &Settings) -> Changes {
    let action = |choice: &PolicyChoice| match choice {
        PolicyChoice::Relaunch => FailureAction::Relaunch,
        PolicyChoice::RelaunchLater => FailureAction::RelaunchLater,
        PolicyChoice::RelaunchOnce => FailureAction::RelaunchOnce,
        PolicyChoice::Stop => FailureAction::Stop,
        PolicyChoice::StepBack => FailureAction::FallBack,
        PolicyChoice::Wait => FailureAction::Wait,
    };
    let said = s.policy.iter().map(|(class, choice)| (class.clone(), action(choice)));
    let own = s
        .rules
        .iter()
        .filter_map(|rule| Some((rule.class.clone(), action(rule.action.as_ref()?))));
    said.chain(own).collect()
}

pub(crate) fn lines(s: &Settings) -> Vec<FailureLine> {
    let line = |rule: &supervise_config::settings::UserRule| FailureLine {
        pattern: rule.pattern.clone(),
        class: rule.class.as_str().into(),
        advice: rule.advice.clone(),
        costs_retry: rule.costs_retry,
        blames_checkpoint: rule.blames_checkpoint,
    };
    s.rules.iter().map(line).collect()
}

/// When Slurm ends the job of this process.
fn slurm_end() -> Option<u64> {
    std::env::var("SLURM_JOB_END_TIME").ok()?.trim().parse().ok()
}

/// How the workers are started: by the settings, or else by the trainer's configuration.
pub(super) fn gang(s: &Settings, out: &ReadOutput, notes: &mut Vec<String>) -> GangSpec {
    let launcher = match s.gang.launcher {
        LauncherChoice::Auto => out.gang.launcher,
        LauncherChoice::Driver => LauncherKind::Driver,
        LauncherChoice::Gang => LauncherKind::Gang,
        // Refused if the trainer has none.
        LauncherChoice::Ray => out.gang.launcher,
    };
    let on_each = match launcher {
        LauncherKind::Driver | LauncherKind::Ray => 1,
        LauncherKind::Gang if out.gang.launcher == LauncherKind::Gang => {
            s.gang.workers.unwrap_or_else(|| out.gang.per_node())
        }
        LauncherKind::Gang => s.gang.workers.or_else(|| per_node(out)).unwrap_or(1),
    };
    let nodes = match launcher {
        LauncherKind::Driver => 1,
        LauncherKind::Gang => gang::nodes(s, out),
        LauncherKind::Ray => out.gang.nodes,
    };
    let workers = on_each.saturating_mul(nodes);
    let gpus = match &s.gang.gpus {
        GpuChoice::None => Vec::new(),
        GpuChoice::List(list) => list.clone(),
        GpuChoice::Auto if launcher == LauncherKind::Gang && nodes == 1 && has_gpu() => (0..workers).collect(),
        GpuChoice::Auto => Vec::new(),
    };
    if !gpus.is_empty() && launcher == LauncherKind::Gang && gpus.len() < on_each as usize {
        notes.push(format!("{on_each} workers share {} GPUs", gpus.len()));
    }
    GangSpec {
        launcher,
        workers,
        nodes,
        gpus,
    }
}

fn per_node(out: &ReadOutput) -> Option<u32> {
    let found = InterpolationResolver::new(&out.tree, &|_| None)
        .get(adapter(out.kind).words().gpus_per_node?)
        .ok()
        .flatten()?;
    u32::try_from(found.as_i64()?).ok().filter(|n| *n > 0)
}

fn has_gpu() -> bool {
    std::path::Path::new("/dev/nvidia0").exists()
}

/// The world size of the checkpoints. For a gang that this program starts, its size counts, not the configuration.
pub(super) fn world(out: &ReadOutput, gang: &GangSpec) -> Option<u32> {
    match gang.launcher {
        _ if !adapter(out.kind).has_steps() => None,
        LauncherKind::Gang if out.gang.launcher != LauncherKind::Gang || out.gang.nodes != gang.nodes => {
            Some(gang.workers)
        }
        _ => out.world,
    }
}

/// Uses the user's number of relaunches in the trainer's configuration, unless the settings set one.
pub(super) fn retries(settings: &Settings, out: &ReadOutput, policy: &mut Policy, notes: &mut Vec<String>) {
    let (Some(theirs), Some(key)) = (out.facts.retries, adapter(out.kind).words().retries) else {
        return;
    };
    let origin = settings.explain().into_iter().find(|(key, ..)| key == "retries");
    match origin.filter(|_| settings.is_said("retries")) {
        None => {
            policy.failure.retries = theirs;
            notes.push(format!("{key}={theirs} counts as retries"));
        }
        Some((_, ours, origin)) if policy.failure.retries != theirs => {
            notes.push(format!("retries={ours} ({origin}) counts, not {key}={theirs}"));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, Settings, of_settings};

    #[test]
    fn the_core_and_the_settings_have_the_same_defaults() {
        let settings = Settings::defaults().unwrap();
        let of_a_trainer_that_cannot_be_asked = Policy {
            rehearse: false,
            ..of_settings(&settings)
        };
        assert_eq!(of_a_trainer_that_cannot_be_asked, Policy::default());
    }
}
