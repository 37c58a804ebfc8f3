//! I/O workers that read run directories, reused between runs: starting one takes longer than reading most journals.

use super::{ReadFailure, io_worker, peek_by};
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use supervise_host::io_worker::{IoClient, LoadedRun};

/// How long an idle one is kept.
const IDLE: Duration = Duration::from_secs(30);

/// The idle I/O workers, the last used at the end.
#[derive(Default)]
pub(in crate::cli) struct Readers(Mutex<Vec<Idle>>);

struct Idle {
    since: Instant,
    /// It caches the state of these journals.
    dir: Utf8PathBuf,
    client: IoClient,
}

impl Readers {
    /// Reads the journals in a run directory. Blocks; an I/O worker that hangs is left behind.
    ///
    /// # Errors
    /// Why it failed, as text.
    pub(in crate::cli) fn peek(&self, dir: &Utf8Path) -> Result<LoadedRun, String> {
        // One that died meanwhile is not the file system's fault.
        if let Some(mut client) = self.take(dir) {
            match peek_by(&mut client, dir) {
                Ok(loaded) => return Ok(self.keep(dir, client, loaded)),
                Err(ReadFailure(why, true)) => {
                    self.keep(dir, client, ());
                    return Err(why);
                }
                Err(ReadFailure(why, false)) if client.lives() => return Err(why),
                Err(_) => {}
            }
        }
        let mut client = io_worker().map_err(|e| e.to_string())?;
        match peek_by(&mut client, dir) {
            Ok(loaded) => Ok(self.keep(dir, client, loaded)),
            Err(ReadFailure(why, again)) => {
                if again {
                    self.keep(dir, client, ());
                }
                Err(why)
            }
        }
    }

    /// The one that read there before, else the last used.
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
