//! The next launch: where it starts and why, what it changes, and what a crash can cost.

mod saves;

use super::outcome::outcome_words;
use super::record::{edit_because, start_point};
use super::terminal::shown;
use super::{one_line, shown_command, shown_word, time};
use crate::exit::SuperviseExitCode;
use crate::run_order::PreparedRun;
pub use saves::{SaveRequestsView, SavesView};
use serde::Serialize;
use std::collections::BTreeSet;
use supervise_core::checkpoint::{Finding, FindingLevel, StateKind};
use supervise_core::id::Ms;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{DiskEdit, RunOutcome, StartPoint};
use supervise_core::resume::ResumeChoice;
use supervise_core::spec::{GangSpec, LauncherKind};
use supervise_host::interpreter::PythonInfo;
use supervise_host::io_worker::SaveSpace;
use supervise_trainers::{InjectedSetting, LaunchPlan, adapter_of};

/// Shown if the workers of an attempt have no cgroup of their own.
pub(crate) const OPEN_CASE: &str = "were supervisor, guard and keeper all killed in one moment, a process that had left \
     its session, hid its environment and was too young to be recorded would not be found";

/// The stable JSON of a plan.
#[derive(Debug, Serialize)]
pub struct PlanView {
    pub version: u32,
    pub run: String,
    /// `verl-ppo`, `verl-sft`, `plain`.
    pub trainer: String,
    pub trainer_version: Option<String>,
    /// The file that declares the trainer, if it is none of those written in Rust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<PlanDeclaration>,
    #[serde(skip)]
    package: &'static str,
    /// How a start would end, as `run` says it.
    #[serde(skip)]
    refusal: Option<String>,
    /// The interpreter's answer; `null` if it was not asked or did not answer.
    pub interpreter: Option<PythonInfo>,
    pub version_unknown: Option<String>,
    /// Canonical checkpoint root.
    pub root: Option<String>,
    pub run_dir: String,
    /// `launch`, `finished`, `wait`, `refuse`, `ended_before`, `held`, `take_over`.
    pub would: &'static str,
    /// The exit code `run` would exit with at once on this machine; `null` if it would launch or wait.
    pub exit_code: Option<u8>,
    pub from: Option<StartPoint>,
    pub reasons: Vec<Reason>,
    /// Changes it would first make on disk.
    pub edits: Vec<DiskEdit>,
    pub lost: Vec<StateKind>,
    pub not_restored: Vec<StateKind>,
    /// The command, secrets hidden.
    pub argv: Vec<String>,
    /// The overrides in it, secrets hidden.
    pub overrides: Vec<String>,
    /// Environment it would set, secrets hidden.
    pub env: Vec<(String, String)>,
    pub gang: GangSpec,
    pub helps: Vec<HelpView>,
    pub save_requests: SaveRequestsView,
    pub saves: SavesView,
    pub room: Option<SaveSpace>,
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
    /// Settings files, lowest precedence first.
    pub settings_files: Vec<String>,
}

/// The declaration of a trainer.
#[derive(Debug, Serialize)]
pub struct PlanDeclaration {
    /// `null`: it comes with the program.
    pub file: Option<String>,
    pub digest: String,
}

/// A setting injected to improve the trainer's behavior.
#[derive(Debug, Serialize)]
pub struct HelpView {
    /// Overrides and variables, secrets hidden.
    pub set: Vec<String>,
    pub why: String,
    pub setting: &'static str,
}

