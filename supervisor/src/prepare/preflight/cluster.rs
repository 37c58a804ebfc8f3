//! Checks that the machines or the external Ray cluster of a run exist before the launch.

use crate::error::CliError;
use crate::prepare::discovery::DiscoveredCommand;
use crate::prepare::gang::{is_gang, over_nodes};
use std::time::Duration;
use supervise_config::settings::{LauncherChoice, Settings};
use supervise_core::checkpoint::Finding;
use supervise_host::cluster::{self, RayQuery, RayStatus};
use supervise_host::guard::nodes::SILENCE_MS;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::{RayMode, adapter};

/// Queries the cluster and reports what it has. `refused`: why `run` would end at once on this machine.
///
/// # Errors
/// The configuration needs several machines but no cluster is available, or the cluster does not answer.
pub(super) fn check(
    d: &DiscoveredCommand,
    out: &ReadOutput,
    refused: &mut Vec<CliError>,
) -> Result<Vec<Finding>, CliError> {
    let settings = &d.sources.settings;
    possible(settings, out)?;
    may_be_fenced(settings, out)?;
    // A plan may be made on a machine that is not part of the run.
    let mut elsewhere = |e: CliError| match d.sources.request.planned {
        true => {
            refused.push(e);
            Ok(Vec::new())
        }
        false => Err(e),
    };
    // Ranks that are started on nodes use no Ray, or their own.
    if over_nodes(settings, out) > 1 {
        return in_allocation(settings, out).map(|()| Vec::new()).or_else(elsewhere);
    }
    match &out.facts.ray {
        RayMode::Submitted | RayMode::Unused | RayMode::Scripted | RayMode::Own { .. } | RayMode::Started { .. } => {
            Ok(Vec::new())
        }
        RayMode::Cluster {
            address,
            nodes,
            gpus,
            by,
        } => {
            // The query uses the command's interpreter.
            if let Some(why) = d.sources.left_out() {
                return Ok(vec![Finding::note("cluster_not_asked", why)]);
            }
            let query = RayQuery {
                command: out.command.clone(),
                cwd: d.sources.cwd.clone(),
                env: crate::environment::with(&d.sources.settings.env),
                address: address.clone().unwrap_or_default(),
                ..RayQuery::default()
            };
            match cluster::ask(&query) {
                Ok(said) => Ok(findings(&said, *nodes, *gpus, adapter(out.kind).words().name)),
                Err(why) if address.is_none() => elsewhere(missing(None, by, &why)),
                Err(why) => Err(missing(address.as_deref(), by, &why)),
            }
        }
    }
}

/// The key that sets the number of machines, and the number.
fn nodes(out: &ReadOutput) -> (&'static str, i64) {
    let key = adapter(out.kind).words().nodes;
    let nodes = key.and_then(|key| out.tree.get(key)).and_then(|n| n.as_i64());
    (key.unwrap_or_default(), nodes.unwrap_or(1))
}

/// Refuses several machines if no cluster is possible, whatever this machine is.
///
/// # Errors
/// The configuration needs several machines.
pub(in crate::prepare) fn possible(settings: &Settings, out: &ReadOutput) -> Result<(), CliError> {
    let (key, nodes) = nodes(out);
    match &out.facts.ray {
        _ if is_gang(settings, out) => Ok(()),
        RayMode::Started { .. } => Ok(()),
        _ if settings.gang.launcher == LauncherChoice::Ray => Err(CliError::config(
            "supervisor.gang.launcher is ray: Ray is started for a trainer that uses it, on several nodes, where no cluster is named",
        )
        .hint("set trainer.nnodes or cluster.n_nodes, and unset RAY_ADDRESS and ray_kwargs.ray_init.address; or leave the key out")),
        _ if settings.gang.nodes.is_some_and(|n| n > 1) => Err(CliError::config(
            "supervisor.gang.nodes: only a gang, one command for each worker, is started on several nodes",
        )
        .hint("set supervisor.gang.launcher to gang, or leave the key out")),
        RayMode::Unused if nodes > 1 && adapter(out.kind).has_steps() => Err(CliError::config(format!(
            "{key}: {nodes} machines are asked for; this version supervises a run on one"
        ))
        .hint("run it on one machine, or start it without supervise")),
        RayMode::Own { .. } if nodes > 1 => Err(CliError::config(format!(
            "{key}: {nodes} machines are asked for, and a Ray cluster of this machine alone (`local`)"
        ))
        .hint("give the cluster's address, in RAY_ADDRESS or as ray_kwargs.ray_init.address")),
        _ => Ok(()),
    }
}

