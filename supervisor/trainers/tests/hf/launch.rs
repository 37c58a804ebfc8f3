//! Input that is read from a command and its YAML, and what is started.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_config::ConfigError;
use supervise_config::compose::{ComposedConfig, ConfigLoader, LoadResult, compose};
use supervise_core::checkpoint::{CkptId, Finding, PinsHash};
use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, Scanner};
use supervise_core::id::{AttemptNo, RunId, Step, WorkerId};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::rulebook::taxonomy::Class;
use supervise_core::spec::policy::Policy;
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_trainers::hf::HF;
use supervise_trainers::{ExpectedLayout, HostFacts, LaunchPlan, ReadInput, ReadOutput, adapter, read, registry};

struct One(String);

impl ConfigLoader for One {
    fn load(&self, _config: &str) -> Result<LoadResult, ConfigError> {
        Ok(LoadResult::Text {
            text: self.0.clone(),
            file: "x.yaml".to_owned(),
        })
    }
}

fn composed(yaml: &str) -> ComposedConfig {
    let plain = match yaml.contains("\nsupervisor:") {
        true => supervise_config::without_block(yaml, "supervisor", "x.yaml").unwrap(),
        false => yaml.to_owned(),
    };
    compose(&One(plain), "x", &[]).unwrap()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn looked_at(command: &str, yaml: Option<&str>) -> ReadOutput {
    tried(command, yaml, Some("/home/me/")).unwrap()
}

fn tried(command: &str, yaml: Option<&str>, home: Option<&str>) -> Result<ReadOutput, Vec<ConfigError>> {
    read_with(command, yaml, home, &[])
}

fn read_with(
    command: &str,
    yaml: Option<&str>,
    home: Option<&str>,
    set: &[String],
) -> Result<ReadOutput, Vec<ConfigError>> {
    let composed = yaml.map(composed);
    read(&ReadInput {
        composed: composed.as_ref(),
        config_file: composed.as_ref().map(|_| Utf8Path::new("/conf/x.yaml")),
        set,
        command: &words(command),
        cwd: Utf8Path::new("/data"),
        env: &|name| home.filter(|_| name == "HOME").map(str::to_owned),
        file: &|_| None,
        workers: None,
        launcher: None,
        user: None,
        kind: (!set.is_empty()).then_some(HF),
        starts_ray: false,
        may_start_ray: false,
        recovery: true,
        recovery_said: false,
        version: None,
        printed: None,
    })
}

fn launched(command: &str, yaml: Option<&str>, step: Option<u64>) -> LaunchPlan {
    let out = looked_at(command, yaml);
    assert_eq!(out.kind, HF, "{command}");
    let host = HostFacts {
        trainer: out.facts.clone(),
        began: 1,
        ..HostFacts::default()
    };
    let from = step.map_or(StartPoint::Fresh, |n| StartPoint::Step {
        ckpt: CkptId(format!("checkpoint-{n}").into()),
        step: Step(n),
        pins: PinsHash(0),
        load: Vec::new(),
        roles: BTreeMap::new(),
    });
    let order = LaunchOrder {
        attempt: AttemptNo(2),
        from,
        lost: Vec::new(),
        nodes: 1,
    };
    adapter(HF).arrange(&spec(out), &order, &host).unwrap()
}

/// Expectations of the run that a command starts.
pub(crate) fn expectation(command: &[String]) -> ExpectedLayout {
    adapter(HF).expect(&spec(looked_at(&command.join(" "), None)))
}

fn spec(out: ReadOutput) -> RunSpec {
    RunSpec {
        run: RunId("feedfacefeedface".to_owned()),
        name: None,
        trainer: out.kind,
        trainer_version: None,
        config_hash: 1,
        root: out.root.or(Some("/data/out".into())),
        run_dir: "/data/out/.supervise".into(),
        config_file: Some("/conf/x.yaml".into()),
        command: out.command,
        declared: None,
        learnt: None,
        cwd: "/data".into(),
        env: BTreeMap::new(),
        gang: out.gang,
        cadence: out.cadence,
        last_step: out.last_step,
        world: out.world,
        indivisible: Vec::new(),
        roles: out.roles,
        resume: out.resume,
        keep: out.keep,
        policy: Policy::default(),
        not_restored: out.not_restored,
        saves: out.saves,
        numbering: out.numbering,
        may_end_early: out.may_end_early,
        saves_at_stop: out.saves_at_stop,
        has_tail: out.has_tail,
        save_door: false,
    }
}

#[test]
fn a_command_says_where_and_when_it_saves() {
    let out = looked_at(
        "torchrun --nproc-per-node 2 t.py --output_dir out --save_steps=20 --max_steps 100 --save_total_limit 3",
        None,
    );
    assert_eq!(
        (out.kind, out.root, out.world),
        (HF, Some(Utf8PathBuf::from("/data/out")), Some(2))
    );
    assert_eq!(
        (out.cadence.every, out.last_step, out.keep),
        (Some(20), Some(Step(100)), Some(3))
    );
    let said = |more: &str| {
        looked_at(
            &format!("python3 t.py --output_dir out --per_device_train_batch_size 1 --do_train {more}"),
            None,
        )
    };
    assert_eq!(
        said("").cadence.every,
        Some(500),
        "what TrainingArguments says by itself"
    );
    assert_eq!(said("--save_strategy epoch").cadence.every, None);
    assert_eq!(
        said("--save_steps 0.1").cadence.every,
        None,
        "a share of a number that is not known"
    );
    assert_eq!(said("--max_steps -1").last_step, None);
    assert_eq!(said("--save_total_limit 2 --load_best_model_at_end").keep, None);
    let resume = said("--resume_from_checkpoint old/checkpoint-40").resume;
    let path = "/data/old/checkpoint-40".into();
    assert_eq!(resume, ResumeIntent::Path { path, step: Step(40) });
    assert_eq!(said("--resume_from_checkpoint True").resume, ResumeIntent::Auto);
    let only = said("--save_only_model").findings;
    assert!(only.iter().any(|f| f.code == "save_only_model"), "{only:?}");
    let way_out = |f: &Finding| f.code == "known_by_flags" && f.detail.contains("supervisor.trainer=plain");
    assert!(only.iter().any(way_out), "{only:?}");
    let named = looked_at("trl sft --output_dir out --save_steps 2 --do_train", None);
    assert!(!named.findings.iter().any(way_out), "{:?}", named.findings);
}

#[test]
fn a_step_to_begin_from_that_has_no_number_is_refused_wherever_it_is_said() {
    for (command, yaml) in [
        (
            "python3 t.py --output_dir o --save_steps 2 --do_train --resume_from_checkpoint other/best",
            None,
        ),
        (
            "llamafactory-cli train x.yaml",
            Some("output_dir: o\nresume_from_checkpoint: other/best\n"),
        ),
        (
            "llamafactory-cli train x.yaml resume_from_checkpoint=other/best",
            Some("output_dir: o\n"),
        ),
        (
            "trl sft --config x.yaml",
            Some("output_dir: o\nresume_from_checkpoint: other/best\n"),
        ),
        ("trl sft --output_dir o --resume_from_checkpoint=other/best", None),
    ] {
        let said = tried(command, yaml, None).unwrap_err()[0].to_string();
        for part in [
            "resume_from_checkpoint",
            "other/best is not named checkpoint-N",
            "rename it",
            "remove",
        ] {
            assert!(said.contains(part), "{command}: {said}");
        }
    }
    for wish in ["True", "true", "False"] {
        let yaml = format!("output_dir: o\nresume_from_checkpoint: {wish}\n");
        let out = looked_at("trl sft --config x.yaml", Some(&yaml));
        assert_eq!(out.resume, ResumeIntent::Auto, "{wish}");
    }
}

#[test]
fn a_tilde_is_the_home_directory_as_it_is_for_the_trainer() {
    let root = |dir: &str, home: Option<&str>| {
        let command = format!("trl sft --output_dir={dir}");
        let out = tried(&command, None, home);
        out.map(|out| out.root.unwrap().into_string())
            .map_err(|e| e[0].to_string())
    };
    for (dir, is) in [
        ("~", "/home/me"),
        ("~/o/x", "/home/me/o/x"),
        ("a~b", "/data/a~b"),
        ("/x/~", "/x/~"),
    ] {
        assert_eq!(root(dir, Some("/home/me/")).unwrap(), is, "{dir}");
    }
    for (dir, home) in [("~you/o", Some("/home/me")), ("~/o", None), ("~/o", Some(""))] {
        let said = root(dir, home).unwrap_err();
        assert!(said.contains(dir) && said.contains("whole path"), "{said}");
    }
}

#[test]
fn swift_is_asked_to_save_where_the_next_start_looks() {
    let said = |more: &str| tried(&format!("swift sft --output_dir o {more}"), None, None);
    for more in ["", "--add_version true"] {
        let e = said(more).unwrap_err()[0].to_string();
        assert!(e.contains("--add_version false"), "{e}");
    }
    assert!(said("--add_version false").is_ok());
    assert!(
        tried(
            "swift sft --config x.yaml",
            Some("output_dir: o\nadd_version: false\n"),
            None
        )
        .is_ok()
    );
    let trl = tried("trl sft --output_dir o", None, None);
    assert!(trl.is_ok(), "only ms-swift does so");
}

#[test]
fn what_is_set_and_not_passed_on_is_said() {
    let said = |command: &str| {
        let set = ["save_steps=7".to_owned()];
        let out = read_with(command, None, None, &set).unwrap();
        assert_eq!(out.cadence.every, Some(7), "{command}");
        let told = out.findings.into_iter().find(|f| f.code == "told_not_passed_on");
        told.map(|f| f.detail)
    };
    let told = said("python3 t.py").unwrap();
    assert!(
        told.contains("save_steps of --set") && told.contains("told, not passed on"),
        "{told}"
    );
    assert_eq!(said("trl sft --output_dir out"), None);
}

#[test]
fn a_plain_command_stays_plain() {
    for command in [
        "python3 train.py --output_dir out",
        "python3 train.py",
        "bash run.sh",
        "accelerate launch train_text_to_image.py --output_dir o --num_train_epochs 1 --gradient_accumulation_steps 2 \
         --checkpointing_steps epoch --resume_from_checkpoint latest",
    ] {
        assert_eq!(
            registry::detect(&words(command), None).framework(),
            "plain",
            "{command}"
        );
    }
}

#[test]
fn a_launch_names_the_step_as_the_program_takes_it() {
    for (command, yaml, step, started) in [
        (
            "python3 t.py --output_dir out --save_steps 2 --do_train --resume_from_checkpoint True",
            None,
            Some(4),
            "python3 t.py --output_dir out --save_steps 2 --do_train --resume_from_checkpoint=/data/out/checkpoint-4",
        ),
        (
            "python3 t.py --output_dir out --save_steps 2 --do_train --resume_from_checkpoint=True",
            None,
            None,
            "python3 t.py --output_dir out --save_steps 2 --do_train",
        ),
        (
            "trl sft --config x.yaml --save_total_limit 2",
            Some("output_dir: out\nsave_steps: 2\n"),
            Some(4),
            "trl sft --config /conf/x.yaml --save_total_limit 2 --resume_from_checkpoint=/data/out/checkpoint-4 --save_total_limit=4",
        ),
        (
            "llamafactory-cli train x.yaml",
            Some("output_dir: out\nsave_steps: 2\nresume_from_checkpoint: null\n"),
            Some(4),
            "llamafactory-cli train /conf/x.yaml resume_from_checkpoint=/data/out/checkpoint-4",
        ),
        (
            "llamafactory-cli train x.yaml",
            Some("output_dir: out\nsave_steps: 2\n"),
            None,
            "llamafactory-cli train /conf/x.yaml resume_from_checkpoint=null",
        ),
    ] {
        let plan = launched(command, yaml, step);
        assert_eq!(plan.argv.join(" "), started);
        assert!(
            plan.env
                .contains(&("TRANSFORMERS_VERBOSITY".to_owned(), "info".to_owned()))
        );
    }
}

#[test]
fn a_step_of_the_runs_own_is_resumed_with_all_its_state() {
    let swift = "swift sft --output_dir out --save_steps 2 --add_version false";
    let asked = format!("{swift} --resume_from_checkpoint out/checkpoint-4 --resume_only_model true");
    let own = launched(&asked, None, Some(6));
    assert!(
        own.argv.contains(&"--resume_only_model=false".to_owned()),
        "{:?}",
        own.argv
    );
    assert!(
        own.notes.iter().any(|note| note.contains("resume_only_model")),
        "{:?}",
        own.notes
    );
    // The step that the user named is begun as the user said.
    for plan in [launched(&asked, None, Some(4)), launched(swift, None, Some(6))] {
        assert!(
            !plan.argv.iter().any(|w| w.starts_with("--resume_only_model=")),
            "{:?}",
            plan.argv
        );
    }
}

#[test]
fn the_examples_are_read() {
    for (text, command) in [
        (
            include_str!("../../../../examples/configs/hf_trl_sft.yaml"),
            "trl sft --config x.yaml",
        ),
        (
            include_str!("../../../../examples/configs/hf_llamafactory_sft.yaml"),
            "llamafactory-cli train x.yaml",
        ),
    ] {
        let out = looked_at(command, Some(text));
        assert_eq!(out.kind, HF);
        assert!(
            out.root.is_some() && out.cadence.every.is_some() && out.keep.is_some(),
            "{command}"
        );
        assert_eq!(
            registry::meant(&composed(text)).map(|a| a.framework()),
            Some("hf"),
            "{command}"
        );
    }
}

#[test]
fn lines_of_the_trainer_are_understood() {
    let mut scanner = Scanner::new(adapter(HF).rules()).unwrap();
    for (line, means, number) in [
        (
            "  Resuming training from checkpoint with epoch 0 and global step 4",
            Some(RuleKind::Resumed),
            Some(4),
        ),
        (
            "[INFO|trainer.py:1478] 2026-11-23 12:00:00,1 >>   Total optimization steps = 1,200",
            Some(RuleKind::Total),
            Some(1200),
        ),
        (
            "Saving model checkpoint to /data/my out/checkpoint-20",
            Some(RuleKind::Enters(TrainerPhase::Save)),
            Some(20),
        ),
        (
            "***** Running Evaluation *****",
            Some(RuleKind::Enters(TrainerPhase::Validate)),
            None,
        ),
        (
            "{'loss': '3.9', 'epoch': '0.03'}",
            Some(RuleKind::Enters(TrainerPhase::Step)),
            None,
        ),
        ("{'train_runtime': '0.3', 'epoch': '0.1'}", Some(RuleKind::End), None),
        ("  {'train_runtime': '0.3', 'epoch': '0.1'}", Some(RuleKind::End), None),
        (
            " 83%|########  | 5/6 [00:00<00:00, 13.27it/s]",
            Some(RuleKind::Bar),
            Some(5),
        ),
        ("Map:  83%|########  | 5/6 [00:00<00:00, 13.27it/s]", None, None),
        ("Saving model checkpoint to /data/out", None, None),
        (
            "ValueError: Output directory (out) already exists and is not empty. Use --overwrite_output_dir to overcome.",
            Some(RuleKind::Failure(Class::CfgArgs.into())),
            None,
        ),
    ] {
        let hit = scanner.line(WorkerId(0), 1, line.as_bytes());
        assert_eq!(hit.as_ref().map(|h| h.kind.clone()), means, "{line}");
        assert_eq!(hit.and_then(|h| h.sighting.number), number, "{line}");
    }
}

/// The bar is drawn without a newline: a save at each step stands behind each of its lines, as a validation does.
#[test]
fn a_step_is_told_by_a_bar_that_something_is_printed_behind() {
    let mut scanner = Scanner::new(adapter(HF).rules()).unwrap();
    let bar = " 25%|██▌       | 1/4 [00:00<00:00, 28.02it/s]";
    for (behind, phase, number) in [
        (
            "[transformers] Saving model checkpoint to out/checkpoint-1",
            TrainerPhase::Save,
            Some(1),
        ),
        (
            "Saving model checkpoint to out/checkpoint-1",
            TrainerPhase::Save,
            Some(1),
        ),
        ("***** Running Evaluation *****", TrainerPhase::Validate, None),
    ] {
        let hits = scanner.all(WorkerId(0), 1, format!("{bar}{behind}").as_bytes());
        let seen = hits.into_iter().map(|h| (h.kind, h.sighting.number, h.total));
        let wanted = [
            (RuleKind::Bar, Some(1), Some(4)),
            (RuleKind::Enters(phase), number, None),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), wanted, "{behind}");
    }
}

