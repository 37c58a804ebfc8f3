//! Runs a script up to the call of its trainer, with shims first in its PATH.

use super::heard::{in_words, understood};
use super::{RunSources, starts};
use crate::environment;
use crate::error::CliError;
use crate::prepare::{command, state_dir};
use crate::printer::{self, WaitSpinner};
use crate::render::{one_line, shown_command};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::time::SystemTime;
use supervise_core::id::{RunId, fnv64};
use supervise_core::spec::script::LearnedCall;
use supervise_host::address::{self, SocketRole};
use supervise_host::guard::protocol::WorkerOrder;
use supervise_host::io_worker::own_place;
use supervise_host::script::{Recording, Shims, Submitter, record};

pub(in crate::prepare) fn shims(c: &RunSources) -> Result<Shims, CliError> {
    let exe = own_exe()?;
    let above = shims_dir()?;
    let path = environment::with(&c.settings.env)
        .get("PATH")
        .cloned()
        .unwrap_or_default();
    Shims::make(&above, &exe, &path).map_err(|e| CliError::environment(format!("making links in {above}: {e}")))
}

pub(in crate::prepare) fn submitter() -> Result<Submitter, CliError> {
    let above = shims_dir()?;
    Submitter::make(&above, &own_exe()?).map_err(|e| CliError::environment(format!("making a link in {above}: {e}")))
}

fn shims_dir() -> Result<Utf8PathBuf, CliError> {
    let dir = state()?.join("shims");
    own_place(&dir).map_err(|e| CliError::environment(format!("making {dir}: {e}")))?;
    Ok(dir)
}

fn own_exe() -> Result<Utf8PathBuf, CliError> {
    let exe = std::env::current_exe()
        .ok()
        .and_then(|e| Utf8PathBuf::from_path_buf(e).ok());
    exe.ok_or_else(|| CliError::environment("our own program cannot be found"))
}

fn state() -> Result<Utf8PathBuf, CliError> {
    state_dir().ok_or_else(|| {
        CliError::environment(
            "there is no place of this user's own for links in front of the script's programs: set XDG_STATE_HOME",
        )
    })
}

pub(super) fn listen(c: &RunSources) -> Result<LearnedCall, CliError> {
    command::check(&c.command, &c.cwd, &c.settings.env)?;
    let run = RunId(format!(
        "{:016x}",
        fnv64(format!("{:?}{}", SystemTime::now(), std::process::id()).as_bytes())
    ));
    let failed =
        |e: std::io::Error| CliError::environment(format!("the script cannot be run to learn what it starts: {e}"));
    let above = state()?.join("learning");
    own_place(&above).map_err(failed)?;
    let dir = above.join(&run.0);
    // Fails if the name exists: then another process made it.
    fs::DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
    let socket = address::fresh(&run, SocketRole::Guard).map_err(failed)?;
    let mut env = environment::with(&c.settings.env);
    shims(c)?.dress(&mut env, &socket, None).map_err(failed)?;
    let argv = c
        .command
        .iter()
        .map(|w| w.replace("{overrides}", ""))
        .filter(|w| !w.is_empty());
    let recording = Recording {
        exe: own_exe()?,
        run,
        socket,
        dir: dir.clone(),
        worker: WorkerOrder {
            argv: argv.collect(),
            env: env.into_iter().collect(),
            cwd: c.cwd.clone(),
        },
        limit: c.settings.learn_within,
        step: c.settings.learn_step,
    };
    let text = one_line(&shown_command(&c.command), 60);
    if !c.request.quiet {
        printer::note(&format!(
            "reading what `{text}` starts: it is run up to the call of its trainer, and ended there (within {}; a step of its own that lasts {} ends it)",
            in_words(c.settings.learn_within),
            in_words(c.settings.learn_step)
        ));
    }
    let root = starts::root_before(c);
    let before = root.as_deref().map(starts::steps_in).unwrap_or_default();
    let mut progress = WaitSpinner::new(format!("learning what `{text}` starts"));
    let heard = record(&recording, &mut |took| progress.tell(took)).map_err(failed);
    progress.end();
    clear(&dir);
    let heard = heard?;
    if let Some(root) = root {
        let after = starts::steps_in(&root);
        let gone: Vec<&String> = before.difference(&after).collect();
        if !gone.is_empty() && !c.request.fresh {
            return Err(deletes(c, &root, &gone));
        }
    }
    understood(c, heard)
}

/// The error for a script that removed steps before its call, as it would at each launch.
fn deletes(c: &RunSources, root: &Utf8Path, gone: &[&String]) -> CliError {
    let few: Vec<&str> = gone.iter().take(5).map(|name| name.as_str()).collect();
    let more = match gone.len().saturating_sub(few.len()) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    CliError::config(format!(
        "`{}` deleted {}{more} in {root} before it called the trainer, and would do so at each launch: nothing was started",
        shown_command(&c.command),
        few.join(", ")
    ))
    .hint("take that out of the script; --fresh begins anew and moves earlier steps aside")
}

/// Removes the directory, whose output was read. The guard may still be writing its last lines; what cannot be removed is only a
/// little text.
fn clear(dir: &Utf8Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(25))
            }
            _ => return,
        }
    }
}
