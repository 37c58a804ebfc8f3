//! Reports progress while a journal is read, so that a slow read is not silent.

use crate::render::bytes;
use camino::{Utf8Path, Utf8PathBuf};
use std::time::{Duration, Instant};

/// How long a read takes before it is reported, and the interval of reports.
const AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct JournalProgress {
    dir: Utf8PathBuf,
    said: Instant,
    done: u64,
    of: u64,
}

impl JournalProgress {
    pub(crate) fn new(dir: &Utf8Path) -> Self {
        Self {
            dir: dir.to_owned(),
            said: Instant::now(),
            done: 0,
            of: 0,
        }
    }

    /// A progress message now and then.
    #[must_use]
    pub(crate) fn far(&mut self, done: u64, of: u64) -> Option<String> {
        (self.done, self.of) = (done, of);
        (self.said.elapsed() >= AFTER).then(|| {
            self.said = Instant::now();
            format!("still reading the journals in {}: {}", self.dir, far(done, of))
        })
    }

    /// Prints the progress to standard error.
    pub(crate) fn tell(&mut self, done: u64, of: u64) {
        if let Some(text) = self.far(done, of) {
            crate::printer::note(&text);
        }
    }

    /// The file system stopped answering.
    pub(crate) fn stalled(&self) -> String {
        match self.done {
            0 => format!("the file system under {} does not answer", self.dir),
            done => format!(
                "the file system under {} does not answer any more: {} of the journals were read",
                self.dir,
                far(done, self.of)
            ),
        }
    }
}

/// E.g. `300 MB of 1.2 GB`.
fn far(done: u64, of: u64) -> String {
    match of {
        0 => bytes(done),
        of => format!("{} of {}", bytes(done), bytes(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stops_in_the_middle_says_how_far_it_came() {
        let mut reading = JournalProgress::new(Utf8Path::new("/ckpt/.supervise"));
        assert!(reading.stalled().ends_with("/ckpt/.supervise does not answer"));
        assert_eq!(
            reading.far(300 << 20, 1 << 30),
            None,
            "a short reading is not spoken of"
        );
        let words = reading.stalled();
        assert!(
            words.contains("any more: 300.0 MiB of 1.0 GiB of the journals were read"),
            "{words}"
        );
        reading.said = Instant::now().checked_sub(AFTER).unwrap();
        let words = reading.far(301 << 20, 1 << 30).unwrap();
        assert_eq!(
            words,
            "still reading the journals in /ckpt/.supervise: 301.0 MiB of 1.0 GiB"
        );
        assert_eq!(reading.far(302 << 20, 1 << 30), None, "not again at once");
    }
}
