//! The Ray cluster of a run, and what a launch is given so that it is on that one.

use super::case::{Case, with};
use supervise_core::spec::LauncherKind;
use supervise_trainers::RayMode;

const LAUNCHER: &str = "python3 -m areal.infra.launcher.ray sft.py";
const CONTROLLER: &str = "python3 sft.py scheduler.type=ray";

/// A run on so many nodes, on which nothing but the command and the environment says more.
fn on(nodes: u32, command: &'static str, env: &'static [(&'static str, &'static str)]) -> Case {
    let yaml = with("  mode: auto\n  freq_steps: 2", "");
    let more = format!("cluster: {{fileroot: /share, n_nodes: {nodes}, n_gpus_per_node: 4}}");
    Case {
        yaml: yaml.replace("cluster: {fileroot: /share}", &more),
        command,
        env,
        ..Case::default()
    }
}

fn cluster(address: Option<&str>, by: &str, nodes: u32) -> RayMode {
    RayMode::Cluster {
        address: address.map(str::to_owned),
        by: by.to_owned(),
        nodes,
        gpus: Some(4 * nodes),
    }
}

#[test]
fn only_its_launcher_and_its_scheduler_there_use_ray() {
    for (command, is_used) in [
        (LAUNCHER, true),
        (CONTROLLER, true),
        ("python3 sft.py scheduler.type=local", false),
        ("python3 sft.py scheduler.type=slurm", false),
        ("python3 -m areal.infra.launcher.local sft.py", false),
        ("torchrun --nproc-per-node 2 sft.py", false),
    ] {
        let ray = on(1, command, &[("USER", "ann"), ("RAY_ADDRESS", "")]).good().facts.ray;
        let meant = if is_used {
            RayMode::Own { apart: true }
        } else {
            RayMode::Unused
        };
        assert_eq!(ray, meant, "{command}");
    }
}

#[test]
fn a_cluster_that_is_meant_is_left_as_it_was_said() {
    const THERE: &[(&str, &str)] = &[("USER", "ann"), ("RAY_ADDRESS", "10.0.0.1:6379")];
    for (case, meant) in [
        (on(1, LAUNCHER, THERE), cluster(Some("10.0.0.1:6379"), "RAY_ADDRESS", 1)),
        (
            on(3, CONTROLLER, THERE),
            cluster(Some("10.0.0.1:6379"), "RAY_ADDRESS", 3),
        ),
        (
            on(2, LAUNCHER, &[("USER", "ann")]),
            cluster(None, "cluster.n_nodes: 2", 2),
        ),
    ] {
        assert_eq!(case.good().facts.ray, meant, "{}", case.command);
        assert!(case.says("ray_cluster").is_some());
        let plan = case.launch();
        assert_eq!(
            (plan.scratch, plan.env.iter().any(|(k, _)| k.starts_with("RAY_"))),
            (None, false)
        );
    }
    let alone = on(2, CONTROLLER, &[("USER", "ann"), ("RAY_ADDRESS", "local")]).problem();
    assert!(
        alone.contains("cluster.n_nodes") && alone.contains("2 machines"),
        "{alone}"
    );
}

/// On somebody's cluster: nothing of ours is in that job's environment, and its name is ours.
#[test]
fn a_job_that_is_submitted_is_named_and_waited_for() {
    for command in [
        "ray job submit --no-wait -- python3 sft.py scheduler.type=ray",
        "ray job submit --submission-id=mine --no-wait -- python3 -m areal.infra.launcher.ray sft.py",
    ] {
        let case = on(2, command, &[("USER", "ann")]);
        assert_eq!(case.good().facts.ray, RayMode::Submitted, "{command}");
        let words = case.words();
        let named = "ray job submit --submission-id=supervise-feedfacefeedface-1 -- python3";
        assert!(
            words.starts_with(named) && words.contains("++recover.mode=auto"),
            "{words}"
        );
        let plan = case.launch();
        assert!(
            plan.env.iter().all(|(name, _)| !name.starts_with("RAY_")),
            "{:?}",
            plan.env
        );
        assert!(
            plan.notes.iter().any(|note| note.contains("--no-wait")),
            "{:?}",
            plan.notes
        );
        assert!(case.says("ray_job").is_some_and(|text| text.contains("USER")));
    }
}

#[test]
fn one_of_its_own_is_kept_apart() {
    let given = |case: &Case, name: &str| {
        let plan = case.launch();
        plan.env.into_iter().find(|(k, _)| k == name).map(|(_, v)| v)
    };
    for command in [LAUNCHER, CONTROLLER] {
        let case = on(1, command, &[("USER", "ann")]);
        assert_eq!(given(&case, "RAY_ADDRESS").as_deref(), Some("local"));
        assert_eq!(
            given(&case, "RAY_TMPDIR").as_deref(),
            Some("/tmp/ray-feedfacefeedface-1")
        );
        assert_eq!(case.launch().scratch.unwrap(), "/tmp/ray-feedfacefeedface-1");
        assert!(case.says("ray_own").is_some());
        let case = on(1, command, &[("USER", "ann"), ("RAY_TMPDIR", "/fast")]);
        assert_eq!((given(&case, "RAY_TMPDIR"), case.launch().scratch), (None, None));
    }
}

#[test]
fn several_machines_in_a_job_that_no_cluster_is_named_for_are_ours_to_bring_up() {
    for command in [LAUNCHER, CONTROLLER] {
        let case = Case {
            may_start_ray: true,
            ..on(3, command, &[("USER", "ann")])
        };
        let out = case.good();
        let started = RayMode::Started {
            nodes: 3,
            gpus: Some(4),
            options: Vec::new(),
            apart: true,
        };
        assert_eq!(out.facts.ray, started, "{command}");
        assert_eq!(
            (out.gang.launcher, out.gang.workers, out.gang.nodes),
            (LauncherKind::Ray, 3, 3)
        );
        let plan = case.launch();
        // The one that brings it up says where it is.
        assert!(plan.env.iter().all(|(name, _)| name != "RAY_ADDRESS"));
        assert!(plan.scratch.is_some() && case.says("ray_started").is_some());
    }
    let named = Case {
        may_start_ray: true,
        ..on(3, LAUNCHER, &[("USER", "ann"), ("RAY_ADDRESS", "10.0.0.1:6379")])
    };
    assert_eq!(named.good().gang.launcher, LauncherKind::Driver);
}
