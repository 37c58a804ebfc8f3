//! Times and durations as text. Times are in UTC, so that a log from another machine reads the same.

use supervise_core::id::{Ms, WallMs};

const DAY: i64 = 86_400;

/// The time of day, `12:04:31Z`.
#[must_use]
pub fn clock(at: WallMs) -> String {
    let s = at.0.div_euclid(1000).rem_euclid(DAY);
    format!("{:02}:{:02}:{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

/// Days since 1970.
#[must_use]
pub fn day(at: WallMs) -> i64 {
    at.0.div_euclid(1000 * DAY)
}

/// Date and time, `2026-11-21T12:04:31Z`.
#[must_use]
pub fn stamp(at: WallMs) -> String {
    let (y, m, d) = date(at.0.div_euclid(1000).div_euclid(DAY));
    format!("{y:04}-{m:02}-{d:02}T{}", clock(at))
}

/// Converts days since 1970 to a Gregorian date, counting eras of 400 years from March 1.
fn date(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let from_march = days.saturating_add(719_468);
    let (era, day) = (from_march.div_euclid(ERA), from_march.rem_euclid(ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let d = of_year - (153 * month + 2) / 5 + 1;
    let m = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(m <= 2), m, d)
}

/// A duration in the two units that matter: `250 ms`, `3.5 s`, `4m 10s`, `2h 5m`, `3d 4h`.
#[must_use]
pub fn span(ms: Ms) -> String {
    let s = ms.0 / 1000;
    match ms.0 {
        0..1000 => format!("{} ms", ms.0),
        1000..60_000 if ms.0.is_multiple_of(1000) => format!("{s} s"),
        1000..60_000 => format!("{:.1} s", ms.0 as f64 / 1000.0),
        60_000..3_600_000 => two(s / 60, "m", s % 60, "s"),
        3_600_000..86_400_000 => two(s / 3600, "h", s / 60 % 60, "m"),
        _ => two(s / 86_400, "d", s / 3600 % 24, "h"),
    }
}

fn two(a: u64, big: &str, b: u64, small: &str) -> String {
    if b == 0 {
        format!("{a}{big}")
    } else {
        format!("{a}{big} {b}{small}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_what_date_says() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_219_200, "2026-11-21T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(stamp(WallMs(secs * 1000)), text);
        }
        assert_eq!(clock(WallMs(43_471_999)), "12:04:31Z");
    }

    #[test]
    fn spans_have_two_units_at_most() {
        for (ms, text) in [
            (0, "0 ms"),
            (1500, "1.5 s"),
            (30_000, "30 s"),
            (250_000, "4m 10s"),
            (300_000, "5m"),
            (7_500_000, "2h 5m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(span(Ms(ms)), text);
        }
    }
}
