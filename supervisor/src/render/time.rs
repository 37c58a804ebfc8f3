//! Times and durations as text. JSON, pages and the lines of `run` have times in UTC, so that a log from another machine reads the
//! same; what a command prints for people has them in the zone of this machine (`TZ`, else `/etc/localtime`).

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use std::sync::LazyLock;
use supervise_core::id::{Ms, WallMs};

const DAY: i64 = 86_400;

static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);

/// The time of day in UTC, `12:04:31Z`.
#[must_use]
pub fn clock(at: WallMs) -> String {
    text(at, &TimeZone::UTC, "%H:%M:%S")
}

/// Days since 1970.
#[must_use]
pub fn day(at: WallMs) -> i64 {
    at.0.div_euclid(1000 * DAY)
}

/// Date and time in UTC, `2026-11-21T12:04:31Z`.
#[must_use]
pub fn stamp(at: WallMs) -> String {
    text(at, &TimeZone::UTC, "%Y-%m-%dT%H:%M:%S")
}

/// The time of day here, `13:04:31+01:00`.
#[must_use]
pub fn local_clock(at: WallMs) -> String {
    text(at, &ZONE, "%H:%M:%S")
}

/// Date and time here, `2026-11-21T13:04:31+01:00`.
#[must_use]
pub fn local_stamp(at: WallMs) -> String {
    text(at, &ZONE, "%Y-%m-%dT%H:%M:%S")
}

fn text(at: WallMs, zone: &TimeZone, format: &str) -> String {
    let limits = (Timestamp::MIN, Timestamp::MAX);
    let at = Timestamp::from_millisecond(at.0).unwrap_or(if at.0 < 0 { limits.0 } else { limits.1 });
    let local = at.to_zoned(zone.clone());
    let offset = match local.offset().seconds() {
        0 => "Z",
        _ => "%:z",
    };
    strtime::format(format!("{format}{offset}"), &local).unwrap_or_else(|_| at.to_string())
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
        for odd in [i64::MIN, i64::MAX] {
            assert!(stamp(WallMs(odd)).ends_with('Z'));
        }
    }

    #[test]
    fn a_zone_shows_its_offset_at_that_moment() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let of = |secs: i64| text(WallMs(secs * 1000), &zone, "%Y-%m-%dT%H:%M:%S");
        assert_eq!(of(1_795_219_200), "2026-11-21T01:00:00+01:00");
        assert_eq!(of(1_784_851_200), "2026-07-24T02:00:00+02:00");
    }

    #[test]
    fn a_zone_without_an_offset_is_utc() {
        let zone = TimeZone::posix("GMT0").unwrap();
        assert_eq!(text(WallMs(0), &zone, "%H:%M:%S"), "00:00:00Z");
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
