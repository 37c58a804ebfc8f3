//! Stories of runs, kept so that a journal that grows is read on from where it ended.

use super::super::records::Journals;
use crate::render::explain::{ExplainView, StoryBuilder};
use crate::render::page::RunChart;
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use supervise_core::checkpoint::CheckpointSummary;
use supervise_core::id::RunId;
use supervise_core::journal::LineHeader;
use supervise_core::journal::record::JournalRecord;
use supervise_host::io_worker::JournalPlace;

/// Maximum number of cached stories: each has its own I/O worker.
const KEPT: usize = 8;

pub(in crate::cli) struct StorySnapshot {
    pub(in crate::cli) story: ExplainView,
    pub(super) picture: RunChart,
    pub(super) steps: Vec<CheckpointSummary>,
    /// The machine of its last term.
    pub(super) host: Option<String>,
}

#[derive(Default)]
pub(super) struct Stories {
    kept: Mutex<Vec<Arc<RunStory>>>,
}

impl Stories {
    pub(super) fn of(&self, run: &RunId, dir: &Utf8Path) -> Arc<RunStory> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|s| s.run == *run && s.dir == dir);
        let story = match at {
            Some(at) => kept.remove(at),
            None => Arc::new(RunStory {
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

pub(super) struct RunStory {
    run: RunId,
    dir: Utf8PathBuf,
    read: Mutex<Option<StoryReader>>,
}

struct StoryReader {
    journals: Journals,
    teller: StoryBuilder,
    picture: RunChart,
}

impl RunStory {
    /// Reads new records. Blocks.
    pub(super) fn read(&self) -> Result<StorySnapshot, String> {
        let mut kept = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // After a failed read, the next one starts from the beginning.
        let mut read = match kept.take() {
            Some(read) => read,
            None => StoryReader {
                journals: Journals::open(&self.dir, JournalPlace::default()).map_err(|e| e.message)?,
                teller: StoryBuilder::default(),
                picture: RunChart::default(),
            },
        };
        let (teller, picture) = (&mut read.teller, &mut read.picture);
        let mut add = |_: u32, _: &[u8], _: &LineHeader, records: &[JournalRecord]| {
            for record in records {
                teller.add(record);
                picture.note(teller.state(), record);
            }
        };
        while read.journals.piece(&mut add).map_err(|e| e.message)? {}
        let steps = read.teller.state().disk.scan.as_ref().map(|s| s.steps.clone());
        let told = StorySnapshot {
            story: read.teller.clone().finish(&self.run.0, None),
            picture: read.picture.clone(),
            host: read.teller.host().map(str::to_owned),
            steps: steps.unwrap_or_default(),
        };
        *kept = Some(read);
        Ok(told)
    }
}
