//! The calls of trainers that a script makes: what our programs in it say, and what runs although they said nothing.

use super::Guard;
use crate::guard::connection::Connection;
use crate::guard::protocol::{Called, FromGuard, FromShim, ScriptWatch};
use crate::guard::protocol::{WAY_VARIABLE, variables};
use crate::process::stat::command_line;
use camino::Utf8PathBuf;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use supervise_trainers::script_call;

/// Callers that are kept waiting; more are let go.
const HELD_LIMIT: usize = 64;
/// Processes that are looked at in one go.
const LOOK_LIMIT: usize = 1024;

/// How often is looked for a trainer until one is found, in milliseconds: it needs many seconds to its first save.
pub(crate) fn look_every(watch: &ScriptWatch) -> u64 {
    match watch {
        ScriptWatch::Record => 200,
        ScriptWatch::Marks { .. } => 1000,
    }
}

/// Facts about the calls in this attempt.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Ranks whose script has started its trainer.
    started: BTreeSet<Option<u32>>,
    /// Callers that wait to be ended.
    held: Vec<Connection>,
    /// Messages that the driver has to hear, also one that comes later.
    news: Option<FromShim>,
    /// A trainer runs as it should: nothing more is looked for.
    settled: bool,
}

impl Guard {
    /// One of our programs in the script says something; its connection stays open where it has to wait.
    pub(super) fn on_shim(&mut self, word: FromShim, mut from: Connection) {
        match word {
            FromShim::Passes { .. } => return self.tell(FromGuard::Shim(word)),
            FromShim::Starts { rank } => {
                if self.calls.started.insert(rank) {
                    // One that is gone already has no need of the answer.
                    let _ = from.send(FromGuard::MayStart);
                    return;
                }
                self.news(FromShim::Again);
            }
            // Nobody but the recorder asks for calls.
            FromShim::Called(_) if self.order.script != Some(ScriptWatch::Record) => return,
            word => self.news(word),
        }
        if self.calls.held.len() < HELD_LIMIT {
            self.calls.held.push(from);
        }
    }

    fn news(&mut self, word: FromShim) {
        self.calls.news.get_or_insert_with(|| word.clone());
        self.tell(FromGuard::Shim(word));
    }

    /// Says again what an earlier driver may not have heard.
    pub(super) fn repeat_news(&mut self) {
        if let Some(word) = self.calls.news.clone() {
            self.tell(FromGuard::Shim(word));
        }
    }

    /// Looks for a trainer that went past our programs.
    pub(super) fn look_at_calls(&mut self) {
        let Some(watch) = self.order.script.clone().filter(|_| !self.calls.settled) else {
            return;
        };
        let known: Vec<i32> = self.tree.known_pids().take(LOOK_LIMIT).collect();
        for pid in known {
            let Some(words) = trainer(pid) else { continue };
            self.calls.settled = true;
            self.tree.hurry(None);
            match &watch {
                ScriptWatch::Record => {
                    let called = Box::new(called(pid, words));
                    return self.news(FromShim::Called(called));
                }
                ScriptWatch::Marks { ours } if !script_call::is_marked(&words, ours) => {
                    return self.news(FromShim::Unmarked { words });
                }
                ScriptWatch::Marks { .. } => {}
            }
        }
    }
}

/// The command line of a process that is a trainer, and none of our programs on the way to become one.
fn trainer(pid: i32) -> Option<Vec<String>> {
    let before = program(pid)?;
    let words = command_line(pid)?;
    let is_trainer = script_call::is_trainer(&words) && Some(&before) == program(pid).as_ref();
    (is_trainer && Some(before) != program(std::process::id())).then_some(words)
}

fn program(pid: impl std::fmt::Display) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Facts about a call from its process.
fn called(pid: i32, words: Vec<String>) -> Called {
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|b| *b == b'=')?;
        let (name, value) = (entry.get(..at)?, entry.get(at + 1..)?);
        let os = |b: &[u8]| OsString::from(OsStr::from_bytes(b));
        (name != WAY_VARIABLE.as_bytes()).then(|| (os(name), os(value)))
    };
    Called {
        words,
        cwd: cwd
            .as_deref()
            .and_then(Path::to_str)
            .map_or_else(|| "/".into(), Utf8PathBuf::from),
        env: variables(environ.split(|b| *b == 0).filter_map(pair)),
        past: true,
    }
}
