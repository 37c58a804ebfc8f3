//! Reports failures that are certain to come before a GPU is used, with location and next step.

mod cluster;
mod disk_space;
mod ignored;
mod places;
mod root_conflict;
mod trained;
mod unmarked;

pub use places::probe;
pub use trained::trains_into;

pub(super) use cluster::possible as several_machines;
pub(super) use disk_space::check as check_room;

use super::command;
use super::discovery::DiscoveredCommand;
use super::path::absolute;
use super::resolve::Resolved;
use super::sources::check_change;
use crate::error::CliError;
use crate::path_access;
use camino::Utf8Path;
use supervise_config::settings::AUTO;
use supervise_core::checkpoint::Finding;
use supervise_host::io_worker::SaveSpace;
use supervise_trainers::adapter;
use supervise_trainers::command::CONFIG;
use supervise_trainers::read::ReadOutput;

#[derive(Debug)]
pub(super) struct Checked {
    pub resolved: Resolved,
    /// Space for checkpoints, if known.
    pub room: Option<SaveSpace>,
    /// Findings about the cluster.
    pub findings: Vec<Finding>,
    /// Why `run` would end at once on this machine.
    pub refused: Vec<CliError>,
}

impl Resolved {
    /// Refuses what is certain to fail.
    pub(super) fn check(mut self) -> Result<Checked, CliError> {
        let (d, out, root) = (&self.discovered, &self.out, self.root.as_deref());
        let sources = &d.sources;
        if let Some(found) = &sources.declared {
            let changed = check_change(found, &self.run_dir, sources.request.accept);
            let is_guess = sources.settings.trainer == AUTO && sources.settings.trainer_file.is_none();
            self.notes.push(found.note(is_guess));
            self.notes.extend(changed?);
        }
        check_same_file(d, out)?;
        check_there(out)?;
        let mut refused = Vec::new();
        let findings = cluster::check(d, out, &mut refused)?;
        self.notes.extend(self.release.note(out));
        ignored::check_from(&sources.request, out.kind)?;
        self.notes.extend(ignored::notes(&sources.settings, out.kind));
        if !sources.request.fresh {
            root_conflict::check_other_root(d, out, root)?;
            root_conflict::check_other_user(d, out, root)?;
            root_conflict::check_moved_root(d, out, root)?;
        }
        self.notes.extend(places::gone(&self.run, &self.run_dir));
        places::check_owner(&self.run_dir, &self.run)?;
        places::check_space(&self.run_dir)?;
        if let Some(root) = root {
            places::check_writable(root)?;
            for checked in [trained::check(root, &self.run), unmarked::check(&self, root)] {
                match checked {
                    Err(e) if sources.request.acts => return Err(e),
                    checked => refused.extend(checked.err()),
                }
            }
        }
        places::check_resume_path(out, &self.run_dir)?;
        let started = d.learnt.as_ref().map_or(&out.command, |_| &sources.command);
        command::check(started, &sources.cwd, &sources.settings.env)?;
        // Another machine may see other files, and a run that was started before may still have its workers.
        let was_started = path_access::exists(&self.run_dir.join("journal"));
        let there = match out.gang.nodes {
            0 | 1 if !was_started => command::check_file(started, &sources.cwd, &sources.settings.env),
            _ => Ok(()),
        };
        match there {
            Err(e) if sources.request.acts => return Err(e),
            checked => refused.extend(checked.err()),
        }
        let prefix = adapter(out.kind).step_prefix();
        let room = root.and_then(|root| path_access::room(root, prefix));
        Ok(Checked {
            resolved: self,
            room,
            findings,
            refused,
        })
    }
}

/// Checks that the file read here is the one that the command names.
fn check_same_file(d: &DiscoveredCommand, out: &ReadOutput) -> Result<(), CliError> {
    let (Some(named), Some(other)) = (&d.sources.request.config, adapter(out.kind).config_in(d.call())) else {
        return Ok(());
    };
    let (here, there) = (
        path_access::plain(&absolute(&d.sources.cwd, named)),
        path_access::plain(&absolute(d.call_cwd(), Utf8Path::new(&other))),
    );
    if other.contains(CONFIG) || here == there {
        return Ok(());
    }
    Err(
        CliError::config(format!("the command says --config {other}, and {named} is read here"))
            .hint("leave --config out of the command, or name the same file"),
    )
}

/// Checks directories that the trainer needs before it starts and does not create.
fn check_there(out: &ReadOutput) -> Result<(), CliError> {
    match out.facts.must_exist.iter().find(|(_, dir)| !path_access::exists(dir)) {
        Some((key, dir)) => Err(CliError::config(format!(
            "{key}: there is no directory {dir}: {} ends with FileNotFoundError",
            adapter(out.kind).words().name
        ))
        .hint(format!(
            "make it (mkdir -p {dir}), or set {key} to a directory that every machine of the run sees"
        ))),
        None => Ok(()),
    }
}
