//! Interprets what a recorded script did: the call that it makes, or a description.

use super::{RunSources, marks};
use crate::error::CliError;
use crate::prepare::path::absolute;
use crate::prepare::state_dir;
use crate::render::time::span;
use crate::render::{one_line, shown_command};
use camino::Utf8Path;
use std::time::Duration;
use supervise_config::{know_secret, know_words, redact_call};
use supervise_core::id::Ms;
use supervise_core::spec::script::LearnedCall;
use supervise_host::guard::protocol::ShimCall;
use supervise_host::script::ScriptEvent;
use supervise_trainers::registry;

pub(super) fn understood(c: &RunSources, heard: ScriptEvent) -> Result<LearnedCall, CliError> {
    let script = shown_command(&c.command);
    let silent = |seen: &[String]| {
        let python = seen
            .iter()
            .find(|call| call.starts_with("python") && call.contains(".py"));
        python.map(|call| directly(call))
    };
    let by_name = "call the trainer's program by its name (python3, torchrun, accelerate, trl): a call by path goes past supervise; or put {overrides} into the command and hand \"$@\" on to the trainer";
    match heard {
        ScriptEvent::Call { called, .. } if called.past && !marks(&c.command, "{overrides}") => {
            Err(CliError::config(format!(
                "`{script}` starts the trainer by the path of its interpreter ({}): our overrides would not reach it",
                called.words.first().map_or("", String::as_str)
            ))
            .hint(by_name))
        }
        ScriptEvent::Call { called, starts_ray } => match registry::called(&called.words).filter(|a| !a.is_learnt()) {
            Some(trainer) => Err(CliError::config(format!(
                "`{script}` starts {}, into whose call in a script nothing can be put: nothing was started",
                trainer.words().name
            ))
            .hint(format!(
                "give the call itself: supervise run … -- {}",
                shown_command(&redact_call(&called.words))
            ))
            .hint(plain(c))),
            None => Ok(kept(*called, starts_ray)),
        },
        ScriptEvent::Trains { words } => {
            let call = shown_command(&words);
            Err(CliError::config(format!(
                "`{script}` calls `{}`, which trains by what its code says: it was not started, and the script was ended there",
                one_line(&call, 300)
            ))
            .hint(directly(&call))
            .hint(plain(c)))
        }
        ScriptEvent::Background => Err(CliError::config(format!(
            "`{script}` exited before its trainer started"
        ))
        .hint("run the trainer in the foreground: leave out `&` and `nohup`; `supervise run --detach` goes on in the background")),
        ScriptEvent::Lasts { words } => Err(CliError::config(format!(
            "`{script}` runs `{}`, which lasts longer than {} and is no trainer that is known: before it could train unsupervised it was ended, with all that the script had started",
            one_line(&shown_command(&words), 300),
            in_words(c.settings.learn_step)
        ))
        .hint(plain(c))
        .hint("where it only prepares, and the trainer comes after it: --set supervisor.learn_step=30m")
        .hint(silent(&[shown_command(&words)]).unwrap_or_else(|| by_name.to_owned()))),
        ScriptEvent::Overdue { seen } => Err(CliError::config(format!(
            "`{script}` has started no trainer that is known ({}) within {} s{}",
            registry::frameworks(),
            c.settings.learn_within.as_secs(),
            listed(&seen)
        ))
        .hint("--set supervisor.learn_within=1h where its preparations take longer")
        .hint(by_name)
        .hint(plain(c))),
        ScriptEvent::Ended { status, seen, output } => {
            let how = status.map_or_else(|| "ended".to_owned(), |s| format!("ended ({s})"));
            let mut e = CliError::config(format!(
                "`{script}` {how} without a call that could be seen of a trainer that is known ({}){}",
                registry::frameworks(),
                listed(&seen)
            ));
            let hint = silent(&seen).unwrap_or_else(|| by_name.to_owned());
            e = e.with_lines(last_lines(&output)).hint(hint);
            Err(e.hint(plain(c)))
        }
    }
}

/// How to protect a call that does not show its trainer.
fn directly(call: &str) -> String {
    format!(
        "`{call}` tells nothing of its trainer by its words: if it trains on {}, start it without the script, from the directory that the script is in by then (supervise run -- {call}): it is seen while it runs; or give its settings as flags",
        registry::seen_trainers()
    )
}

/// How to run a script whose trainer is unknown.
fn plain(c: &RunSources) -> String {
    format!(
        "where it starts none of {}, it is supervised as it is, and relaunched as a whole: supervise run --set supervisor.trainer=plain -- {}",
        registry::frameworks(),
        shown_command(&c.command)
    )
}

pub(super) fn in_words(time: Duration) -> String {
    span(Ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

fn listed(seen: &[String]) -> String {
    match seen {
        [] => String::new(),
        _ => format!("; it called: {}", seen.join("; ")),
    }
}

fn last_lines(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().filter(|l| !l.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(5);
    let shown = lines.get(from..).unwrap_or(&[]);
    shown.iter().map(|l| format!("    {}", one_line(l, 300))).collect()
}

/// A recorded call, from which the configuration is read. It is stored only without secrets.
fn kept(called: ShimCall, starts_ray: bool) -> LearnedCall {
    for (name, value) in &called.env {
        know_secret(name, value);
    }
    know_words(&called.words);
    LearnedCall {
        command: called.words,
        ahead: Vec::new(),
        cwd: absolute(Utf8Path::new("/"), &called.cwd),
        env: called
            .env
            .into_iter()
            .map(|(k, v)| match k.as_str() {
                "PATH" => (k, without_shims(&v)),
                _ => (k, v),
            })
            .collect(),
        past: called.past,
        starts_ray,
    }
}

/// Removes our shims, so that a later read finds the real programs.
fn without_shims(path: &str) -> String {
    let shims = state_dir().map(|d| d.join("shims"));
    let ours = |dir: &&str| shims.as_ref().is_some_and(|s| Utf8Path::new(dir).starts_with(s));
    path.split(':').filter(|d| !ours(d)).collect::<Vec<_>>().join(":")
}