impl PlanView {
    /// Builds a plan from the resume point and the launch. `longest`: the longest step so far.
    #[must_use]
    pub fn of(
        p: &PreparedRun,
        choice: &ResumeChoice,
        launch: Option<&LaunchPlan>,
        longest: Option<Ms>,
        mut notes: Vec<String>,
    ) -> Self {
        let words = supervise_config::redact_words;
        notes.splice(0..0, p.notes.iter().cloned());
        notes.extend(launch.map(|l| l.notes.clone()).unwrap_or_default());
        let env = launch.map(|l| l.env.clone()).unwrap_or_default();
        let env = env.into_iter().chain(p.order.spec.env.clone());
        let mut view = Self {
            version: 1,
            run: p.order.spec.run.to_string(),
            trainer: p.order.spec.trainer.to_string(),
            trainer_version: p.release.version.clone(),
            declared: p.order.spec.declared.as_ref().map(|declared| PlanDeclaration {
                file: declared.file.as_ref().map(ToString::to_string),
                digest: declared.digest.clone(),
            }),
            package: adapter_of(&p.order.spec).package().unwrap_or_default(),
            interpreter: p.release.interpreter.clone(),
            version_unknown: p.release.why.clone(),
            root: p.order.spec.root.as_ref().map(ToString::to_string),
            run_dir: p.order.spec.run_dir.to_string(),
            refusal: None,
            would: "launch",
            exit_code: None,
            from: None,
            reasons: Vec::new(),
            edits: Vec::new(),
            lost: Vec::new(),
            not_restored: p.order.spec.not_restored.clone(),
            argv: launch.map(|l| words(&l.argv)).unwrap_or_default(),
            overrides: launch.map(|l| words(&l.overrides)).unwrap_or_default(),
            env: env
                .map(|(k, v)| (k.clone(), supervise_config::redact(&k, &v)))
                .collect(),
            gang: p.order.spec.gang.clone(),
            helps: launch.map(|l| l.helps.iter().map(help).collect()).unwrap_or_default(),
            save_requests: SaveRequestsView::of(p.order.save_door()),
            saves: SavesView::of(&p.order.spec, longest),
            room: p.room,
            findings: p.findings.clone(),
            notes,
            settings_files: p.settings_files.iter().map(ToString::to_string).collect(),
        };
        view.choose(choice);
        view
    }

    fn choose(&mut self, choice: &ResumeChoice) {
        match choice {
            ResumeChoice::Start {
                from,
                edits,
                lost,
                reasons,
                ..
            } => {
                self.from = Some(from.clone());
                self.edits.clone_from(edits);
                self.lost.clone_from(lost);
                self.reasons.clone_from(reasons);
            }
            ResumeChoice::Finished { step, reasons } => {
                self.would = "finished";
                self.exit_code = Some(RunOutcome::Finished { step: Some(*step) }.exit_code());
                self.reasons.clone_from(reasons);
            }
            ResumeChoice::Unreadable { reasons } => {
                self.would = "wait";
                self.reasons.clone_from(reasons);
            }
            ResumeChoice::Refuse { outcome, reasons } => {
                self.would = "refuse";
                self.refusal = outcome_words(outcome).split_once(':').map(|(lead, _)| lead.to_owned());
                self.exit_code = Some(outcome.exit_code());
                self.reasons.clone_from(reasons);
            }
        }
    }

    /// The run needs attention: the plan shows what `--again` would do.
    pub fn ended_before(&mut self, outcome: &RunOutcome) {
        self.would = "ended_before";
        self.exit_code = Some(outcome.exit_code());
        self.notes
            .insert(0, format!("it ended before: {}", outcome_words(outcome)));
    }

    /// Another supervisor holds this run: the plan shows what a launch after it would do.
    pub fn is_held(&mut self) {
        self.would = "held";
        self.exit_code = Some(SuperviseExitCode::LeaseHeld.code());
    }

    /// Workers of this run are running without a supervisor.
    pub fn takes_over(&mut self) {
        self.would = "take_over";
        self.exit_code = None;
    }

