//! Lines that an I/O worker writes to its standard output.

use super::protocol::{IoAnswer, IoReply};
use crate::wire;
use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Interval of `Working` lines during long reads.
pub(super) const TELL: Duration = Duration::from_millis(500);
static OUT: Mutex<()> = Mutex::new(());

pub(super) fn say(reply: &IoReply) {
    let Ok(mut line) = wire::encode(reply) else {
        return;
    };
    if let IoReply::Done { answer: Ok(answer), .. } = reply
        && let IoAnswer::Lines { text, .. } = &**answer
    {
        line.extend_from_slice(text);
    }
    let _guard = OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // If the supervisor has exited there is no reader; the end of standard input ends this I/O worker.
    let _ = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
}

/// Reports now and then how many bytes of a long request are done, and the total.
pub(super) fn getting_on(id: u64) -> impl FnMut(u64, u64) {
    let mut told = Instant::now();
    move |bytes, of| {
        if told.elapsed() >= TELL {
            told = Instant::now();
            say(&IoReply::Working { id, bytes, of });
        }
    }
}

pub(super) fn telling(id: u64) -> impl FnMut(u64) -> bool {
    let mut told = Instant::now();
    move |bytes| {
        if told.elapsed() >= TELL {
            told = Instant::now();
            say(&IoReply::Working { id, bytes, of: 0 });
        }
        true
    }
}
