//! Configurations as users write them, read.

use camino::Utf8Path;
use supervise_config::ConfigError;
use supervise_config::compose::{ComposedConfig, ConfigLoader, LoadResult, compose};
use supervise_core::checkpoint::StateKind;
use supervise_core::id::Step;
use supervise_core::spec::{LauncherKind, ResumeIntent, SaveCadence};
use supervise_trainers::verl::VerlFacts;
use supervise_trainers::{ReadInput, ReadOutput, read};

/// One file; everything else belongs to the trainer.
struct One(&'static str);

impl ConfigLoader for One {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        Ok(match config {
            "my" => LoadResult::Text {
                text: self.0.to_owned(),
                file: "my.yaml".to_owned(),
            },
            _ => LoadResult::ByTrainer,
        })
    }
}

/// Input that is read, and from what.
pub(crate) struct Case {
    pub(crate) yaml: Option<&'static str>,
    pub(crate) command: &'static str,
    pub(crate) set: &'static [&'static str],
    pub(crate) workers: Option<u32>,
    pub(crate) no_recovery: bool,
    pub(crate) env: &'static [(&'static str, &'static str)],
    pub(crate) may_start_ray: bool,
    pub(crate) version: Option<&'static str>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            yaml: None,
            command: "",
            set: &[],
            workers: None,
            no_recovery: false,
            env: &[],
            may_start_ray: false,
            version: Some("0.9.1"),
        }
    }
}

impl Case {
    pub(crate) fn read(&self) -> Result<ReadOutput, Vec<ConfigError>> {
        let composed: Option<ComposedConfig> = self.yaml.map(|text| compose(&One(text), "my", &[]).unwrap());
        let command: Vec<String> = self.command.split_whitespace().map(str::to_owned).collect();
        let set: Vec<String> = self.set.iter().map(|s| (*s).to_owned()).collect();
        read(&ReadInput {
            composed: composed.as_ref(),
            config_file: self.yaml.map(|_| Utf8Path::new("/conf/my.yaml")),
            set: &set,
            command: &command,
            cwd: Utf8Path::new("/data"),
            env: &|name| {
                let set = self.env.iter().find(|(n, _)| *n == name);
                set.map(|(_, v)| (*v).to_owned())
                    .or_else(|| (name == "USER").then(|| "ann".to_owned()))
            },
            file: &|_| None,
            workers: self.workers,
            launcher: None,
            user: None,
            kind: None,
            starts_ray: false,
            may_start_ray: self.may_start_ray,
            recovery: !self.no_recovery,
            recovery_said: self.no_recovery,
            version: self.version,
            printed: None,
        })
    }

    pub(crate) fn good(&self) -> ReadOutput {
        self.read().unwrap_or_else(|problems| panic!("{}", text(&problems)))
    }

    /// The only problem, in words.
    pub(crate) fn problem(&self) -> String {
        let problems = self.read().unwrap_err();
        assert_eq!(problems.len(), 1, "{}", text(&problems));
        text(&problems)
    }
}

