//! The Ray cluster of a run, and what a launch is given so that it is on that one.

use crate::launch::{FULL, arrange, from_step, order, spec};
use crate::reading::Case;
use supervise_core::journal::record::StartPoint;
use supervise_core::spec::{LauncherKind, RunSpec};
use supervise_trainers::{LaunchPlan, RayMode, TrainerFacts, adapter};

const PPO: &str =
    "python3 -m verl.trainer.main_ppo trainer.default_local_dir=/c trainer.save_freq=1 trainer.device=cuda";
const SFT: &str = "python3 -m verl.trainer.sft_trainer_ray trainer.default_local_dir=/c data.train_files=x model.path=/m trainer.save_freq=1";

fn ray(command: &'static str, env: &'static [(&str, &str)]) -> RayMode {
    Case {
        command,
        env,
        ..Case::default()
    }
    .good()
    .facts
    .ray
}

fn with(base: &str, more: &str) -> &'static str {
    format!("{base} {more}").leak()
}

fn cluster(address: Option<&str>, by: &str, nodes: u32, gpus: Option<u32>) -> RayMode {
    RayMode::Cluster {
        address: address.map(str::to_owned),
        by: by.to_owned(),
        nodes,
        gpus,
    }
}

#[test]
fn one_machine_and_no_cluster_meant_is_a_cluster_of_its_own() {
    for command in [PPO, SFT] {
        assert_eq!(ray(command, &[]), RayMode::Own { apart: true }, "{command}");
        assert_eq!(ray(command, &[("RAY_ADDRESS", "")]), RayMode::Own { apart: true });
        assert_eq!(ray(command, &[("RAY_ADDRESS", "local")]), RayMode::Own { apart: true });
        assert_eq!(ray(command, &[("RAY_TMPDIR", "/fast")]), RayMode::Own { apart: false });
    }
    assert_eq!(
        ray(with(PPO, "++ray_kwargs.ray_init._temp_dir=/fast"), &[]),
        RayMode::Own { apart: false }
    );
    let torchrun = "torchrun --nproc-per-node=2 -m verl.trainer.sft_trainer trainer.default_local_dir=/c data.train_files=x model.path=/m trainer.save_freq=1";
    assert_eq!(ray(torchrun, &[("RAY_ADDRESS", "10.0.0.1:6379")]), RayMode::Unused);
}

#[test]
fn a_cluster_that_is_meant_is_left_as_it_was_said() {
    assert_eq!(
        ray(PPO, &[("RAY_ADDRESS", "10.0.0.1:6379")]),
        cluster(Some("10.0.0.1:6379"), "RAY_ADDRESS", 1, Some(8))
    );
    assert_eq!(
        ray(SFT, &[("RAY_ADDRESS", "auto")]),
        cluster(Some("auto"), "RAY_ADDRESS", 1, Some(1))
    );
    let key = "++ray_kwargs.ray_init.address=10.0.0.2:6379";
    assert_eq!(
        ray(with(PPO, key), &[("RAY_ADDRESS", "10.0.0.1:6379")]),
        cluster(Some("10.0.0.2:6379"), "ray_kwargs.ray_init.address", 1, Some(8)),
        "what is passed to ray.init wins over the variable"
    );
    assert_eq!(
        ray(
            with(PPO, "++ray_kwargs.ray_init.address=local"),
            &[("RAY_ADDRESS", "10.0.0.1:6379")]
        ),
        RayMode::Own { apart: true }
    );
    assert_eq!(
        ray(with(PPO, "trainer.nnodes=4"), &[]),
        cluster(None, "trainer.nnodes: 4", 4, Some(32))
    );
    assert_eq!(
        ray(with(PPO, "trainer.nnodes=4 trainer.device=npu"), &[]),
        cluster(None, "trainer.nnodes: 4", 4, None),
        "no GPUs are counted there"
    );
    assert_eq!(
        ray(
            with("ray job submit --", PPO),
            &[("RAY_ADDRESS", "http://10.0.0.1:8265")]
        ),
        RayMode::Submitted
    );
}

#[test]
fn several_machines_that_no_cluster_is_named_for_are_ours_to_bring_up_in_a_job() {
    let read = |command: &'static str, env: &'static [(&str, &str)]| {
        Case {
            command,
            env,
            may_start_ray: true,
            ..Case::default()
        }
        .good()
    };
    let more = "trainer.nnodes=4 ++ray_kwargs.ray_init.num_cpus=96 ++ray_kwargs.ray_init.num_gpus=8";
    let out = read(with(PPO, more), &[]);
    let started = RayMode::Started {
        nodes: 4,
        gpus: Some(8),
        options: vec!["--num-cpus=96".to_owned()],
        apart: true,
    };
    assert_eq!(out.facts.ray, started);
    assert_eq!(
        (out.gang.launcher, out.gang.workers, out.gang.nodes),
        (LauncherKind::Ray, 4, 4)
    );
    assert_eq!(out.world, Some(32), "the ranks are Ray's");
    let sft = read(with(SFT, "trainer.nnodes=2"), &[]);
    assert_eq!((sft.gang.launcher, sft.gang.nodes), (LauncherKind::Ray, 2));
    for (command, env) in [
        (with(PPO, "trainer.nnodes=4"), &[("RAY_ADDRESS", "10.0.0.1:6379")][..]),
        (with(PPO, "trainer.nnodes=1"), &[]),
        (PPO, &[]),
    ] {
        let out = read(command, env);
        assert_eq!(out.gang.launcher, LauncherKind::Driver, "{command}");
        assert!(!matches!(out.facts.ray, RayMode::Started { .. }), "{command}");
    }
    // `ray.init` refuses what only a cluster of its own can be given; the address it takes from the environment.
    let mut ppo = spec(supervise_trainers::verl::PPO, PPO);
    ppo.trainer_version = Some("0.9.1".to_owned());
    let plan = launch(&ppo, started, StartPoint::Fresh);
    for key in ["num_cpus", "num_gpus", "object_store_memory"] {
        let nothing = format!("++ray_kwargs.ray_init.{key}=null");
        assert!(plan.overrides.contains(&nothing), "{:?}", plan.overrides);
    }
    assert_eq!(address(&plan), (false, false));
    assert_eq!(plan.scratch.unwrap().file_name().map(|n| &n[..4]), Some("ray-"));
}

