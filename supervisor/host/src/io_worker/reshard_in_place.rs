//! Reshards a step in place for another number of ranks.
//!
//! The new step is written to a staging path, made durable, and exchanged with the old one, which is then moved
//! aside. If a file system cannot exchange two names, the old one is moved aside first. An interruption leaves one of
//! these states, and [`Cutter::end`] tells them apart by the number of ranks that saved what is at each path: nothing
//! is deleted that is not known to be a copy.

use super::edit::{StepRoot, inside, perform, put_aside};
use super::proof_record::follow;
use super::reshard::{self, NotCut};
use super::scan::RootProver;
use super::write::{disk_error, make_dir};
use crate::disk::{remove_tree, sync_dir};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::InspectLimits;
use supervise_core::checkpoint::Verdict;
use supervise_core::checkpoint::reshard::{ReshardSpec, ReshardedStep};
use supervise_core::decide::limits::says_full;
use supervise_core::event::{ActError, ActErrorKind};
use supervise_core::journal::record::DiskEdit;

/// Receives the bytes written and the total; returns false to cancel.
pub(super) type GoOn<'a> = dyn FnMut(u64, u64) -> bool + Send + 'a;

/// Performs edits, including reshards. Returns the resharded step.
pub(super) fn perform_all(
    cutter: &mut Cutter<'_>,
    edits: &[DiskEdit],
    go_on: &mut GoOn<'_>,
) -> Result<Option<ReshardedStep>, ActError> {
    let mut derived = None;
    for edit in edits {
        match edit {
            DiskEdit::Reshard(cut) => derived = Some(cutter.reshard(cut, go_on)?),
            DiskEdit::EndReshard(cut) => derived = cutter.end(cut)?,
            plain => {
                let place = StepRoot {
                    root: cutter.root,
                    store: cutter.store,
                    steps: cutter.prover.tracked(),
                };
                perform(place, std::slice::from_ref(plain), cutter.by, cutter.records)?;
            }
        }
    }
    Ok(derived)
}

/// Limits for inspection: this many bytes of memory, 0 for the default.
pub(super) fn limits(memory: u64) -> InspectLimits {
    let built_in = InspectLimits::default();
    match usize::try_from(memory).unwrap_or(usize::MAX) {
        0 => built_in,
        memory => InspectLimits { memory, ..built_in },
    }
}

pub(super) struct Cutter<'a> {
    pub(super) root: &'a Utf8Path,
    /// Directory of steps moved aside.
    pub(super) store: &'a Utf8Path,
    pub(super) prover: &'a mut RootProver,
    /// Named in the note beside a step that is moved aside.
    pub(super) by: &'a str,
    pub(super) records: Option<&'a Utf8Path>,
    pub(super) limits: InspectLimits,
}