pub(crate) fn text(problems: &[ConfigError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) fn yaml(text: &'static str) -> Case {
    Case {
        yaml: Some(text),
        ..Case::default()
    }
}

pub(crate) fn command(text: &'static str) -> Case {
    Case {
        command: text,
        ..Case::default()
    }
}

const GRPO: &str = "\
trainer:
  project_name: p
  experiment_name: ${oc.env:USER}
  save_freq: 20
  nnodes: 2
algorithm:
  adv_estimator: grpo
";

#[test]
fn a_yaml_that_says_only_what_its_author_changed_is_enough() {
    let read = yaml(GRPO).good();
    assert_eq!(read.kind, supervise_trainers::verl::PPO);
    assert_eq!(read.root.as_deref(), Some(Utf8Path::new("/data/checkpoints/p/ann")));
    assert_eq!(
        read.cadence,
        SaveCadence {
            every: Some(20),
            at_end: true
        }
    );
    assert_eq!((read.last_step, read.world, read.keep), (None, Some(16), None));
    assert_eq!(
        read.roles.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
        ["actor"]
    );
    assert_eq!(read.roles[0].save_contents, ["model", "optimizer", "extra"]);
    assert!(!read.roles[0].load_wish);
    assert_eq!(
        (read.resume, read.gang.launcher),
        (ResumeIntent::Auto, LauncherKind::Driver)
    );
    assert_eq!(read.not_restored, [StateKind::Rollout]);
    let facts = VerlFacts::of(&read.facts);
    assert!(facts.validates_first && !facts.file_logger);
    assert!(read.findings.iter().any(|f| f.code == "relative_root"));
    assert_eq!(
        read.command,
        [
            "python3",
            "-m",
            "verl.trainer.main_ppo",
            "++trainer.project_name='p'",
            "++trainer.experiment_name='${oc.env:USER}'",
            "++trainer.save_freq=20",
            "++trainer.nnodes=2",
            "++algorithm.adv_estimator='grpo'",
            "{overrides}",
        ]
    );
}

#[test]
fn a_hydra_configuration_is_given_to_hydra() {
    let read = yaml("defaults: [ppo_trainer, _self_]\ntrainer: {save_freq: 5, default_local_dir: /r//c/./d/}\n").good();
    assert_eq!(read.root.as_deref(), Some(Utf8Path::new("/r/c/d")));
    assert_eq!(
        read.command,
        [
            "python3",
            "-m",
            "verl.trainer.main_ppo",
            "--config-path=/conf",
            "--config-name=my",
            "hydra.searchpath=[pkg://verl.trainer.config]",
            "{overrides}"
        ]
    );
    assert_eq!(read.roles.len(), 2, "GAE is the default, so there is a critic");

    let said = yaml("defaults: [ppo_trainer, _self_]\nhydra: {searchpath: ['pkg://verl.trainer.config']}\ntrainer: {save_freq: 5}\n").good();
    assert!(!said.command.iter().any(|w| w.contains("searchpath")));
    let whole = yaml("actor_rollout_ref: {actor: {_target_: x}}\ntrainer: {save_freq: 5}\n").good();
    assert_eq!(whole.command[3], "--config-path=/conf");
}

#[test]
fn overrides_in_the_command_and_flags_count_and_win() {
    let case = Case {
        yaml: Some(GRPO),
        command: "python -m verl.trainer.main_ppo trainer.save_freq=7 +trainer.new=1 critic.enable=True trainer.nnodes=1",
        set: &["trainer.save_freq=9", "trainer.total_training_steps=120"],
        ..Case::default()
    };
    let read = case.good();
    assert_eq!(
        (read.cadence.every, read.last_step, read.world),
        (Some(9), Some(Step(120)), Some(8))
    );
    assert_eq!(read.roles.len(), 2);
    assert_eq!(read.facts.settings, case.set);
    let at = |word: &str| read.command.iter().position(|w| w == word).unwrap();
    assert!(
        at("++trainer.save_freq=20") < at("trainer.save_freq=7"),
        "the command wins over the file: {:?}",
        read.command
    );
    assert_eq!(
        read.tree.get("trainer.save_freq").unwrap().origin.to_string(),
        "--set trainer.save_freq=9"
    );
    assert_eq!(
        read.tree.get("trainer.project_name").unwrap().origin.to_string(),
        "my.yaml:2"
    );
    assert_eq!(
        read.tree.get("trainer.logger").unwrap().origin.to_string(),
        "default of verl 0.9"
    );
}

#[test]
fn a_command_alone_is_enough() {
    let read = command("python3 -m verl.trainer.main_ppo trainer.save_freq=10 trainer.default_local_dir=/r").good();
    assert_eq!(
        (read.kind, read.cadence.every),
        (supervise_trainers::verl::PPO, Some(10))
    );
    assert_eq!(read.command.len(), 5, "{:?}", read.command);
    let read = command("bash run.sh").good();
    assert_eq!(
        (read.kind, read.root, read.command.len()),
        (supervise_trainers::plain::PLAIN, None, 2)
    );
    assert!(text(&command("").read().unwrap_err()).contains("neither a configuration nor a command"));
}

#[test]
fn a_configuration_that_only_the_command_names_has_to_be_given() {
    for line in [
        "python3 -m verl.trainer.main_ppo --config-path=/c --config-name=my trainer.save_freq=1",
        "python3 -m verl.trainer.main_ppo --config-dir /c trainer.save_freq=1",
        "python3 -m verl.trainer.main_ppo -cn my trainer.save_freq=1",
    ] {
        assert!(
            command(line).problem().contains("a configuration that is not read"),
            "{line}"
        );
    }
    command("python3 -m verl.trainer.main_ppo --config-name=ppo_trainer trainer.save_freq=1").good();
    let megatron = command(
        "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer critic.enable=False trainer.save_freq=1",
    );
    assert!(megatron.good().roles[0].megatron.is_some());
    let given = Case {
        yaml: Some(GRPO),
        command: "python3 -m verl.trainer.main_ppo --config-path=/conf --config-name=my {overrides}",
        ..Case::default()
    };
    let read = given.good();
    assert_eq!(
        read.command.len(),
        6,
        "the file is passed by the command itself: {:?}",
        read.command
    );
    assert!(!read.findings.iter().any(|f| f.code == "config_differs"));
    let other = Case {
        command: "python3 -m verl.trainer.main_ppo --config-name=their",
        ..given
    };
    assert!(other.good().findings.iter().any(|f| f.code == "config_differs"));
}

#[test]
fn a_script_gets_the_file_only_if_it_takes_it() {
    let case = Case {
        yaml: Some(GRPO),
        command: "bash run.sh",
        ..Case::default()
    };
    assert!(case.good().findings.iter().any(|f| f.code == "config_not_passed"));
    let case = Case {
        yaml: Some(GRPO),
        command: "bash run.sh {config} {overrides}",
        ..Case::default()
    };
    let read = case.good();
    assert!(!read.findings.iter().any(|f| f.code == "config_not_passed"));
    assert_eq!(read.command, ["bash", "run.sh", "{config}", "{overrides}"]);
}

#[test]
fn what_makes_a_resume_impossible_is_a_problem_with_its_place() {
    for (yaml_text, key, says) in [
        (
            "trainer: {save_freq: -1}\nalgorithm: {}\n",
            "my.yaml:1:11: trainer.save_freq",
            "no checkpoint at all",
        ),
        (
            "trainer: {project_name: x}\nalgorithm: {}\n",
            "trainer.save_freq",
            "no checkpoint at all",
        ),
        (
            "trainer: {save_freq: 1, resume_mode: yes_please}\nalgorithm: {}\n",
            "trainer.resume_mode",
            "knows no mode `yes_please`",
        ),
        (
            "trainer: {save_freq: 1, resume_mode: resume_path}\nalgorithm: {}\n",
            "trainer.resume_from_path",
            "no path is given",
        ),
        (
            "trainer: {save_freq: 1, resume_mode: resume_path, resume_from_path: /r/global_step_4/}\nalgorithm: {}\n",
            "trainer.resume_from_path",
            "trailing slash",
        ),
        (
            "trainer: {save_freq: 1, resume_mode: resume_path, resume_from_path: /r/global_step_4/actor}\nalgorithm: {}\n",
            "trainer.resume_from_path",
            "a part of a step",
        ),
        (
            "trainer: {save_freq: 1, resume_mode: resume_path, resume_from_path: /r/latest}\nalgorithm: {}\n",
            "trainer.resume_from_path",
            "not a step directory",
        ),
        (
            "trainer: {save_freq: 1, resume_mode: resume_path, resume_from_path: /r/global_step_04}\nalgorithm: {}\n",
            "trainer.resume_from_path",
            "not how verl writes",
        ),
        (
            "trainer: {save_freq: 1, default_local_dir: 'hdfs://x/y'}\nalgorithm: {}\n",
            "trainer.default_local_dir",
            "no path of a file system",
        ),
        (
            "trainer: {save_freq: 1, default_local_dir: ~/x}\nalgorithm: {}\n",
            "trainer.default_local_dir",
            "does not expand",
        ),
        (
            "trainer: {save_freq: 1}\nactor_rollout_ref: {actor: {checkpoint: {load_contents: []}}}\n",
            "load_contents",
            "nothing would be loaded",
        ),
        (
            "trainer: {save_freq: 1}\nactor_rollout_ref: {actor: {checkpoint: {load_contents: [hf_model]}}}\n",
            "load_contents",
            "FSDP ignores hf_model",
        ),
        (
            "trainer: {save_freq: 1}\nactor_rollout_ref: {actor: {checkpoint: {save_contents: [hf_model]}}}\n",
            "save_contents",
            "no model shards are saved",
        ),
        (
            "trainer: {save_freq: 1}\nactor_rollout_ref: {actor: {checkpoint: {save_contents: [model, adam]}}}\n",
            "save_contents",
            "knows no contents `adam`",
        ),
        (
            "trainer: {save_freq: 1}\nactor_rollout_ref: {actor: {checkpoint: {save_contents: \"['model']\"}}}\n",
            "save_contents",
            "expected a list of names, found a string",
        ),
        (
            "trainer: {save_freq: 1}\nactor_rollout_ref: {actor: {strategy: veomni}}\n",
            "actor_rollout_ref.actor.strategy",
            "`veomni` is not known yet",
        ),
        (
            "trainer: {save_freq: 1.5}\nalgorithm: {}\n",
            "trainer.save_freq",
            "expected an integer, found",
        ),
        (
            "trainer: {save_freq: 99999999999999999999}\nalgorithm: {}\n",
            "trainer.save_freq",
            "99999999999999999999 is out of range",
        ),
        (
            "trainer: {save_freq: 1, nnodes: 0}\nalgorithm: {}\n",
            "trainer.nnodes",
            "must be greater than 0 (found 0)",
        ),
        (
            "trainer: {save_freq: 1, default_hdfs_dir: /x, use_v1: false}\nalgorithm: {}\n",
            "trainer.default_hdfs_dir",
            "every resume fails",
        ),
        (
            "trainer: {save_freq: 1, experiment_name: '${nowhere}'}\nalgorithm: {}\n",
            "trainer.experiment_name",
            "nowhere",
        ),
    ] {
        let case = yaml(yaml_text);
        let problems = case.read().unwrap_err();
        let said = text(&problems);
        assert!(said.contains(key) && said.contains(says), "{yaml_text}: {said}");
    }
}

#[test]
fn every_problem_is_told_at_once() {
    let problems = yaml("trainer: {save_freq: 0, resume_mode: x}\nactor_rollout_ref: {actor: {strategy: veomni}}\n")
        .read()
        .unwrap_err();
    assert_eq!(problems.len(), 3, "{}", text(&problems));
}

#[test]
fn without_recovery_the_run_is_only_watched() {
    let case = Case {
        yaml: Some(
            "defaults: [ppo_trainer, override model_engine: veomni, _self_]\ntrainer: {save_freq: -1}\nalgorithm: {adv_estimator: grpo}\n",
        ),
        no_recovery: true,
        ..Case::default()
    };
    let read = case.good();
    assert_eq!(
        read.cadence,
        SaveCadence {
            every: None,
            at_end: false
        }
    );
    let codes: Vec<_> = read.findings.iter().map(|f| &*f.code).collect();
    assert!(
        codes.contains(&"never_saves") && codes.contains(&"layout_unknown"),
        "{codes:?}"
    );
}

#[test]
fn the_engine_that_was_chosen_decides_the_layout() {
    for case in [
        yaml(
            "defaults: [ppo_trainer, {override model_engine: torchtitan}, _self_]\ntrainer: {save_freq: 1}\nalgorithm: {adv_estimator: grpo}\n",
        ),
        yaml("model_engine: torchtitan\ntrainer: {save_freq: 1}\nalgorithm: {adv_estimator: grpo}\n"),
        command(
            "python3 -m verl.trainer.main_ppo model_engine=veomni trainer.save_freq=1 algorithm.adv_estimator=grpo",
        ),
        command("torchrun -m verl.trainer.sft_trainer engine=automodel optim=automodel"),
        command("python3 -m verl.experimental.vla.main_ppo trainer.save_freq=1 algorithm.adv_estimator=grpo"),
    ] {
        let said = case.problem();
        assert!(
            said.contains("not known yet") && said.contains("--no-recovery"),
            "{said}"
        );
    }
    command("python3 -m verl.trainer.main_ppo model_engine=dp actor_rollout_ref.actor.strategy=fsdp2 critic.strategy=fsdp2 trainer.save_freq=1").good();
}
