//! Claims of writers: the trainer's own proof that no two trainers were alive at once.
//!
//! `writers/live.rank_R` is created exclusively when a rank starts, names its process by
//! id and start time, and goes when the rank ends well. A rank that finds another's and
//! that process alive, or that finds its own replaced at a later step, enters a line in
//! `writers/violations` and stops with exit code 3. A dead one's is taken over by renaming
//! it away first: only one of two contenders can, and each looks at what it took.
//! `writers/ATTEMPT/step_N.rank_R` is created exclusively before each step, so two gangs
//! that believe to be the same attempt are seen too.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// This rank's claim to be its only writer.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    live: PathBuf,
    rank: usize,
    mine: String,
    held: bool,
}

impl Claim {
    /// Claims a rank for this process.
    pub fn take(folder: &Path, rank: usize) -> Result<Claim, Failure> {
        let raise = |e: io::Error| Failure::file("claim", folder, &e);
        fs::create_dir_all(folder).map_err(raise)?;
        let pid = std::process::id();
        let start = start_time(pid).ok_or_else(|| raise(io::ErrorKind::NotFound.into()))?;
        let mut claim = Claim {
            folder: folder.to_owned(),
            live: folder.join(format!("live.rank_{rank}")),
            rank,
            mine: format!("{pid} {start}\n"),
            held: false,
        };
        // A claim that vanishes while we look at it is tried again; each round means that
        // some process ended, so this does not go on for ever.
        loop {
            match claim.create_whole(&claim.live) {
                Ok(()) => {
                    claim.held = true;
                    return Ok(claim);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => claim.remove_stale()?,
                Err(e) => return Err(raise(e)),
            }
        }
    }

    /// Enters a step: still the only writer, and nobody else of this attempt was here.
    pub fn enter_step(&self, attempt: &str, step: u64) -> Result<(), Failure> {
        match fs::read_to_string(&self.live) {
            Ok(text) if text == self.mine => {}
            Ok(text) => return Err(self.violation(&format!("replaced by {}", text.trim()))),
            Err(e) => return Err(self.violation(&format!("lost the claim: {e}"))),
        }
        let folder = self.folder.join(attempt.replace('/', "-"));
        let path = folder.join(format!("step_{step}.rank_{}", self.rank));
        let made = fs::create_dir_all(&folder).and_then(|()| self.create(&path));
        match made {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(self.violation(&format!("{} exists", path.display())))
            }
            Err(e) => Err(Failure::file("enter_step", &path, &e)),
        }
    }

    /// The process id and start time of this process.
    pub fn identity(&self) -> String {
        self.mine.trim().replace(' ', "-")
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(self.mine.as_bytes())
    }

    /// Creates a file exclusively with its content in it, whenever this process is killed.
    fn create_whole(&self, path: &Path) -> io::Result<()> {
        let draft = self
            .folder
            .join(format!("draft.{}.rank_{}", self.identity(), self.rank));
        fs::write(&draft, &self.mine)?;
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft)?;
        linked
    }

    fn remove_stale(&self) -> Result<(), Failure> {
        let Ok(theirs) = fs::read_to_string(&self.live) else {
            return Ok(());
        };
        if is_alive(&theirs) {
            return Err(self.violation(&format!("{} is alive", theirs.trim())));
        }
        let away = self
            .folder
            .join(format!("stale.{}.rank_{}", self.identity(), self.rank));
        if fs::rename(&self.live, &away).is_ok()
            && let Ok(taken) = fs::read_to_string(&away)
            && taken != theirs
            && is_alive(&taken)
        {
            return Err(self.violation(&format!("took the place of {}", taken.trim())));
        }
        let _ = fs::remove_file(&away);
        Ok(())
    }

    fn violation(&self, what: &str) -> Failure {
        let line = format!("rank {} of {}: {what}\n", self.rank, self.mine.trim());
        let path = self.folder.join("violations");
        let file = OpenOptions::new().append(true).create(true).open(&path);
        match file.and_then(|mut f| f.write_all(line.as_bytes())) {
            Ok(()) => Failure::SecondWriter(line.trim().to_owned()),
            Err(e) => Failure::file("violation", &path, &e),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.held && fs::read_to_string(&self.live).is_ok_and(|text| text == self.mine) {
            let _ = fs::remove_file(&self.live);
        }
    }
}

/// A file that cannot be read as a claim counts as a living one.
fn is_alive(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (Some(pid), Some(start)) = (words.next(), words.next()) else {
        return true;
    };
    match (pid.parse(), start.parse::<u64>()) {
        (Ok(pid), Ok(start)) => start_time(pid) == Some(start),
        _ => true,
    }
}

/// When a process started, in clock ticks since boot; `None` for the dead and the unreaped.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_claim_is_taken_over_and_a_living_one_is_a_violation() {
        let folder = tempfile::tempdir().unwrap();
        let live = folder.path().join("live.rank_0");
        fs::write(&live, "999999999 12\n").unwrap();
        let claim = Claim::take(folder.path(), 0).unwrap();
        claim.enter_step("a/1/1", 1).unwrap();
        claim.enter_step("a/1/2", 1).unwrap();

        let second = Claim::take(folder.path(), 0).unwrap_err();
        assert_eq!(second.exit_code(), 3);
        let again = claim.enter_step("a/1/1", 1).unwrap_err();
        assert_eq!(again.exit_code(), 3);
        fs::write(&live, "1 1\n").unwrap();
        assert_eq!(claim.enter_step("a/1/1", 2).unwrap_err().exit_code(), 3);
        let violations = fs::read_to_string(folder.path().join("violations")).unwrap();
        assert_eq!(violations.lines().count(), 3);
    }

    #[test]
    fn a_claim_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        drop(Claim::take(folder.path(), 2).unwrap());
        assert!(!folder.path().join("live.rank_2").exists());
    }
}
