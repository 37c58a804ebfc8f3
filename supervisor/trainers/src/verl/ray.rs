//! The Ray cluster of a verl launch, and how a cluster of its own is kept apart from others on the machine.

use super::VerlConfigReader;
use crate::adapter::HostFacts;
use crate::command::{self, EntryPoint};
use crate::job;
use crate::launch::RayMode;
use crate::launch::ray::{ADDRESS, TEMP, scratch};
use crate::read::{MachineCount, ReadInput};
use crate::verl::ReleaseSeries;
use camino::Utf8PathBuf;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::RunSpec;

/// Arguments that `main_ppo` passes to `ray.init`.
const ADDRESS_KEY: &str = "ray_kwargs.ray_init.address";
const TEMP_KEY: &str = "ray_kwargs.ray_init._temp_dir";
/// Arguments that `ray start` has too; `ray.init` refuses them for an existing cluster.
const OF_A_MACHINE: [(&str, &str); 2] = [
    ("ray_kwargs.ray_init.num_cpus", "--num-cpus"),
    ("ray_kwargs.ray_init.object_store_memory", "--object-store-memory"),
];
const GPUS_KEY: &str = "ray_kwargs.ray_init.num_gpus";

pub(crate) fn read(reader: &mut VerlConfigReader<'_>, input: &ReadInput<'_>, sft: bool) -> RayMode {
    if sft && !matches!(command::entry(input.command), Some((EntryPoint::SftRay, _))) {
        return RayMode::Unused;
    }
    if job::submits(input.command) {
        return RayMode::Submitted;
    }
    let nodes = reader.positive("trainer.nnodes").unwrap_or(1);
    let key = reader.string(ADDRESS_KEY).filter(|a| !sft && !a.is_empty());
    let named = key.map(|address| (address, ADDRESS_KEY)).or_else(|| {
        let variable = (input.env)(ADDRESS).filter(|a| !a.is_empty())?;
        Some((variable, ADDRESS))
    });
    let apart = (input.env)(TEMP).is_none() && (sft || reader.value(TEMP_KEY).is_none());
    let (address, by) = match named {
        Some((address, _)) if address == "local" => return RayMode::Own { apart },
        Some((address, _)) if address == "auto" && input.starts_ray => return RayMode::Scripted,
        None if input.starts_ray => return RayMode::Scripted,
        Some((address, by)) => (Some(address), by.to_owned()),
        None if nodes > 1 && input.may_start_ray => return started(reader, nodes, apart, sft),
        None if nodes > 1 => (None, format!("trainer.nnodes: {nodes}")),
        None => return RayMode::Own { apart },
    };
    RayMode::Cluster {
        address,
        by,
        nodes,
        gpus: gpus(reader).and_then(|n| n.checked_mul(nodes)),
    }
}

fn gpus(reader: &mut VerlConfigReader<'_>) -> Option<u32> {
    let on_gpus = reader.string("trainer.device").is_none_or(|d| d == "cuda");
    reader.positive("trainer.n_gpus_per_node").filter(|_| on_gpus)
}

fn started(reader: &mut VerlConfigReader<'_>, nodes: u32, apart: bool, sft: bool) -> RayMode {
    let said = OF_A_MACHINE.iter().filter(|_| !sft);
    let options = said.filter_map(|(key, option)| Some(format!("{option}={}", reader.positive(key)?)));
    let options = options.collect();
    RayMode::Started {
        nodes,
        // verl's workers also request GPUs that are only declared.
        gpus: reader.positive(GPUS_KEY).filter(|_| !sft).or_else(|| gpus(reader)),
        options,
        apart,
    }
}

/// Machines that the configuration asks for; the SFT trainer of 0.6 has no such keys.
pub(crate) fn machines(reader: &mut VerlConfigReader<'_>) -> Option<MachineCount> {
    let (nodes, per_node) = ("trainer.nnodes", "trainer.n_gpus_per_node");
    if !reader.has(nodes) || !reader.has(per_node) {
        return None;
    }
    let on_cpus = reader.string("trainer.device").is_some_and(|d| d == "cpu");
    Some(MachineCount {
        nodes: reader.positive(nodes)?,
        gpus: reader.positive(per_node).filter(|_| !on_cpus).unwrap_or_default(),
    })
}

/// Settings that make a launch use the intended cluster.
#[derive(Debug, Default)]
pub(crate) struct RayIsolation {
    pub(crate) overrides: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) scratch: Option<Utf8PathBuf>,
}

/// Only for a cluster of the run's own; one named by the user is left as configured.
pub(crate) fn apart(sft: bool, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> RayIsolation {
    let mut out = RayIsolation::default();
    let version = spec.trainer_version.as_deref().and_then(ReleaseSeries::of);
    let has_key = !sft && version.is_none_or(|v| v >= ReleaseSeries::V0_6) && order.from != StartPoint::AsIs;
    let apart = match host.trainer.ray {
        RayMode::Own { apart } => apart,
        RayMode::Started { apart, .. } => {
            let keys = OF_A_MACHINE.iter().map(|(key, _)| key).chain([&GPUS_KEY]);
            out.overrides
                .extend(keys.filter(|_| has_key).map(|key| format!("++{key}=null")));
            out.in_scratch(apart, spec, order, host);
            return out;
        }
        _ => return out,
    };
    if has_key {
        out.overrides.push(format!("++{ADDRESS_KEY}=local"));
    }
    // Older releases and some variants of PPO do not pass the key on, and the SFT trainer passes nothing.
    let passes_on = matches!(command::entry(spec.trainer_command()), Some((EntryPoint::Ppo, _))) && version.is_some();
    if !(has_key && passes_on) {
        out.env.push((ADDRESS, "local".to_owned()));
    }
    out.in_scratch(apart, spec, order, host);
    out
}

impl RayIsolation {
    fn in_scratch(&mut self, apart: bool, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) {
        if apart {
            let tmp = spec.env.get("TMPDIR").or_else(|| host.env.get("TMPDIR"));
            let dir = scratch(tmp.map(String::as_str), spec, order);
            self.env.push((TEMP, dir.to_string()));
            self.scratch = Some(dir);
        }
    }
}
