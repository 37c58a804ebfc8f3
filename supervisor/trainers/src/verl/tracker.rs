//! verl's tracker file, read as verl reads it: Python's `int` over the whole text.

use supervise_core::event::TrackerState;
use supervise_core::id::Step;

/// `None`: the file does not exist.
pub(crate) fn read(bytes: Option<&[u8]>) -> TrackerState {
    let Some(bytes) = bytes else {
        return TrackerState::Missing;
    };
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.is_empty() {
        return TrackerState::Empty;
    }
    match python_int(text) {
        Some(step) => TrackerState::Step(Step(step)),
        None => TrackerState::Garbage(text.chars().take(64).collect()),
    }
}

/// A non-negative number as Python's `int` accepts it: a plus sign and single underscores between digits are allowed.
fn python_int(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let plain = digits
        .split('_')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    if plain {
        digits.replace('_', "").parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracker_is_read_as_python_reads_it() {
        for (bytes, says) in [
            (None, TrackerState::Missing),
            (Some(&b""[..]), TrackerState::Empty),
            (Some(b" \n"), TrackerState::Empty),
            (Some(b"120"), TrackerState::Step(Step(120))),
            (Some(b"120\n"), TrackerState::Step(Step(120))),
            (Some(b"+1_000"), TrackerState::Step(Step(1000))),
            (Some(b"007"), TrackerState::Step(Step(7))),
            (Some(b"-5"), TrackerState::Garbage("-5".into())),
            (Some(b"12.0"), TrackerState::Garbage("12.0".into())),
            (Some(b"1__0"), TrackerState::Garbage("1__0".into())),
            (Some(b"\0\0\0"), TrackerState::Garbage("\0\0\0".into())),
        ] {
            assert_eq!(read(bytes), says, "{bytes:?}");
        }
    }
}