fn launch(spec: &RunSpec, ray: RayMode, from: StartPoint) -> LaunchPlan {
    let facts = TrainerFacts {
        ray,
        ..TrainerFacts::default()
    };
    arrange(spec, &order(from), facts)
}

fn address(plan: &LaunchPlan) -> (bool, bool) {
    let key = plan
        .overrides
        .iter()
        .any(|o| o == "++ray_kwargs.ray_init.address=local");
    let variable = plan.env.iter().any(|(k, v)| k == "RAY_ADDRESS" && v == "local");
    (key, variable)
}

#[test]
fn a_cluster_of_its_own_is_asked_for_in_the_way_that_this_version_hears() {
    let mut ppo = spec(supervise_trainers::verl::PPO, PPO);
    let own = RayMode::Own { apart: true };
    for (version, heard) in [
        (Some("0.9.1"), (true, false)),
        (Some("0.6.0"), (true, false)),
        (Some("0.5.0"), (false, true)),
        (Some("0.4.1"), (false, true)),
        (None, (true, true)),
    ] {
        ppo.trainer_version = version.map(str::to_owned);
        let plan = launch(&ppo, own.clone(), StartPoint::Fresh);
        assert_eq!(address(&plan), heard, "{version:?}");
    }
    ppo.trainer_version = Some("0.9.1".to_owned());
    ppo.command = vec!["bash".into(), "run.sh".into()];
    let plan = launch(&ppo, own.clone(), StartPoint::Fresh);
    assert_eq!(address(&plan), (true, true), "what a script starts is not known");
    let sft = spec(supervise_trainers::verl::SFT, SFT);
    assert_eq!(address(&launch(&sft, own.clone(), StartPoint::Fresh)), (false, true));
    // As it is means: no override of ours.
    assert_eq!(address(&launch(&ppo, own, StartPoint::AsIs)), (false, true));
    for other in [
        RayMode::Submitted,
        RayMode::Unused,
        cluster(Some("auto"), "RAY_ADDRESS", 1, None),
    ] {
        let plan = launch(&ppo, other, StartPoint::Fresh);
        assert_eq!(address(&plan), (false, false));
        assert_eq!(plan.scratch, None);
        assert!(plan.env.iter().all(|(k, _)| k != "RAY_TMPDIR"));
    }
}

#[test]
fn every_attempt_has_a_directory_of_its_own_that_is_short_enough_for_sockets() {
    let mut sft = spec(supervise_trainers::verl::SFT, SFT);
    sft.run.0 = "0123456789abcdef".to_owned();
    let dir = |spec: &RunSpec| {
        let plan = launch(spec, RayMode::Own { apart: true }, StartPoint::Fresh);
        let said = plan.env.iter().find(|(k, _)| k == "RAY_TMPDIR").map(|(_, v)| v.clone());
        assert_eq!(said.as_deref(), plan.scratch.as_deref().map(camino::Utf8Path::as_str));
        said.unwrap()
    };
    assert_eq!(dir(&sft), "/tmp/ray-0123456789abcdef-7");
    sft.env.insert("TMPDIR".into(), "/local/job1".into());
    assert_eq!(dir(&sft), "/local/job1/ray-0123456789abcdef-7");
    sft.env
        .insert("TMPDIR".into(), "/local/scratch/of/somebody/job1".into());
    assert_eq!(dir(&sft), "/tmp/ray-0123456789abcdef-7");
    sft.env.insert("TMPDIR".into(), "relative".into());
    assert_eq!(dir(&sft), "/tmp/ray-0123456789abcdef-7");
}

#[test]
fn a_plan_names_the_cluster() {
    let ppo = spec(supervise_trainers::verl::PPO, PPO);
    let told = |ray: RayMode| {
        let facts = TrainerFacts {
            ray,
            ..TrainerFacts::default()
        };
        let found = adapter(ppo.trainer).preflight(&ppo, &facts);
        found.into_iter().find(|f| f.code.starts_with("ray_")).map(|f| f.detail)
    };
    assert!(told(RayMode::Own { apart: true }).unwrap().contains("of its own"));
    let named = told(cluster(Some("10.0.0.1:6379"), "RAY_ADDRESS", 2, None)).unwrap();
    assert!(
        named.contains("10.0.0.1:6379") && named.contains("RAY_ADDRESS"),
        "{named}"
    );
    let any = told(cluster(Some("auto"), "RAY_ADDRESS", 1, None)).unwrap();
    assert!(any.contains("another run's own"), "{any}");
    let started = told(cluster(None, "trainer.nnodes: 2", 2, None)).unwrap();
    assert!(started.contains("`ray start` began"), "{started}");
    assert_eq!(told(RayMode::Unused), None);
    let plan = arrange(&ppo, &from_step(3, FULL), TrainerFacts::default());
    assert_eq!(address(&plan), (false, false), "nothing is known of Ray there");
}
