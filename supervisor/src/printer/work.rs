//! Progress of long work before a launch, on the run's progress line.

use super::meter::so_far;
use crate::render::live::LiveProgress;
use std::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(super) struct WorkProgress {
    began: Instant,
    /// Bytes already done when work was first reported.
    first: u64,
    done: u64,
    of: u64,
}

impl WorkProgress {
    /// Updates bytes done and total. A count that goes down belongs to new work.
    pub(super) fn on(before: Option<Self>, (done, of): (u64, u64), now: Instant) -> Self {
        match before.filter(|b| b.of == of && b.done <= done) {
            Some(before) => Self { done, ..before },
            None => Self {
                began: now,
                first: done,
                done,
                of,
            },
        }
    }

    pub(super) fn line(&self, now: Instant) -> LiveProgress {
        let took = now.saturating_duration_since(self.began);
        let rate =
            (self.done > self.first).then(|| ((self.done - self.first) as f64 / took.as_secs_f64().max(0.001)) as u64);
        LiveProgress {
            share: Some((self.done, self.of)),
            words: format!("cut anew: {}", so_far(self.done, Some(self.of), "written", rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_rate_counts_from_when_it_was_first_heard_of() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let work = WorkProgress::on(None, (1 << 30, 4 << 30), at(0));
        assert_eq!(work.line(at(0)).words, "cut anew: 1.0 GiB of 4.0 GiB written");
        let work = WorkProgress::on(Some(work), (2 << 30, 4 << 30), at(500));
        let line = work.line(at(500));
        assert_eq!(line.words, "cut anew: 2.0 GiB of 4.0 GiB written, 2.0 GiB/s, 1 s left");
        assert_eq!(line.share, Some((2 << 30, 4 << 30)));
        // New work.
        let work = WorkProgress::on(Some(work), (1 << 20, 4 << 20), at(900));
        assert_eq!(work.line(at(900)).words, "cut anew: 1.0 MiB of 4.0 MiB written");
    }
}
