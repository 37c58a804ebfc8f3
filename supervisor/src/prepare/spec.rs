//! The result of preparation as a frozen specification of a term.

mod copy;
mod hash;
mod policy;
mod script;

pub(crate) use policy::{lines as failure_lines, rules as answers};

use super::discovery::{DiscoveredCommand, submitter};
use super::preflight::{Checked, check_room};
use super::request::PrepareRequest;
use super::resolve::Resolved;
use super::state_dir::registry_file;
use crate::error::CliError;
use crate::render::config::{ConfigView, StartCommand};
use crate::run_order::{PreparedRun, RunOrder};
use supervise_config::interpolation::InterpolationResolver;
use supervise_core::checkpoint::Finding;
use supervise_core::spec::{DeclaredTrainer, RunSpec};
use supervise_host::script::Submitter;
use supervise_trainers::one_node::node_part;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::{adapter, adapter_of};

impl Checked {
    pub(super) fn spec(self) -> Result<PreparedRun, CliError> {
        let Resolved {
            discovered,
            mut out,
            release,
            root,
            run,
            run_dir,
            store,
            mut notes,
        } = self.resolved;
        let sources = &discovered.sources;
        notes.extend(sources.notes());
        let gang = policy::gang(&sources.settings, &out, &mut notes);
        let (learnt, shims) = script::parts(&discovered, &out, &mut notes)?;
        let submitter = submitter_of(&out, &mut notes);
        let config_hash = hash::config_hash(&out, &discovered, release.version.as_deref());
        let mut command = std::mem::take(&mut out.command);
        let copy = copy::copy(&discovered, &out, &run_dir, &mut command)?;
        let mut policy = policy::policy(&sources.settings, &sources.request, &out, &command);
        policy::retries(&sources.settings, &out, &mut policy, &mut notes);
        let mut findings = std::mem::take(&mut out.findings);
        findings.extend(
            self.room
                .iter()
                .flat_map(|room| check_room(room, out.keep, &mut policy)),
        );
        findings.extend(self.findings);
        findings.extend(node_part(&command).map(|part| {
            let detail = format!(
                "the command starts the ranks of {}: this supervisor sees, ends and starts those alone, and the others wait for them; one supervisor starts them all with gang.nodes, inside a Slurm job",
                part.words()
            );
            Finding::warning("one_node", detail)
        }));
        let told = told(&discovered, &out);
        let save_door = has_door(&out);
        let spec = RunSpec {
            config_hash,
            name: out.name.take(),
            trainer: out.kind,
            trainer_version: release.version.clone(),
            declared: sources.declared.as_ref().map(|found| DeclaredTrainer {
                file: found.file.clone(),
                digest: found.declaration.digest(),
                text: found.declaration.text().to_owned(),
                store: store.filter(|_| out.saves.is_steps()),
            }),
            root,
            run_dir,
            config_file: sources.file.clone(),
            cwd: sources.cwd.clone(),
            env: sources.settings.env.clone(),
            world: policy::world(&out, &gang),
            gang,
            cadence: out.cadence,
            last_step: out.last_step,
            indivisible: out.indivisible,
            roles: out.roles,
            resume: out.resume,
            keep: out.keep,
            policy,
            not_restored: out.not_restored,
            saves: out.saves,
            numbering: out.numbering,
            may_end_early: out.may_end_early,
            saves_at_stop: out.saves_at_stop,
            has_tail: out.has_tail,
            save_door,
            // A script is started unchanged.
            command: match &learnt {
                Some(_) => sources.command.clone(),
                None => command,
            },
            learnt,
            run,
        };
        let left_out = sources.left_out();
        let settings_files = sources.trust.settings.clone();
        let mut order = RunOrder {
            told,
            registry: registry_file(&spec.run),
            spec,
            facts: out.facts,
            settings: discovered.sources.settings,
            shims,
            submitter,
            copy,
        };
        order.spec.save_door = order.save_door().is_open();
        findings.extend(adapter_of(&order.spec).preflight(&order.spec, &order.facts));
        let mut prepared = PreparedRun {
            order,
            room: self.room,
            findings,
            notes,
            tree: out.tree,
            release,
            left_out,
            settings_files,
            refused: None,
        };
        self.refused.iter().for_each(|e| refuse(&mut prepared, e));
        Ok(prepared)
    }
}

/// Records in a plan why `run` would end at once.
pub(super) fn refuse(prepared: &mut PreparedRun, e: &CliError) {
    let hint = e.hints.last().map(|hint| format!("; {hint}")).unwrap_or_default();
    let text = format!("`run` would be refused here: {}{hint}", e.message);
    prepared.findings.push(Finding::warning("not_here", text));
    prepared.refused.get_or_insert(e.exit_code());
}

/// The configuration and the command, stored for later questions.
fn told(discovered: &DiscoveredCommand, out: &ReadOutput) -> String {
    let sources = &discovered.sources;
    let PrepareRequest {
        config, set, command, ..
    } = &sources.request;
    let config = config.as_ref().map(|file| file.as_str());
    let mut view = ConfigView::of(&sources.settings, Some(&out.tree));
    let mut started = StartCommand::new(config, set, command, sources.cwd.as_str());
    let settings = sources.request.settings.iter().flatten();
    started.settings = settings.map(ToString::to_string).collect();
    view.started = Some(started);
    serde_json::to_string(&view).unwrap_or_default()
}

/// Whether the trainer saves if it is asked to. The demo trainer says so itself.
fn has_door(out: &ReadOutput) -> bool {
    let said = InterpolationResolver::new(&out.tree, &|_| None).get("demo.save_door");
    said.ok().flatten().is_some_and(|door| door.as_bool() == Some(true))
}

/// The shim for jobs submitted to Slurm; without it they are not marked.
fn submitter_of(out: &ReadOutput, notes: &mut Vec<String>) -> Option<Submitter> {
    adapter(out.kind).jobs(&out.saves)?;
    match submitter() {
        Ok(made) => Some(made),
        Err(e) => {
            notes.push(format!(
                "jobs of Slurm's cannot be marked, so that none is cancelled: {e}"
            ));
            None
        }
    }
}
