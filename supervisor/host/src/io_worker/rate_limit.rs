//! Slows down reading that no request waits for, because the training needs the disk.

use std::time::{Duration, Instant};

/// Longest single pause, so that a request that comes meanwhile does not wait long.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct RateLimit {
    rate: u64,
    began: Option<(Instant, u64)>,
}

impl RateLimit {
    /// At most this many bytes per second; 0: no limit.
    pub(super) fn new(rate: u64) -> Self {
        Self { rate, began: None }
    }

    /// Given the bytes read so far, waits until the rate allows them, or until `stop` returns true.
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
        // A thousand seconds ahead: only `stop` ends it.
        limit.hold((1 << 40) + 1000, || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        });
        assert_eq!(asked.get(), 3);
    }
}
