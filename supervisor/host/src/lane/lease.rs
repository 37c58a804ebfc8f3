//! The lease: which supervisor holds a run.
//!
//! `lease/<term>/` is made by its winner, who writes `holder.json` in it, and bumps a counter there and in `beat`. The
//! second one is written in place: a mount that shows an old file where a new one was renamed over it shows it all the same.

use super::edit::{PRIVATE, disk_error, make_dir, write_whole};
use super::files::read_small;
use super::store::{SMALL, named};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::time::Duration;
use supervise_core::event::{ActError, ActErrorKind};
use supervise_core::id::{Ms, Term, Tick};
use supervise_core::lease::{Challenger, Claim, Holder, Seen, Verdict};

/// The counter that is written in place.
const BEAT: &str = "beat";
/// Its length, so that it is overwritten whole.
const DIGITS: usize = 20;
/// While a holder is waited for, the lease is looked at this often.
const LOOK: Duration = Duration::from_millis(500);
/// Times in a row that somebody else makes the directory that we would, and is not to be seen in it.
const BEATEN: u32 = 50;
/// Terms whose winner left no word and that are passed over to find who came before.
const SILENT: usize = 4;

/// The lease of the present term.
#[derive(Debug)]
pub(super) struct Lease {
    dir: Utf8PathBuf,
    holder: Holder,
    beat: Option<File>,
}

/// How an attempt to take it ended.
#[derive(Debug)]
pub(super) enum Took {
    /// It is ours.
    Won(Box<Lease>),
    /// Somebody holds it.
    Held(String),
    /// Whoever asked is gone: nothing was taken.
    Nobody,
}

/// A claim of this process.
#[must_use]
pub fn own_claim(ttl: Ms, lasts: Ms, above: Term) -> Claim {
    Claim {
        host: crate::process::host_name(),
        seat: crate::process::seat(),
        proc: crate::process::own_ref(),
        ttl,
        lasts,
        above,
    }
}

impl Lease {
    /// Wins the next term, or waits until it is known that somebody lives. `copied`: the directory bears another
    /// place's name. `gone`: nobody waits for the answer any more.
    pub(super) fn take(dir: &Utf8Path, claim: &Claim, copied: bool, gone: &dyn Fn() -> bool) -> Result<Took, ActError> {
        let at = |e: &io::Error| disk_error(&format!("taking the lease in {dir}"), e);
        make_dir(dir).map_err(|e| at(&e))?;
        let mut challenger = Challenger::default();
        let mut beaten = 0;
        loop {
            let found = Found::look(dir).map_err(|e| at(&e))?;
            let now = Tick(crate::process::boottime_ms());
            if gone() {
                return Ok(Took::Nobody);
            }
            match challenger.look(now, found.seen(claim, copied), claim) {
                Verdict::Take(term) => match Self::win(dir, claim, term) {
                    Ok(Some(mut lease)) => {
                        // Nobody would ever renew it.
                        if gone() {
                            lease.release()?;
                            return Ok(Took::Nobody);
                        }
                        return Ok(Took::Won(Box::new(lease)));
                    }
                    // Somebody was faster: look again at who it is.
                    Ok(None) if beaten < BEATEN => {
                        beaten += 1;
                        std::thread::sleep(LOOK / 10);
                    }
                    Ok(None) => return Err(refused(dir, &format!("{term} cannot be made and is not there"))),
                    Err(e) => return Err(at(&e)),
                },
                Verdict::Held(h) => {
                    return Ok(Took::Held(format!(
                        "process {} on {} (term {})",
                        h.proc, h.host, h.term
                    )));
                }
                Verdict::Wait(until) => {
                    let left = Duration::from_millis(until.since(now).0);
                    std::thread::sleep(left.clamp(Duration::from_millis(10), LOOK));
                }
                Verdict::Absurd(term) => {
                    return Err(refused(
                        dir,
                        &format!("{term} is a term that no supervisor ever came to"),
                    ));
                }
            }
        }
    }

