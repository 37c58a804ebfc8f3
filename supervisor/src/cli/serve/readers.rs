//! Helpers that read run directories, kept from one run to the next: to start one takes longer than most journals.

use crate::cli::target::{self, ReadFailure};
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use supervise_host::io_worker::{IoClient, LoadedRun};

/// One that had nothing to do for so long is ended.
const IDLE: Duration = Duration::from_secs(30);

/// The helpers that have nothing to do, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Readers(Mutex<Vec<Idle>>);

struct Idle {
    since: Instant,
    /// It remembers what it folded of these journals.
    dir: Utf8PathBuf,
    client: IoClient,
}

impl Readers {
    /// Reads the journals in a run directory. Blocks; a helper that hangs is left behind.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn peek(&self, dir: &Utf8Path) -> Result<LoadedRun, String> {
        // One that died meanwhile is no fault of the file system.
        if let Some(mut client) = self.take(dir) {
            match target::peek_by(&mut client, dir) {
                Ok(loaded) => return Ok(self.keep(dir, client, loaded)),
                Err(ReadFailure(why, true)) => {
                    self.keep(dir, client, ());
                    return Err(why);
                }
                Err(ReadFailure(why, false)) if client.lives() => return Err(why),
                Err(_) => {}
            }
        }
        let mut client = target::io_worker().map_err(|e| e.to_string())?;
        match target::peek_by(&mut client, dir) {
            Ok(loaded) => Ok(self.keep(dir, client, loaded)),
            Err(ReadFailure(why, again)) => {
                if again {
                    self.keep(dir, client, ());
                }
                Err(why)
            }
        }
    }

    /// The one that read there before, else the one that was used last.
    fn take(&self, dir: &Utf8Path) -> Option<IoClient> {
        let mut idle = self.idle();
        match idle.iter().rposition(|i| i.dir == dir) {
            Some(at) => Some(idle.remove(at).client),
            None => idle.pop().map(|i| i.client),
        }
    }

    fn keep<T>(&self, dir: &Utf8Path, client: IoClient, answer: T) -> T {
        let mut idle = self.idle();
        idle.push(Idle {
            since: Instant::now(),
            dir: dir.to_owned(),
            client,
        });
        idle.retain(|i| i.since.elapsed() < IDLE);
        answer
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
