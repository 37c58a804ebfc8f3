//! The lease: which supervisor holds a run.
//!
//! The winner of a term creates `lease/<term>/` with `holder.json` in it, and increments a counter there and in
//! `beat`. The latter is written in place, for mounts that still show the old file after a rename has replaced it.

mod draft;

use super::edit::store_dir;
use super::files::{SMALL, named, read_small};
use super::write::{PRIVATE, disk_error, make_dir, write_whole};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};
use supervise_core::event::{ActError, ActErrorKind};
use supervise_core::id::{Ms, Term, Tick};
use supervise_core::lease::{Challenger, ClaimResult, Holder, LeaseClaim, LeaseSnapshot};
use supervise_core::spec::{RunSpec, SavePolicy};

const BEAT: &str = "beat";
/// Its length, so that it is overwritten completely.
const DIGITS: usize = 20;
const LOOK: Duration = Duration::from_millis(500);
/// How often in a row the term's directory may exist already without its winner being visible: first because another
/// supervisor was faster, then for longer than a mount shows an old listing.
const BEATEN: u32 = 200;
const SOON: u32 = 10;
/// Terms without a holder file that are skipped to find the previous holder.
const SILENT: usize = 4;

#[derive(Debug)]
pub(super) struct HeldLease {
    dir: Utf8PathBuf,
    holder: Holder,
    beat: Option<File>,
    /// Start of the check by which it was won; 0: taken over from another I/O worker.
    looked: Tick,
}

#[derive(Debug)]
pub(super) enum LeaseAttempt {
    Won(Box<HeldLease>),
    Held(String),
    /// The requester has exited: nothing was taken.
    Nobody,
}

/// Directory where the terms of a run are won: on the checkpoint root's own file system.
#[must_use]
pub fn lease_dir(spec: Option<&RunSpec>, run_dir: &Utf8Path) -> Utf8PathBuf {
    let store = spec.and_then(|spec| match (&spec.saves, &spec.root) {
        (SavePolicy::InPlace(place), _) => Some(place.store.clone()),
        (SavePolicy::Steps, Some(root)) => Some(store_dir(spec, root)),
        (SavePolicy::Steps, None) => None,
    });
    store.unwrap_or_else(|| run_dir.to_owned()).join("lease")
}

/// The claim of this process.
#[must_use]
pub fn own_claim(ttl: Ms, lasts: Ms, above: Term) -> LeaseClaim {
    LeaseClaim {
        host: crate::process::host_name(),
        seat: crate::process::own_pid_scope(),
        proc: crate::process::own_ref(),
        ttl,
        lasts,
        above,
    }
}

impl HeldLease {
    /// Wins the next term, or waits until a holder is known to be running. `copied`: the directory names another
    /// path. `gone`: whether the requester has exited.
    pub(super) fn take(
        dir: &Utf8Path,
        claim: &LeaseClaim,
        copied: bool,
        gone: &dyn Fn() -> bool,
    ) -> Result<LeaseAttempt, ActError> {
        let at = |e: &io::Error| disk_error(&format!("taking the lease in {dir}"), e);
        make_dir(dir).map_err(|e| at(&e))?;
        let mut challenger = Challenger::default();
        let mut beaten = 0;
        loop {
            let from = Tick(crate::process::boottime_ms());
            let found = LeaseContents::look(dir).map_err(|e| at(&e))?;
            let now = Tick(crate::process::boottime_ms());
            if gone() {
                return Ok(LeaseAttempt::Nobody);
            }
            match challenger.look(from, now, found.seen(claim, copied), claim) {
                ClaimResult::Take(term) => match Self::win(dir, claim, term, from) {
                    Ok(Some(mut lease)) => {
                        if gone() {
                            lease.release()?;
                            return Ok(LeaseAttempt::Nobody);
                        }
                        return Ok(LeaseAttempt::Won(Box::new(lease)));
                    }
                    // Another supervisor was faster: check again who it is.
                    Ok(None) if beaten < BEATEN => {
                        beaten += 1;
                        std::thread::sleep(if beaten <= SOON { LOOK / 10 } else { LOOK });
                    }
                    Ok(None) => return Err(refused(dir, &format!("{term} cannot be made and is not there"))),
                    Err(e) => return Err(at(&e)),
                },
                ClaimResult::Held(h) => {
                    return Ok(LeaseAttempt::Held(format!(
                        "process {} on {} (term {})",
                        h.proc, h.host, h.term
                    )));
                }
                ClaimResult::Wait(until) => {
                    let left = Duration::from_millis(until.since(now).0);
                    std::thread::sleep(left.clamp(Duration::from_millis(10), LOOK));
                }
                ClaimResult::Absurd(term) => {
                    return Err(refused(
                        dir,
                        &format!("{term} is a term that no supervisor ever came to"),
                    ));
                }
            }
        }
    }