    /// Makes the directory of a term; `None` where it is there already.
    fn win(dir: &Utf8Path, claim: &Claim, term: Term) -> io::Result<Option<Self>> {
        let own = dir.join(term.to_string());
        match fs::DirBuilder::new().mode(0o700).create(&own) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(e) => return Err(e),
        }
        let mut lease = Self {
            dir: dir.to_owned(),
            holder: claim.holder(term),
            beat: None,
        };
        let written = lease.begin_beat().and_then(|()| lease.write());
        if let Err(e) = written {
            // A term without a word of its winner would be waited for.
            let _ = fs::remove_dir_all(&own);
            return Err(e);
        }
        Ok(Some(lease))
    }

    /// The lease of a term that another lane won.
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
        })
    }

    fn begin_beat(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE);
        self.beat = Some(options.open(self.own_dir().join(BEAT))?);
        Ok(())
    }

    /// The directory of the term.
    pub(super) fn own_dir(&self) -> Utf8PathBuf {
        self.dir.join(self.holder.term.to_string())
    }

    /// The term.
    pub(super) fn term(&self) -> Term {
        self.holder.term
    }

    fn write(&self) -> io::Result<()> {
        if let Some(beat) = &self.beat {
            beat.write_all_at(format!("{:0DIGITS$}", self.holder.counter).as_bytes(), 0)?;
        }
        let text = json!(self.holder).to_string();
        write_whole(&self.own_dir().join(HOLDER), text.as_bytes(), PRIVATE)
    }

    /// Shows that the holder lives. `Ok(Some(who))`: the lease is another's.
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
        self.write().map_err(|e| at(&e))?;
        Ok(None)
    }

    /// Gives the lease back.
    pub(super) fn release(&mut self) -> Result<(), ActError> {
        self.holder.released = true;
        self.write()
            .map_err(|e| disk_error(&format!("releasing the lease in {}", self.dir), &e))
    }
}

/// What a holder says of itself.
const HOLDER: &str = "holder.json";

/// What stands in the lease's directory.
struct Found {
    newest: Term,
    holder: Option<Holder>,
    beat: Option<u64>,
}

impl Found {
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

    fn seen(&self, claim: &Claim, copied: bool) -> Seen<'_> {
        let here = self.holder.as_ref().filter(|h| claim.seat.is_same(&h.seat));
        Seen {
            newest: self.newest,
            holder: self.holder.as_ref(),
            beat: self.beat,
            // Our own: a lane of this process won that term, and died before it could say so.
            alive: here.and_then(|h| match h.proc == claim.proc {
                true => Some(false),
                false => crate::process::sight(h.proc),
            }),
            copied,
        }
    }
}

/// The terms that were won, oldest first. Only what a supervisor would have made counts, and it is a directory.
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
mod tests {
    use super::super::temp_dir;
    use super::*;
    use supervise_core::id::ProcRef;

    fn claim(ttl: u64) -> Claim {
        own_claim(Ms(ttl), Ms(0), Term(0))
    }

    /// Of another process that lives.
    fn parents(ttl: u64) -> Claim {
        let pid = nix::unistd::getppid().as_raw();
        let start = crate::process::proc_stat(pid).unwrap().start;
        Claim {
            proc: ProcRef { pid, start },
            ..claim(ttl)
        }
    }

    /// A process of another pid namespace on the same kernel, under the same host name.
    fn elsewhere(ttl: u64) -> Claim {
        let mut claim = claim(ttl);
        claim.seat.pid_ns += 1;
        claim
    }

    fn take(dir: &Utf8Path, claim: &Claim) -> Result<Lease, String> {
        match Lease::take(dir, claim, false, &|| false).unwrap() {
            Took::Won(lease) => Ok(*lease),
            Took::Held(who) => Err(who),
            Took::Nobody => Err("nobody asked".into()),
        }
    }

    #[test]
    fn a_term_is_won_once_and_a_dead_holder_is_succeeded() {
        let (_keep, dir) = temp_dir();
        let mut first = take(&dir, &claim(100)).unwrap();
        assert_eq!(first.term(), Term(1));
        assert!(take(&dir, &parents(100)).is_err());
        assert_eq!(first.bump().unwrap(), None);
        // A lane of this very process may have won it and died.
        assert_eq!(take(&dir, &claim(100)).unwrap().term(), Term(2));
        let mut dead = Lease::adopt(&dir, Term(2)).unwrap();
        dead.holder.proc.start += 1;
        dead.write().unwrap();
        assert_eq!(take(&dir, &parents(100)).unwrap().term(), Term(3));
        assert!(
            first.bump().unwrap().is_some(),
            "the first holder must learn that it lost"
        );
        let mut adopted = Lease::adopt(&dir, Term(1)).unwrap();
        assert!(adopted.bump().unwrap().is_some());
    }