    /// The plan as text.
    #[must_use]
    pub fn text(&self, p: &PreparedRun) -> String {
        let mut out = format!("run {} ({})\n", self.run, self.trainer);
        if let Some(root) = &self.root {
            out.push_str(&format!("  checkpoints  {}\n", shown(root)));
        }
        out.push_str(&format!("  journal      {}\n", shown(&self.run_dir)));
        out.push_str(&self.release());
        out.push_str(&format!("\n{}\n", self.headline()));
        for r in &self.reasons {
            out.push_str(&format!("  because {}\n", one_line(&r.text, 600)));
        }
        for e in &self.edits {
            out.push_str(&format!("  before it: {}\n", shown(&edit_because(e, &self.reasons))));
        }
        if !self.lost.is_empty() {
            out.push_str(&format!("  LOST at this resume: {}\n", kinds(&self.lost)));
        }
        if !self.argv.is_empty() {
            out.push_str(&self.launch(p));
        }
        for (title, lines) in self.sections() {
            if !lines.is_empty() {
                out.push_str(&format!("\n{title}\n"));
            }
            for line in lines {
                out.push_str(&format!("  {}\n", shown(&line)));
            }
        }
        out
    }

    fn release(&self) -> String {
        let text = match (&self.trainer_version, &self.interpreter, &self.version_unknown) {
            (Some(version), Some(said), _) => {
                let at = said.source().map_or("", |s| s.at.as_str());
                format!("{version} in {at}; {}", interpreter(said))
            }
            (Some(version), None, _) => format!("{version}, as supervisor.trainer_version says"),
            (None, _, Some(why)) => format!("which release is not known: {why}"),
            (None, _, None) => return String::new(),
        };
        format!("  {:<12} {}\n", self.package, one_line(&text, 600))
    }

