//! Progress of slow operations on a terminal.

use super::bar::new_bar;
use super::is_terminal;
use crate::render::bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Shows how long a slow operation has taken.
#[derive(Debug)]
pub struct WaitSpinner {
    bar: Option<ProgressBar>,
    what: String,
}

impl WaitSpinner {
    /// Without a terminal it shows nothing.
    #[must_use]
    pub fn new(what: String) -> Self {
        Self {
            bar: is_terminal().then(new_bar),
            what,
        }
    }

    /// Updates the time taken so far.
    pub fn tell(&mut self, took: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {} s", self.what, took.as_secs()));
            bar.tick();
        }
    }

    /// Removes it from the terminal.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Shows bytes done so far and their rate.
#[derive(Debug)]
pub struct ByteMeter {
    bar: Option<ProgressBar>,
    began: Instant,
    /// Past participle: `read` or `written`.
    word: &'static str,
}

impl ByteMeter {
    /// Without a terminal it shows nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bar: is_terminal().then(new_bar),
            began: Instant::now(),
            word: "read",
        }
    }

    /// A meter for written bytes.
    #[must_use]
    pub fn of_writing() -> Self {
        Self {
            word: "written",
            ..Self::new()
        }
    }

    /// Updates the count; `of`: the total, if known.
    pub fn tell(&mut self, done: u64, of: Option<u64>) {
        let Some(bar) = &self.bar else { return };
        if let Some(of) = of.filter(|of| bar.length() != Some(*of)) {
            bar.set_length(of);
            bar.set_style(
                ProgressStyle::with_template("{bar:32} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
        }
        bar.set_position(done);
        let rate = (done as f64 / self.began.elapsed().as_secs_f64().max(0.001)) as u64;
        bar.set_message(so_far(done, of, self.word, Some(rate)));
    }

    /// Removes it from the terminal.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// `1.2 GiB of 3.0 GiB read, 2.1 GiB/s, 1 s left`; `rate`: bytes per second, if known.
pub(super) fn so_far(done: u64, of: Option<u64>, word: &str, rate: Option<u64>) -> String {
    let left = of.and_then(|of| of.saturating_sub(done).checked_div(rate?));
    let left = left.map(|s| format!(", {s} s left")).unwrap_or_default();
    let rate = rate.map(|rate| format!(", {}/s", bytes(rate))).unwrap_or_default();
    let of = of.map(|of| format!(" of {}", bytes(of))).unwrap_or_default();
    format!("{}{of} {word}{rate}{left}", bytes(done))
}

impl Default for ByteMeter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reading_says_how_far_and_how_fast() {
        let words = so_far(1 << 30, Some(3 << 30), "read", Some(2 << 30));
        assert_eq!(words, "1.0 GiB of 3.0 GiB read, 2.0 GiB/s, 1 s left");
        assert_eq!(so_far(0, None, "written", Some(0)), "0 B written, 0 B/s");
    }
}
