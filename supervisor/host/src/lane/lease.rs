//! The lease: which supervisor holds a run.

use super::edit::{PRIVATE, disk_error, make_dir, write_whole};
use super::files::read_small;
use super::store::{SMALL, named};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::json;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;
use supervise_core::event::ActError;
use supervise_core::id::{Ms, ProcRef, Term, Tick};
use supervise_core::lease::{Challenger, Holder, Verdict};

/// The lease of the present term.
#[derive(Debug)]
pub(super) struct Lease {
    dir: Utf8PathBuf,
    holder: Holder,
}

impl Lease {
    /// Wins the next term. `Ok(Err(who))`: somebody holds it.
    pub(super) fn take(
        dir: &Utf8Path,
        host: &str,
        boot: &str,
        proc: ProcRef,
        ttl: Ms,
    ) -> Result<Result<(Self, Term), String>, ActError> {
        let at = |e: &io::Error| disk_error(&format!("taking the lease in {dir}"), e);
        make_dir(dir).map_err(|e| at(&e))?;
        let mut challenger = Challenger::default();
        loop {
            let (newest, holder) = newest(dir).map_err(|e| at(&e))?;
            let here = holder.as_ref().is_some_and(|h| h.host == host);
            let alive = match &holder {
                Some(h) if here && h.boot != boot => Some(false),
                Some(h) if here => Some(crate::process::is_alive(h.proc)),
                _ => None,
            };
            let now = Tick(crate::process::boottime_ms());
            match challenger.look(now, holder.as_ref(), newest, alive, ttl) {
                Verdict::Take(term) => {
                    let term_dir = dir.join(term.to_string());
                    match fs::DirBuilder::new().mode(0o700).create(&term_dir) {
                        Ok(()) => {}
                        // Somebody was faster: look again at who it is.
                        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                        Err(e) => return Err(at(&e)),
                    }
                    let holder = Holder {
                        term,
                        host: host.into(),
                        boot: boot.into(),
                        proc,
                        counter: 1,
                        released: false,
                    };
                    let lease = Self {
                        dir: dir.to_owned(),
                        holder,
                    };
                    lease.write().map_err(|e| at(&e))?;
                    return Ok(Ok((lease, term)));
                }
                Verdict::Held(h) => {
                    return Ok(Err(format!("process {} on {} (term {})", h.proc, h.host, h.term)));
                }
                Verdict::Wait(until) => {
                    std::thread::sleep(Duration::from_millis(until.since(now).0.clamp(10, 1000)));
                }
            }
        }
    }

    /// The lease of a term that another lane won.
    pub(super) fn adopt(dir: &Utf8Path, term: Term) -> Result<Option<Self>, ActError> {
        let (newest, holder) = newest(dir).map_err(|e| disk_error(&format!("reading the lease in {dir}"), &e))?;
        Ok(holder.filter(|_| newest == term).map(|holder| Self {
            dir: dir.to_owned(),
            holder,
        }))
    }

    fn write(&self) -> io::Result<()> {
        let text = json!(self.holder).to_string();
        write_whole(
            &self.dir.join(self.holder.term.to_string()).join("holder.json"),
            text.as_bytes(),
            PRIVATE,
        )
    }

    /// Shows that the holder lives. `Ok(Some(who))`: the lease is another's.
    pub(super) fn bump(&mut self) -> Result<Option<String>, ActError> {
        let at = |e: &io::Error| disk_error(&format!("renewing the lease in {}", self.dir), e);
        let (newest, holder) = newest(&self.dir).map_err(|e| at(&e))?;
        if newest > self.holder.term {
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

fn newest(dir: &Utf8Path) -> io::Result<(Term, Option<Holder>)> {
    let mut newest = 0;
    for entry in dir.read_dir_utf8()? {
        newest = newest.max(entry?.file_name().parse::<u32>().unwrap_or(0));
    }
    let path = dir.join(newest.to_string()).join("holder.json");
    match read_small(&path, SMALL) {
        Ok(bytes) => Ok((Term(newest), serde_json::from_slice(&bytes).ok())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((Term(newest), None)),
        Err(e) => Err(named(&path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;

    #[test]
    fn a_term_is_won_once_and_a_dead_holder_is_succeeded() {
        let (_keep, dir) = temp_dir();
        let me = crate::process::own_ref();
        let (mut first, term) = Lease::take(&dir, "h", "b", me, Ms(100)).unwrap().unwrap();
        assert_eq!(term, Term(1));
        assert!(Lease::take(&dir, "h", "b", me, Ms(100)).unwrap().is_err());
        assert_eq!(first.bump().unwrap(), None);
        let dead = ProcRef {
            pid: me.pid,
            start: me.start + 1,
        };
        first.holder.proc = dead;
        first.write().unwrap();
        let (_, term) = Lease::take(&dir, "h", "b", me, Ms(100)).unwrap().unwrap();
        assert_eq!(term, Term(2));
        assert!(
            first.bump().unwrap().is_some(),
            "the first holder must learn that it lost"
        );
    }

    #[test]
    fn a_silent_holder_elsewhere_is_waited_for() {
        let (_keep, dir) = temp_dir();
        let me = crate::process::own_ref();
        let _ = Lease::take(&dir, "other", "b", me, Ms(100)).unwrap().unwrap();
        let before = crate::process::boottime_ms();
        let (_, term) = Lease::take(&dir, "h", "b", me, Ms(150)).unwrap().unwrap();
        assert_eq!(term, Term(2));
        assert!(crate::process::boottime_ms() - before >= 150);
    }
}
