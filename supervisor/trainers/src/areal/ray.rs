//! Ray: AReaL's launcher and its scheduler call `ray.init()` without arguments, so the environment selects the
//! cluster.

use super::call::{self, ArealLauncher};
use super::fields::{INT, TEXT};
use crate::adapter::{HostFacts, LaunchPlan};
use crate::job;
use crate::kit::ConfigReader;
use crate::launch::RayMode;
use crate::launch::ray::{ADDRESS, TEMP, scratch};
use crate::read::ReadInput;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::RunSpec;

const NODES: &str = "cluster.n_nodes";

pub(super) fn read(v: &mut ConfigReader<'_>, input: &ReadInput<'_>, form: &ArealLauncher) -> RayMode {
    if job::submits(input.command) {
        return RayMode::Submitted;
    }
    let is_used = match form {
        ArealLauncher::Launcher(place) => place == "ray",
        ArealLauncher::Controller => v.get("scheduler.type", TEXT).as_deref() == Some("ray"),
        ArealLauncher::Torchrun | ArealLauncher::Ranks | ArealLauncher::Unknown => false,
    };
    if !is_used {
        return RayMode::Unused;
    }
    // AReaL's own default (32 nodes) is not the user's choice.
    let mut number = |key| {
        let n = v.get(key, INT).and_then(|n| u32::try_from(n).ok());
        n.filter(|_| v.is_said(key))
    };
    let nodes = number(NODES).unwrap_or(1);
    let gpus = number("cluster.n_gpus_per_node");
    let said = |name| call::env(input, name).filter(|value| !value.is_empty());
    let apart = said(TEMP).is_none();
    let (address, by) = match said(ADDRESS) {
        Some(address) if address == "local" => {
            if nodes > 1 {
                v.problem(
                    NODES,
                    format!("{nodes} machines are asked for, and a Ray cluster of this machine alone ({ADDRESS}=local)"),
                    "give the cluster's address in RAY_ADDRESS, or unset it: in a Slurm job one is started over its nodes",
                );
            }
            return RayMode::Own { apart };
        }
        Some(address) => (Some(address), ADDRESS.to_owned()),
        None if nodes > 1 && input.may_start_ray => {
            return RayMode::Started {
                nodes,
                gpus,
                options: Vec::new(),
                apart,
            };
        }
        None if nodes > 1 => (None, format!("{NODES}: {nodes}")),
        None => return RayMode::Own { apart },
    };
    RayMode::Cluster {
        address,
        by,
        nodes,
        gpus: gpus.and_then(|n| n.checked_mul(nodes)),
    }
}

/// Isolates a cluster of the run's own; one named by the user is left as configured.
pub(super) fn arrange(plan: &mut LaunchPlan, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) {
    let apart = match host.trainer.ray {
        RayMode::Own { apart } => {
            if !host.is_set(spec, ADDRESS) {
                plan.env.push((ADDRESS.to_owned(), "local".to_owned()));
            }
            apart
        }
        RayMode::Started { apart, .. } => apart,
        _ => return,
    };
    if apart {
        let tmp = spec.env.get("TMPDIR").or_else(|| host.env.get("TMPDIR"));
        let dir = scratch(tmp.map(String::as_str), spec, order);
        plan.env.push((TEMP.to_owned(), dir.to_string()));
        plan.scratch = Some(dir);
    }
}