impl Cutter<'_> {
    /// Idempotent: an interrupted reshard is finished first.
    fn reshard(&mut self, cut: &ReshardSpec, go_on: &mut GoOn<'_>) -> Result<ReshardedStep, ActError> {
        if let Some(done) = self.end(cut)? {
            return Ok(done);
        }
        let (step, stage) = self.places(cut)?;
        self.is_untouched(cut)?;
        let content = reshard::content(&step).map_err(|e| not_cut(cut, &e))?;
        if content.world != u64::from(cut.from) {
            let text = format!("it was saved by {} ranks", content.world);
            return Err(refused(cut, &text));
        }
        let above = stage.parent().unwrap_or(self.root);
        make_dir(above).map_err(|e| disk_error(&format!("creating {above}"), &e))?;
        crate::system::raise_open_files();
        let mut progress = |done: u64, of: u64| match go_on(done, of) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        reshard::write(&step, &stage, &content, cut.to.into(), &self.limits, &mut progress)
            .map_err(|e| not_cut(cut, &e))?;
        // The source was not changed meanwhile, and the caller has not cancelled.
        if !go_on(0, 0) {
            return Err(not_cut(cut, &NotCut::Interrupted));
        }
        self.is_untouched(cut)?;
        let kept = self.put_in_place(cut, &step, &stage).map_err(|e| failed(cut, &e))?;
        let done = self.end(cut)?.map(|done| ReshardedStep {
            kept: done.kept.or(kept),
            ..done
        });
        done.ok_or_else(|| refused(cut, "the resharded step is not in its place"))
    }

    /// Finishes an interrupted reshard. `None`: the step is unchanged.
    fn end(&mut self, cut: &ReshardSpec) -> Result<Option<ReshardedStep>, ActError> {
        let (step, stage) = self.places(cut)?;
        let mut kept = None;
        match ranks(&stage).map_err(|e| not_cut(cut, &e))? {
            None => {}
            Some(n) if n == u64::from(cut.from) => {
                let to = self.aside(cut, &stage).map_err(|e| failed(cut, &e))?;
                kept = Some(to);
            }
            Some(n) if n == u64::from(cut.to) && !is_there(&step) => {
                fs::rename(&stage, &step)
                    .and_then(|()| sync_dir(self.root))
                    .map_err(|e| failed(cut, &e))?;
            }
            Some(n) if n == u64::from(cut.to) => {}
            Some(n) => {
                let text = format!("{stage} was saved by {n} ranks, and is not known: move it away");
                return Err(refused(cut, &text));
            }
        }
        if let Some(above) = stage.parent().filter(|dir| is_there(dir)) {
            remove_tree(above).map_err(|e| failed(cut, &e))?;
        }
        if !is_there(&step) || ranks(&step).map_err(|e| not_cut(cut, &e))? != Some(u64::from(cut.to)) {
            return Ok(None);
        }
        let pins = self.prover.pins_now(&cut.ckpt).map_err(|e| failed(cut, &e))?;
        Ok(pins.map(|pins| ReshardedStep {
            of: cut.clone(),
            pins,
            kept: kept.map(|to| to.strip_prefix(self.root).map(Utf8Path::to_owned).unwrap_or(to)),
        }))
    }

    fn places(&self, cut: &ReshardSpec) -> Result<(Utf8PathBuf, Utf8PathBuf), ActError> {
        inside(&cut.ckpt).map_err(|e| failed(cut, &e))?;
        let stage = self.store.join("reshard").join(&cut.ckpt.0);
        Ok((self.root.join(&cut.ckpt.0), stage))
    }

    fn is_untouched(&mut self, cut: &ReshardSpec) -> Result<(), ActError> {
        let now = self.prover.pins_now(&cut.ckpt).map_err(|e| failed(cut, &e))?;
        if now == Some(cut.pins) {
            return Ok(());
        }
        Err(ActError {
            what: format!("{} is not what was proven: somebody wrote into it", cut.ckpt),
            retryable: true,
            kind: ActErrorKind::PinsChanged,
        })
    }

    /// Returns where the old step is, if it had to be moved aside first.
    fn put_in_place(&self, cut: &ReshardSpec, step: &Utf8Path, stage: &Utf8Path) -> io::Result<Option<Utf8PathBuf>> {
        let exchanged = renameat_with(CWD, stage.as_std_path(), CWD, step.as_std_path(), RenameFlags::EXCHANGE);
        let kept = match exchanged {
            Ok(()) => None,
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let kept = self.aside(cut, step)?;
                fs::rename(stage, step)?;
                Some(kept)
            }
            Err(e) => return Err(e.into()),
        };
        sync_dir(self.root)?;
        stage.parent().map_or(Ok(()), sync_dir)?;
        Ok(kept.map(|to| to.strip_prefix(self.root).map(Utf8Path::to_owned).unwrap_or(to)))
    }

    fn aside(&self, cut: &ReshardSpec, place: &Utf8Path) -> io::Result<Utf8PathBuf> {
        let why = format!(
            "{} ranks saved it, and the run has {}: the step in its place was resharded from it",
            cut.from, cut.to
        );
        let note = json!({
            "from": cut.ckpt.0, "whole": true, "foreign": false, "why": why, "by": self.by, "ranks": cut.from,
        });
        let to = put_aside(self.store, place, &cut.ckpt, false, &note, self.by)?;
        if let Some(records) = self.records {
            follow(records, &cut.ckpt, &to);
        }
        Ok(to)
    }
}

fn is_there(path: &Utf8Path) -> bool {
    !fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// How many ranks saved the step in this directory; `None`: it does not exist.
fn ranks(dir: &Utf8Path) -> Result<Option<u64>, NotCut> {
    match is_there(dir) {
        true => reshard::content(dir).map(|content| Some(content.world)),
        false => Ok(None),
    }
}

fn named(cut: &ReshardSpec) -> String {
    format!("cutting {} anew for {} ranks", cut.ckpt, cut.to)
}

fn failed(cut: &ReshardSpec, e: &io::Error) -> ActError {
    disk_error(&named(cut), e)
}

fn refused(cut: &ReshardSpec, why: &str) -> ActError {
    ActError {
        what: format!("{}: {why}", named(cut)),
        retryable: false,
        kind: ActErrorKind::NotCut,
    }
}

fn not_cut(cut: &ReshardSpec, why: &NotCut) -> ActError {
    let (retryable, kind) = match why {
        NotCut::Step {
            verdict: Verdict::Unreadable,
            ..
        }
        | NotCut::Machine { .. } => match says_full(&why.to_string()) {
            true => (true, ActErrorKind::NoRoom),
            false => (true, ActErrorKind::Disk),
        },
        NotCut::NoRoom { .. } => (false, ActErrorKind::NoRoom),
        NotCut::Interrupted => (true, ActErrorKind::Other),
        NotCut::Step {
            verdict: Verdict::Damaged | Verdict::Incomplete,
            ..
        } => (false, ActErrorKind::NotWhole),
        NotCut::Step { .. } | NotCut::Exists(_) | NotCut::NoParent(_) | NotCut::Internal(_) => {
            (false, ActErrorKind::NotCut)
        }
    };
    let next = match why {
        NotCut::Step { hint: Some(hint), .. } | NotCut::Machine { hint: Some(hint), .. } => format!("; {hint}"),
        NotCut::NoRoom { .. } => "; free some space: as it is the step goes aside, so that both fit".to_owned(),
        _ => String::new(),
    };
    ActError {
        what: format!("{}: {why}{next}", named(cut)),
        retryable,
        kind,
    }
}
