//! A configuration and a command, read.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_config::ConfigError;
use supervise_config::compose::{ConfigLoader, LoadResult, compose};
use supervise_core::id::{AttemptNo, RunId};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::policy::{Policy, StartPolicy};
use supervise_core::spec::{LauncherKind, RunSpec};
use supervise_trainers::{HostFacts, LaunchPlan, ReadInput, ReadOutput, adapter, read};

/// One file.
struct One(String);

impl ConfigLoader for One {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        Ok(match config {
            "x" => LoadResult::Text {
                text: self.0.clone(),
                file: "x.yaml".to_owned(),
            },
            _ => LoadResult::Missing,
        })
    }
}

/// The least that AReaL takes: SFT on two ranks. `{more}` are lines for the end, `{recover}` for the section of that name.
const BASE: &str = "\
experiment_name: exp
trial_name: t0
cluster: {fileroot: /share}
train_dataset: {path: p, type: sft}
actor: {experiment_name: exp, trial_name: t0, backend: 'fsdp:d2', optimizer: {warmup_steps_proportion: 0.0}}
saver: {experiment_name: exp, trial_name: t0, fileroot: /share}
evaluator: {experiment_name: exp, trial_name: t0, fileroot: /share}
stats_logger: {experiment_name: exp, trial_name: t0, fileroot: /share}
recover:
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  fileroot: ${cluster.fileroot}
{recover}
{more}
";

/// Input that is read, and from what.
pub(crate) struct Case {
    pub(crate) yaml: String,
    pub(crate) file: &'static str,
    pub(crate) command: &'static str,
    pub(crate) set: &'static [&'static str],
    pub(crate) env: &'static [(&'static str, &'static str)],
    pub(crate) workers: Option<u32>,
    pub(crate) launcher: Option<LauncherKind>,
    pub(crate) may_start_ray: bool,
    pub(crate) no_recovery: bool,
    pub(crate) recovery_said: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            yaml: with("  mode: auto\n  freq_steps: 2", ""),
            file: "/conf/x.yaml",
            command: "python3 sft.py scheduler.type=local",
            set: &[],
            env: &[("USER", "ann")],
            workers: None,
            launcher: None,
            may_start_ray: false,
            no_recovery: false,
            recovery_said: false,
        }
    }
}

/// The least file with more in `recover` and at its end.
pub(crate) fn with(recover: &str, more: &str) -> String {
    let base = BASE.replace("{recover}", recover).replace("{more}", more);
    match more.contains("scheduler:") {
        true => base,
        false => format!("{base}scheduler: {{type: null}}\n"),
    }
}

/// A case with such a `recover` section.
pub(crate) fn recover(lines: &str) -> Case {
    Case {
        yaml: with(lines, ""),
        ..Case::default()
    }
}

/// A case with more lines at its end, and one key of the least file left out where the lines give it.
pub(crate) fn more(lines: &str) -> Case {
    Case {
        yaml: with("  mode: auto\n  freq_steps: 2", lines),
        ..Case::default()
    }
}

/// A case with such a command.
pub(crate) fn command(command: &'static str) -> Case {
    Case {
        command,
        ..Case::default()
    }
}

/// A case with overrides.
pub(crate) fn set(set: &'static [&'static str]) -> Case {
    Case { set, ..Case::default() }
}

impl Case {
    pub(crate) fn read(&self) -> Result<ReadOutput, Vec<ConfigError>> {
        let composed = compose(&One(self.yaml.clone()), "x", &[]).map_err(|e| vec![e])?;
        let command: Vec<String> = self.command.split_whitespace().map(str::to_owned).collect();
        let set: Vec<String> = self.set.iter().map(|s| (*s).to_owned()).collect();
        read(&ReadInput {
            composed: Some(&composed),
            config_file: Some(Utf8Path::new(self.file)),
            set: &set,
            command: &command,
            cwd: Utf8Path::new("/data"),
            env: &|name| {
                let found = self.env.iter().find(|(n, _)| *n == name);
                found.map(|(_, v)| (*v).to_owned())
            },
            file: &|_| None,
            workers: self.workers,
            launcher: self.launcher,
            user: Some("uid-name"),
            kind: None,
            starts_ray: false,
            may_start_ray: self.may_start_ray,
            recovery: !self.no_recovery,
            recovery_said: self.recovery_said,
            version: None,
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

    /// The launch from scratch, with what the environment has.
    pub(crate) fn launch(&self) -> LaunchPlan {
        let (out, spec) = (self.good(), self.spec());
        let from = match out.recovery {
            false => StartPoint::AsIs,
            true => StartPoint::Fresh,
        };
        let host = HostFacts {
            env: self
                .env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            trainer: out.facts,
            began: 1,
        };
        adapter(spec.trainer).arrange(&spec, &order(from), &host).unwrap()
    }

    /// The words that are started.
    pub(crate) fn words(&self) -> String {
        self.launch().argv.join(" ")
    }

    /// Words before the launch.
    pub(crate) fn preflight(&self) -> Vec<(String, String)> {
        let (out, spec) = (self.good(), self.spec());
        let said = adapter(spec.trainer).preflight(&spec, &out.facts);
        let all = out.findings.into_iter().chain(said);
        all.map(|f| (f.code.into_owned(), f.detail)).collect()
    }

    /// The text of one finding.
    pub(crate) fn says(&self, code: &str) -> Option<String> {
        self.preflight()
            .into_iter()
            .find(|(c, _)| c == code)
            .map(|(_, text)| text)
    }

    pub(crate) fn spec(&self) -> RunSpec {
        let out = self.good();
        RunSpec {
            run: RunId("feedfacefeedface".to_owned()),
            name: None,
            trainer: out.kind,
            trainer_version: None,
            config_hash: 1,
            root: out.root,
            run_dir: Utf8PathBuf::from("/share/supervise/ann/exp/t0"),
            config_file: Some(self.file.into()),
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
            policy: Policy {
                start: StartPolicy {
                    recovery: out.recovery,
                    ..StartPolicy::default()
                },
                ..Policy::default()
            },
            not_restored: out.not_restored,
            saves: out.saves,
            numbering: out.numbering,
            may_end_early: out.may_end_early,
            saves_at_stop: out.saves_at_stop,
            has_tail: out.has_tail,
            save_door: false,
        }
    }
}

pub(crate) fn text(problems: &[ConfigError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn order(from: StartPoint) -> LaunchOrder {
    LaunchOrder {
        attempt: AttemptNo(1),
        from,
        lost: Vec::new(),
        nodes: 1,
    }
}