/// One run of each tool that `report_to` names; where it is not said, nothing is set.
#[test]
fn attempts_go_on_in_one_experiment() {
    let ours = |command: &str, yaml| {
        let plan = launched(command, yaml, Some(5));
        let is_id = |name: &str| name.ends_with("_RUN_ID");
        let ids = plan.env.iter().filter(|(name, _)| is_id(name));
        ids.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let base = "trl sft --output_dir /data/out --save_steps 5";
    let (wandb, swanlab) = (
        "WANDB_RUN_ID=feedfacefeedface-1",
        "SWANLAB_RUN_ID=feedfacefeedface00001",
    );
    assert_eq!(
        ours(&format!("{base} --report_to wandb swanlab --seed 1"), None),
        [wandb, swanlab]
    );
    assert_eq!(ours(&format!("{base} --report_to=wandb"), None), [wandb]);
    let yaml = "output_dir: /data/out\nsave_steps: 5\nnum_train_epochs: 1\nreport_to: [tensorboard, swanlab]\n";
    assert_eq!(ours("llamafactory-cli train x.yaml", Some(yaml)), [swanlab]);
    for quiet in [
        "",
        " --report_to none",
        " --report_to tensorboard --run_name wandb",
        " --report_to mlflow",
    ] {
        assert!(ours(&format!("{base}{quiet}"), None).is_empty(), "{quiet}");
    }
}