    /// Creates the directory of a term; `None` if it exists already.
    fn win(dir: &Utf8Path, claim: &LeaseClaim, term: Term, looked: Tick) -> io::Result<Option<Self>> {
        let mut lease = Self {
            dir: dir.to_owned(),
            holder: claim.holder(term),
            beat: None,
            looked,
        };
        Ok(draft::place(&mut lease)?.then_some(lease))
    }

    pub(super) fn adopt(dir: &Utf8Path, term: Term) -> Result<Self, ActError> {
        let own = dir.join(term.to_string());
        let at = |e: &io::Error| disk_error(&format!("going on with the lease in {own}"), e);
        let holder = read_holder(&own).map_err(|e| at(&e))?;
        let holder = holder.ok_or_else(|| refused(dir, &format!("{term} does not say who holds it")))?;
        let mut options = OpenOptions::new();
        let beat = options.write(true).custom_flags(libc::O_NOFOLLOW).open(own.join(BEAT));
        Ok(Self {
            dir: dir.to_owned(),
            holder,
            // A term of an older release has none.
            beat: beat.ok(),
            looked: Tick(0),
        })
    }

    /// Writes the first holder file, into the term's directory or its draft.
    fn write_into(&mut self, dir: &Utf8Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE);
        self.beat = Some(options.open(dir.join(BEAT))?);
        self.write_in(dir)
    }

    pub(super) fn own_dir(&self) -> Utf8PathBuf {
        self.dir.join(self.holder.term.to_string())
    }

    /// Start of the check by which it was won, by the boot clock.
    pub(super) fn looked(&self) -> Tick {
        self.looked
    }

    pub(super) fn term(&self) -> Term {
        self.holder.term
    }

    fn write(&self) -> io::Result<()> {
        self.write_in(&self.own_dir())
    }

    fn write_in(&self, dir: &Utf8Path) -> io::Result<()> {
        if let Some(beat) = &self.beat {
            beat.write_all_at(format!("{:0DIGITS$}", self.holder.counter).as_bytes(), 0)?;
        }
        let text = json!(self.holder).to_string();
        // Durable: a challenger, here or on another machine, reads whom it would have to wait for.
        write_whole(&dir.join(HOLDER), text.as_bytes(), PRIVATE)
    }

    /// Renews the lease. `Ok(Some(who))`: another supervisor has it.
    pub(super) fn bump(&mut self) -> Result<Option<String>, ActError> {
        let at = |e: &io::Error| disk_error(&format!("renewing the lease in {}", self.dir), e);
        let newest = terms(&self.dir).map_err(|e| at(&e))?.pop().unwrap_or_default();
        if newest > self.holder.term {
            let holder = read_holder(&self.dir.join(newest.to_string())).map_err(|e| at(&e))?;
            let who = holder.map_or_else(
                || format!("term {newest}"),
                |h| format!("process {} on {}", h.proc, h.host),
            );
            return Ok(Some(who));
        }
        self.holder.counter += 1;
        match self.write() {
            // Overwriting in place needs no space and is checked as well.
            Err(e) if self.beat.is_some() && is_full(&e) => tracing::warn!("{}", at(&e).what),
            written => written.map_err(|e| at(&e))?,
        }
        Ok(None)
    }

    pub(super) fn release(&mut self) -> Result<(), ActError> {
        self.holder.released = true;
        self.write()
            .map_err(|e| disk_error(&format!("releasing the lease in {}", self.dir), &e))
    }
}

