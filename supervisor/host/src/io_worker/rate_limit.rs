//! Reading that holds back: nobody waits for it, and the training needs the disk.

use std::time::{Duration, Instant};

/// One pause, so that a question that comes meanwhile does not wait long.
const PAUSE: Duration = Duration::from_millis(50);

/// Holds a reading to a rate.
#[derive(Debug)]
pub(super) struct RateLimit {
    rate: u64,
    began: Option<(Instant, u64)>,
}

impl RateLimit {
    /// At most so many bytes a second; 0 for as many as come.
    pub(super) fn new(rate: u64) -> Self {
        Self { rate, began: None }
    }

    /// So many bytes were read until now: waits until that is no more than the rate allows, or until `stop` says so.
    pub(super) fn hold(&mut self, bytes: u64, stop: impl Fn() -> bool) {
        let (began, first) = *self.began.get_or_insert((Instant::now(), bytes));
        let due = self.due(bytes.saturating_sub(first));
        while !stop() {
            let ahead = due.saturating_sub(began.elapsed());
            if ahead.is_zero() {
                return;
            }
            std::thread::sleep(ahead.min(PAUSE));
        }
    }

    /// When so many bytes may have been read.
    fn due(&self, bytes: u64) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(bytes as f64 / self.rate as f64).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn bytes_come_no_faster_than_the_rate() {
        let limit = RateLimit::new(1 << 20);
        assert_eq!(limit.due(0), Duration::ZERO);
        assert_eq!(limit.due(3 << 19), Duration::from_millis(1500));
        assert_eq!(RateLimit::new(0).due(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn what_was_read_before_does_not_count_and_a_question_ends_the_wait() {
        let mut limit = RateLimit::new(1);
        limit.hold(1 << 40, || false);
        let asked = Cell::new(0);
        // A thousand seconds ahead: only the question ends it.
        limit.hold((1 << 40) + 1000, || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        });
        assert_eq!(asked.get(), 3);
    }
}
