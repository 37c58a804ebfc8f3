//! Durations and sizes with units.
//!
//! Not `humantime`: it accepts `5M` as five months, `1m1h`, and less than a millisecond. Not `bytesize`: it takes a number without a unit
//! as bytes, and an overflow as the largest number.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
const LEAST_LOSS: Duration = Duration::from_secs(10);
/// A year, in milliseconds.
const LONGEST: u64 = 366 * 86_400_000;

/// Parses `90s`, `5m`, `1h30m`, `1.5h`, `250ms`, `2d`. Every part needs a unit, and units must decrease.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a duration");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut total = 0.0;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = take_number(rest).ok_or_else(bad)?;
        let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(length);
        if unit.is_empty() {
            return Err(format!("'{text}' has no unit"));
        }
        let (_, scale) = DURATIONS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        if *scale >= last {
            return Err(bad());
        }
        last = *scale;
        total += number * *scale as f64;
        rest = after.trim_start();
    }
    if total > LONGEST as f64 {
        return Err(format!("'{text}' is longer than a year"));
    }
    Ok(Duration::from_millis(total.round() as u64))
}

/// Parses how much training may be lost: a duration of at least ten seconds, because a save cannot be asked for, made and proven in
/// less.
pub fn parse_max_loss(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text)?;
    if parsed < LEAST_LOSS {
        return Err(format!(
            "'{text}' is less than 10s: a save must be asked for, made and proven in that time"
        ));
    }
    Ok(parsed)
}

/// Parses `256MiB`, `2GB`, `1.5GiB`, `0B`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size");
    let (number, unit) = take_number(text.trim()).ok_or_else(bad)?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(format!("'{text}' has no unit"));
    }
    let (_, scale) = SIZES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .ok_or_else(bad)?;
    let bytes = number * *scale as f64;
    if bytes > (1_u64 << 53) as f64 {
        return Err(format!("'{text}' is too large"));
    }
    Ok(bytes.round() as u64)
}

fn take_number(text: &str) -> Option<(f64, &str)> {
    let length = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(length);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().map(|number| (number, rest))
}

#[cfg(test)]
mod tests {
    use super::{parse_bytes, parse_duration, parse_max_loss};

    #[test]
    fn a_loss_below_ten_seconds_is_refused() {
        assert_eq!(parse_max_loss("10s").unwrap().as_secs(), 10);
        for text in ["0s", "9s", "9999ms", "-10m", "10", "", "soon"] {
            assert!(parse_max_loss(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_units_in_order() {
        for (text, millis) in [
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text).unwrap().as_millis(), millis, "{text}");
        }
        for text in [
            "", "90", "1:30:00", "5 x", "m", "-5s", "1m1h", "1s1s", "1e5s", "9999999d", "s5", "1..5s", "5µs",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_need_units() {
        for (text, bytes) in [
            ("256MiB", 268_435_456),
            ("2GB", 2_000_000_000),
            ("1.5 KiB", 1536),
            ("0B", 0),
            ("1gib", 1 << 30),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "256", "MiB", "-1B", "1XB", "99999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
