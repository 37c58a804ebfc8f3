//! The story of a run, kept as far as it was read, so that a journal that grows is read on from there.

use super::super::records::Journals;
use crate::render::explain::{ExplainView, Teller};
use crate::render::page::Picture;
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use supervise_core::checkpoint::CheckpointSummary;
use supervise_core::id::RunId;
use supervise_core::journal::Line;
use supervise_core::record::Record;
use supervise_host::io_worker::JournalPlace;

/// Runs whose stories are kept: each has a helper of its own.
const KEPT: usize = 8;

/// A story at one moment.
pub(in crate::cli) struct Told {
    pub(in crate::cli) story: ExplainView,
    pub(super) picture: Picture,
    pub(super) steps: Vec<CheckpointSummary>,
    /// The machine of its last term.
    pub(super) host: Option<String>,
}

/// The stories that were asked for last.
#[derive(Default)]
pub(super) struct Stories {
    kept: Mutex<Vec<Arc<Story>>>,
}

impl Stories {
    pub(super) fn of(&self, run: &RunId, dir: &Utf8Path) -> Arc<Story> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|s| s.run == *run && s.dir == dir);
        let story = match at {
            Some(at) => kept.remove(at),
            None => Arc::new(Story {
                run: run.clone(),
                dir: dir.to_owned(),
                read: Mutex::default(),
            }),
        };
        kept.push(story.clone());
        if kept.len() > KEPT {
            kept.remove(0);
        }
        story
    }
}

#[cfg(test)]
impl Stories {
    pub(super) fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One run's story.
pub(super) struct Story {
    run: RunId,
    dir: Utf8PathBuf,
    read: Mutex<Option<Read>>,
}

struct Read {
    journals: Journals,
    teller: Teller,
    picture: Picture,
}

impl Story {
    /// Reads what is new. Blocks.
    pub(super) fn read(&self) -> Result<Told, String> {
        let mut kept = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // A reading that failed is begun anew by the next one who asks.
        let mut read = match kept.take() {
            Some(read) => read,
            None => Read {
                journals: Journals::open(&self.dir, JournalPlace::default()).map_err(|e| e.message)?,
                teller: Teller::default(),
                picture: Picture::default(),
            },
        };
        let (teller, picture) = (&mut read.teller, &mut read.picture);
        let mut add = |_: u32, _: &[u8], _: &Line, records: &[Record]| {
            for record in records {
                teller.add(record);
                picture.note(teller.state(), record);
            }
        };
        while read.journals.piece(&mut add).map_err(|e| e.message)? {}
        let steps = read.teller.state().scan.as_ref().map(|s| s.steps.clone());
        let told = Told {
            story: read.teller.clone().finish(&self.run.0, None),
            picture: read.picture.clone(),
            host: read.teller.host().map(str::to_owned),
            steps: steps.unwrap_or_default(),
        };
        *kept = Some(read);
        Ok(told)
    }
}