    fn sections(&self) -> [(&'static str, Vec<String>); 5] {
        let of = |wanted: &dyn Fn(&Finding) -> bool| -> Vec<String> {
            let found = self.findings.iter().filter(|f| wanted(f));
            found.map(finding_line).collect()
        };
        let is_warning = |f: &Finding| f.level > FindingLevel::Note;
        let is_saving = |f: &Finding| SAVING.contains(&f.code.as_ref()) && !is_warning(f);
        let is_kept = |f: &Finding| RESTORED.contains(&f.code.as_ref()) && !is_warning(f);
        let mut saves = of(&is_saving);
        saves.extend(self.saves.text());
        saves.push(self.save_requests.text());
        let mut rest = of(&|f| !is_warning(f) && !is_saving(f) && !is_kept(f));
        rest.extend(self.notes.iter().cloned());
        [
            ("look at this first", of(&is_warning)),
            ("what is saved, and what a crash costs", saves),
            ("never restored by a resume", of(&is_kept)),
            (
                "settings added by supervise",
                self.helps.iter().map(HelpView::text).collect(),
            ),
            ("also", rest),
        ]
    }

    /// Returns true if `run` would be refused before it chooses where to start.
    fn is_refused(&self) -> bool {
        self.exit_code
            .is_some_and(|code| code != SuperviseExitCode::Finished.code())
    }

    fn headline(&self) -> String {
        match (self.would, &self.from) {
            ("launch", from) if self.is_refused() => format!(
                "would refuse to start here (exit code {})\n{}",
                self.exit_code.unwrap_or(1),
                after("otherwise", from.as_ref())
            ),
            ("launch", Some(from)) => format!("would {}", shown(&start_point(from))),
            ("finished", _) => "nothing to do: the run is finished (exit code 0)".to_owned(),
            ("ended_before", from) => format!(
                "would not start: the run failed and needs attention (exit code {})\n{}",
                self.exit_code.unwrap_or(1),
                after("with --again, once the cause is fixed", from.as_ref())
            ),
            ("held", from) => format!(
                "would not start: this run already has a supervisor (exit code {}, see `supervise status {}`)\n{}",
                SuperviseExitCode::LeaseHeld.code(),
                self.run,
                after("once it has ended", from.as_ref())
            ),
            ("take_over", from) => format!(
                "would take over the workers that are still running\n{}",
                after("once they have ended", from.as_ref())
            ),
            ("wait", _) => "would wait".to_owned(),
            _ => {
                let lead = self
                    .refusal
                    .as_ref()
                    .map_or_else(String::new, |lead| format!(": {lead}"));
                format!(
                    "would refuse to start (exit code {}){lead}",
                    self.exit_code.unwrap_or(1)
                )
            }
        }
    }

    fn launch(&self, p: &PreparedRun) -> String {
        let how = match self.gang.launcher {
            LauncherKind::Driver => "1 process, which starts its own workers".to_owned(),
            LauncherKind::Gang if self.gang.nodes > 1 => format!(
                "{} workers, {} on each of {} nodes of the Slurm allocation",
                self.gang.workers,
                self.gang.per_node(),
                self.gang.nodes
            ),
            LauncherKind::Ray => format!(
                "Ray on {} nodes of the Slurm allocation, and this on the first of them",
                self.gang.nodes
            ),
            LauncherKind::Gang => format!("{} workers, each started here", self.gang.workers),
        };
        let mut out = format!("  command      {}\n", shown(&shown_command(&self.argv)));
        let cwd = shown(p.order.spec.cwd.as_str());
        out.push_str(&format!("  in           {cwd}\n  as           {how}\n"));
        if p.order.spec.learnt.is_some() && !self.overrides.is_empty() {
            let words = shown_command(&self.overrides);
            out.push_str(&format!("  in its call  {}\n", shown(&words)));
        }
        let helped = |name: &str| {
            self.helps
                .iter()
                .any(|h| h.set.iter().any(|s| s.starts_with(&format!("{name}="))))
        };
        for (name, value) in self.env.iter().filter(|(name, _)| !helped(name)) {
            out.push_str(&format!("  environment  {}\n", shown(&format!("{name}={value}"))));
        }
        let policy = &p.order.spec.policy;
        out.push_str(&format!(
            "  on failure   gives up after {} without progress; backoff {} to {}\n",
            super::count(u64::from(policy.failure.retries).saturating_add(1), "attempt"),
            time::span(policy.backoff.initial),
            time::span(policy.backoff.max)
        ));
        if !policy.failure.lines.is_empty() {
            let classes: BTreeSet<&str> = policy.failure.lines.iter().map(|l| l.class.code()).collect();
            let classes: Vec<&str> = classes.into_iter().collect();
            let lines = super::count(policy.failure.lines.len() as u64, "pattern");
            out.push_str(&format!("  your rules   {lines} tell {}\n", shown(&classes.join(", "))));
        }
        out
    }
}

fn after(when: &str, from: Option<&StartPoint>) -> String {
    let would = from.map_or_else(
        || "would refuse to start".to_owned(),
        |f| format!("would {}", shown(&start_point(f))),
    );
    format!("{when}, it {would}")
}

const SAVING: [&str; 8] = [
    "cadence",
    "generations",
    "exports",
    "disk",
    "keep_all",
    "no_save_on_demand",
    "critic_warmup",
    "hdfs_copies",
];
const RESTORED: [&str; 3] = ["not_restored", "resharding", "schedule_replayed"];

impl HelpView {
    fn text(&self) -> String {
        format!("{}: {} [{}]", self.set.join(" "), self.why, self.setting)
    }
}

/// The interpreter and its packages other than the trainer.
#[must_use]
pub fn interpreter(said: &PythonInfo) -> String {
    let mut out = format!("Python {}", said.python);
    for (name, version) in said.packages.iter().filter(|(name, _)| **name != said.package) {
        out.push_str(&format!(", {name} {version}"));
    }
    out
}

fn help(help: &InjectedSetting) -> HelpView {
    let variables = help.env.iter().map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> = help.overrides.iter().cloned().chain(variables).collect();
    HelpView {
        set: words.iter().map(|w| shown_word(w)).collect(),
        why: help.why.clone(),
        setting: help.setting,
    }
}

fn finding_line(f: &Finding) -> String {
    let file = f.file.as_ref().map(|p| format!("{p}: ")).unwrap_or_default();
    format!("{file}{} [{}]", f.detail, f.code)
}

fn kinds(lost: &[StateKind]) -> String {
    lost.iter().map(|k| k.words()).collect::<Vec<_>>().join(", ")
}
