//! The specification of a run that is never launched: all that an I/O worker needs to know.

use camino::Utf8Path;
use std::collections::BTreeMap;
use supervise_core::id::RunId;
use supervise_core::spec::policy::Policy;
use supervise_core::spec::{
    GangSpec, LauncherKind, Numbering, ResumeIntent, RoleSpec, RunSpec, SaveCadence, SavePolicy, TrainerKind,
};

/// The specification of `run`: one actor, saved at every step.
#[must_use]
pub fn bare(run: &str, root: &Utf8Path, run_dir: &Utf8Path) -> RunSpec {
    let contents: Vec<String> = ["model", "optimizer", "extra"].map(str::to_owned).to_vec();
    RunSpec {
        run: RunId(run.to_owned()),
        name: None,
        trainer: TrainerKind::new("verl_ppo"),
        trainer_version: None,
        declared: None,
        learnt: None,
        config_hash: 0,
        root: Some(root.to_owned()),
        run_dir: run_dir.to_owned(),
        config_file: None,
        command: Vec::new(),
        cwd: root.to_owned(),
        env: BTreeMap::new(),
        gang: GangSpec {
            launcher: LauncherKind::Driver,
            workers: 1,
            nodes: 1,
            gpus: Vec::new(),
        },
        cadence: SaveCadence {
            every: Some(1),
            at_end: true,
        },
        last_step: None,
        world: None,
        indivisible: Vec::new(),
        roles: vec![RoleSpec {
            name: "actor".into(),
            save_contents: contents.clone(),
            load_contents: contents,
            load_wish: false,
            megatron: None,
            fsdp_size: None,
            sequence: None,
            keep: None,
        }],
        resume: ResumeIntent::Auto,
        keep: None,
        policy: Policy::default(),
        not_restored: Vec::new(),
        saves: SavePolicy::Steps,
        numbering: Numbering::Steps,
        may_end_early: false,
        saves_at_stop: false,
        has_tail: false,
        save_door: false,
    }
}