    #[test]
    fn a_silent_holder_elsewhere_is_waited_for_whatever_its_host_is_called() {
        let (_keep, dir) = temp_dir();
        let mut other_boot = claim(100);
        other_boot.seat.boot = "another".into();
        for (n, other) in [elsewhere(100), other_boot].iter().enumerate() {
            let dir = dir.join(n.to_string());
            let first = take(&dir, other).unwrap();
            assert_eq!(first.holder.host, claim(150).host);
            let before = crate::process::boottime_ms();
            assert_eq!(take(&dir, &claim(150)).unwrap().term(), Term(2));
            assert!(crate::process::boottime_ms() - before >= 150);
        }
    }

    #[test]
    fn a_holder_elsewhere_that_bumps_is_alive() {
        let (_keep, dir) = temp_dir();
        let mut first = take(&dir, &elsewhere(60_000)).unwrap();
        let beating = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            first.bump().unwrap();
        });
        assert!(take(&dir, &claim(60_000)).is_err());
        beating.join().unwrap();
    }

    #[test]
    fn nobody_who_waits_any_more_takes_nothing() {
        let (_keep, dir) = temp_dir();
        let _first = take(&dir, &elsewhere(100)).unwrap();
        let took = Lease::take(&dir, &claim(60_000), false, &|| true).unwrap();
        assert!(matches!(took, Took::Nobody));
        assert_eq!(terms(&dir).unwrap(), [Term(1)]);
    }

    #[test]
    fn absurd_entries_are_refused_or_passed_over() {
        for name in ["4294967295", "4294967294", "99999999"] {
            let (_keep, dir) = temp_dir();
            fs::create_dir(dir.join(name)).unwrap();
            let error = Lease::take(&dir, &claim(10), false, &|| false).unwrap_err();
            assert!(error.what.contains(name) && !error.retryable, "{error:?}");
        }
        let (_keep, dir) = temp_dir();
        for name in ["007", "+7", "4294967296", "-1", "x"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        assert_eq!(take(&dir, &claim(10)).unwrap().term(), Term(1));
        fs::write(dir.join("9"), "").unwrap();
        let error = Lease::take(&dir, &claim(10), false, &|| false).unwrap_err();
        assert!(error.what.contains("9 is no directory"), "{error:?}");
    }

    #[test]
    fn a_file_in_the_place_of_the_lease_is_named() {
        let (_keep, dir) = temp_dir();
        fs::write(dir.join("lease"), "").unwrap();
        let error = Lease::take(&dir.join("lease"), &claim(10), false, &|| false).unwrap_err();
        assert!(error.what.contains("lease is in the way"), "{error:?}");
    }

    #[test]
    fn a_lease_that_is_deleted_while_it_is_waited_for_is_an_error() {
        let (_keep, dir) = temp_dir();
        let dir = dir.join("lease");
        let _first = take(&dir, &elsewhere(60_000)).unwrap();
        let gone = dir.clone();
        let deleting = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            fs::remove_dir_all(gone).unwrap();
        });
        let error = Lease::take(&dir, &claim(60_000), false, &|| false).unwrap_err();
        assert!(error.what.contains("was deleted meanwhile"), "{error:?}");
        deleting.join().unwrap();
    }

    #[test]
    fn a_copy_of_a_living_holders_lease_is_told_by_its_counter() {
        let (_keep, dir) = temp_dir();
        let (original, copy) = (dir.join("a"), dir.join("b"));
        let _held = take(&original, &parents(100)).unwrap();
        fs::create_dir_all(copy.join("1")).unwrap();
        for name in [HOLDER, BEAT] {
            fs::copy(original.join("1").join(name), copy.join("1").join(name)).unwrap();
        }
        assert!(take(&copy, &claim(100)).is_err());
        let took = Lease::take(&copy, &claim(100), true, &|| false).unwrap();
        assert!(matches!(took, Took::Won(lease) if lease.term() == Term(2)));
    }
}