/// Checks that a node that is cut off ends its ranks before another machine may start.
fn may_be_fenced(settings: &Settings, out: &ReadOutput) -> Result<(), CliError> {
    let ttl = settings.lease.ttl;
    if over_nodes(settings, out) > 1 && ttl <= Duration::from_millis(SILENCE_MS) {
        return Err(CliError::config(format!(
            "supervisor.lease.ttl: a node that is cut off ends its ranks after {} s, and another machine may take the lease after {} s",
            SILENCE_MS / 1000,
            ttl.as_secs()
        ))
        .hint("set supervisor.lease.ttl to 60s, the default, or more"));
    }
    Ok(())
}

/// Checks for a Slurm allocation with enough nodes, in which Slurm can start ranks or Ray.
fn in_allocation(settings: &Settings, out: &ReadOutput) -> Result<(), CliError> {
    let wanted = over_nodes(settings, out);
    let number = |name| std::env::var(name).ok().and_then(|n| n.trim().parse::<u32>().ok());
    let has = number("SLURM_JOB_ID").and_then(|_| number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES")));
    match has {
        Some(has) if has >= wanted => Ok(()),
        Some(has) => Err(CliError::config(format!(
            "the run needs {wanted} nodes, and this Slurm allocation has {has}"
        ))
        .hint("`supervise sbatch` asks for as many as it needs")),
        None => Err(CliError::config(format!(
            "the run needs {wanted} nodes, and this is no Slurm job: a run over several is started in an allocation"
        ))
        .hint("`supervise sbatch` writes and submits a batch script; or start it in one of your own with --nodes")),
    }
}

fn missing(address: Option<&str>, by: &str, why: &str) -> CliError {
    let what = match address {
        Some(address) => format!("the Ray cluster at {address}, which {by} names, does not answer"),
        None => {
            format!("{by} machines are asked for, and no Ray cluster that `ray start` began on this machine answers")
        }
    };
    let mut error = CliError::environment(format!("{what}: {why}"));
    if let Some(hint) = cluster::hint(why) {
        error = error.hint(hint);
    }
    match address {
        Some(_) => error.hint("start it, or unset that address: then a run on one machine starts a cluster of its own"),
        None => error
            .hint("ray start --head here, ray start --address=… on the others, or set RAY_ADDRESS")
            .hint("in a Slurm job it is started for you: `supervise sbatch`"),
    }
}

fn findings(said: &RayStatus, nodes: u32, gpus: Option<u32>, name: &str) -> Vec<Finding> {
    let has = format!(
        "the Ray cluster at {} answers: {} machines, {} GPUs",
        said.address, said.nodes, said.gpus
    );
    let few_nodes = said.nodes < nodes;
    let few_gpus = gpus.is_some_and(|wanted| said.gpus < f64::from(wanted));
    if !few_nodes && !few_gpus {
        return vec![Finding::note("ray_found", has)];
    }
    let wanted = gpus.map(|n| format!(" and {n} GPUs")).unwrap_or_default();
    vec![Finding::warning(
        "ray_too_small",
        format!("{has}; the run asks for {nodes} machines{wanted}, and {name} ends at once where they are missing"),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_too_small_is_told() {
        let said = RayStatus {
            address: "10.0.0.1:6379".into(),
            nodes: 2,
            gpus: 16.0,
            held: Vec::new(),
        };
        let code = |nodes, gpus| findings(&said, nodes, gpus, "verl")[0].code.to_string();
        assert_eq!(code(2, Some(16)), "ray_found");
        assert_eq!(code(2, None), "ray_found");
        assert_eq!(code(3, None), "ray_too_small");
        assert_eq!(code(2, Some(32)), "ray_too_small");
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let unsaid = missing(None, "trainer.nnodes: 2", "nothing").to_string();
        assert!(unsaid.contains("2 machines"), "{unsaid}");
        assert_eq!(missing(Some("10.0.0.1:6379"), "RAY_ADDRESS", "nothing").exit_code(), 69);
    }
}