/// No space for a new `holder.json`; the counter in `beat` was written before.
fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

const HOLDER: &str = "holder.json";

struct LeaseContents {
    newest: Term,
    holder: Option<Holder>,
    beat: Option<u64>,
}

impl LeaseContents {
    fn look(dir: &Utf8Path) -> io::Result<Self> {
        let terms = terms(dir)?;
        let newest = terms.last().copied().unwrap_or_default();
        let mut found = Self {
            newest,
            holder: None,
            beat: None,
        };
        for term in terms.iter().rev().take(SILENT) {
            let own = dir.join(term.to_string());
            found.holder = read_holder(&own)?;
            if found.holder.is_some() {
                break;
            }
        }
        if let Ok(text) = read_small(&dir.join(newest.to_string()).join(BEAT), SMALL) {
            found.beat = std::str::from_utf8(&text).ok().and_then(|t| t.trim().parse().ok());
        }
        Ok(found)
    }

    fn seen(&self, claim: &LeaseClaim, copied: bool) -> LeaseSnapshot<'_> {
        let here = self.holder.as_ref().filter(|h| claim.seat.is_same(&h.seat));
        LeaseSnapshot {
            newest: self.newest,
            holder: self.holder.as_ref(),
            beat: self.beat,
            // Our own term: an I/O worker of this process won it and died before it could answer.
            alive: here.and_then(|h| match h.proc == claim.proc {
                true => Some(false),
                false => crate::process::sight(h.proc),
            }),
            copied,
        }
    }
}

/// The newest holder and the time since its last heartbeat, by the file system's clock, which may differ from ours.
pub(super) fn last_sign(dir: &Utf8Path) -> Option<(Holder, Ms)> {
    let found = LeaseContents::look(dir).ok()?;
    let own = dir.join(found.newest.to_string());
    let changed = |name: &str| fs::metadata(own.join(name)).and_then(|m| m.modified()).ok();
    let newest = changed(BEAT).max(changed(HOLDER))?;
    let silent = SystemTime::now().duration_since(newest).unwrap_or_default();
    Some((found.holder?, Ms(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX))))
}

/// The terms that were won, oldest first. Only directories with names that a supervisor would choose count.
fn terms(dir: &Utf8Path) -> io::Result<Vec<Term>> {
    let mut out = Vec::new();
    let entries = dir.read_dir_utf8().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(e.kind(), "the directory was deleted meanwhile"),
        _ => e,
    })?;
    for entry in entries {
        let entry = match entry {
            Err(e) if super::files::is_no_text(&e) => continue,
            entry => entry?,
        };
        let name = entry.file_name();
        let Some(term) = name.parse::<u32>().ok().filter(|n| n.to_string() == name) else {
            continue;
        };
        if !entry.file_type()?.is_dir() {
            return Err(io::Error::other(format!(
                "{} is no directory, and no supervisor made it: look who did and remove it",
                entry.path()
            )));
        }
        out.push(Term(term));
    }
    out.sort_unstable();
    Ok(out)
}

fn read_holder(own: &Utf8Path) -> io::Result<Option<Holder>> {
    let path = own.join(HOLDER);
    match read_small(&path, SMALL) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(named(&path, e)),
    }
}

fn refused(dir: &Utf8Path, what: &str) -> ActError {
    ActError {
        what: format!("the lease cannot be taken: {dir}/{what}: somebody else made it; look who did and remove it"),
        retryable: false,
        kind: ActErrorKind::Disk,
    }
}

#[cfg(test)]
mod tests;
