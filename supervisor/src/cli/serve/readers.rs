//! Helpers that read run directories, kept from one run to the next: to start one takes longer than most journals.

use crate::cli::target::{self, Unread};
use camino::Utf8Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use supervise_host::io_worker::{Client, Loaded};

/// One that had nothing to do for so long is ended.
const IDLE: Duration = Duration::from_secs(30);

/// The helpers that have nothing to do, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Readers(Mutex<Vec<(Instant, Client)>>);

impl Readers {
    /// Reads the journals in a run directory. Blocks; a helper that hangs is left behind.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn peek(&self, dir: &Utf8Path) -> Result<Loaded, String> {
        let kept = self.idle().pop();
        // One that died meanwhile is no fault of the file system.
        if let Some((_, mut client)) = kept {
            match target::peek_by(&mut client, dir) {
                Ok(loaded) => return Ok(self.keep(client, loaded)),
                Err(Unread(why, true)) => {
                    self.keep(client, ());
                    return Err(why);
                }
                Err(Unread(why, false)) if client.lives() => return Err(why),
                Err(_) => {}
            }
        }
        let mut client = target::io_worker().map_err(|e| e.to_string())?;
        match target::peek_by(&mut client, dir) {
            Ok(loaded) => Ok(self.keep(client, loaded)),
            Err(Unread(why, again)) => {
                if again {
                    self.keep(client, ());
                }
                Err(why)
            }
        }
    }

    fn keep<T>(&self, client: Client, answer: T) -> T {
        let mut idle = self.idle();
        idle.push((Instant::now(), client));
        idle.retain(|(since, _)| since.elapsed() < IDLE);
        answer
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, Client)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
