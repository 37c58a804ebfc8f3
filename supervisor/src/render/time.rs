//! Times and durations as text. JSON, pages and the lines of `run` have times in UTC, so that a log from another machine reads the
//! same; what a command prints for people has them in the zone of this machine (`TZ`, else `/etc/localtime`).

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::strtime;
use jiff::tz::{Offset, TimeZone};
use std::sync::LazyLock;
use supervise_config::settings::parse_duration;
use supervise_core::id::{Ms, WallMs};
use supervise_core::observe::line_time::LineTime;

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

fn timestamp(at: WallMs) -> Timestamp {
    let limit = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(at.0).unwrap_or(limit)
}

fn text(at: WallMs, zone: &TimeZone, format: &str) -> String {
    let at = timestamp(at);
    let local = at.to_zoned(zone.clone());
    let offset = match local.offset().seconds() {
        0 => "Z",
        _ => "%:z",
    };
    strtime::format(format!("{format}{offset}"), &local).unwrap_or_else(|_| at.to_string())
}

/// The moment that an operator means: so long ago (`10m`), a time of day (`02:30`, the last one), or a date and time, here or with an offset.
///
/// # Errors
/// It is none of these, or has not come yet.
pub fn moment(text: &str, now: WallMs) -> Result<WallMs, String> {
    let text = text.trim();
    if let Ok(ago) = parse_duration(text) {
        let ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        return Ok(WallMs(now.0.saturating_sub(ms)));
    }
    let dated = || {
        let at = text.parse::<Timestamp>().ok();
        at.or_else(|| Some(text.parse::<DateTime>().ok()?.to_zoned(ZONE.clone()).ok()?.timestamp()))
    };
    let found = match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => dated().or_else(|| last_time_of_day(text, timestamp(now))),
        false => None,
    };
    let at = WallMs(
        found
            .ok_or_else(|| match text.parse::<u64>() {
                Ok(number) => format!("it has no unit: {number}m is {number} minutes ago"),
                Err(_) => {
                    "expected a duration (10m), a time of day (02:30, 02:30Z) or a date with a time (2026-11-21T02:30)"
                        .to_owned()
                }
            })?
            .as_millisecond(),
    );
    match at > now {
        true => Err(format!("it has not come yet: now is {}", local_stamp(now))),
        false => Ok(at),
    }
}

/// The last `02:30` before now; `02:30Z` and `02:30+01:00` are not in the zone of this machine.
fn last_time_of_day(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (time, zone) = match text.find(['Z', 'z', '+', '-']) {
        Some(at) if text[at..].eq_ignore_ascii_case("z") => (text.get(..at)?, TimeZone::UTC),
        Some(at) => {
            // The parser of dates reads the offset.
            let at_zero: Timestamp = format!("1970-01-02T00:00{}", text.get(at..)?).parse().ok()?;
            let east = 86_400 - i32::try_from(at_zero.as_second()).ok()?;
            (text.get(..at)?, TimeZone::fixed(Offset::from_seconds(east).ok()?))
        }
        None => (text, ZONE.clone()),
    };
    // An hour alone would also be a number of something.
    let time: Time = time.contains(':').then(|| time.parse().ok())??;
    let today = now.to_zoned(zone.clone()).date();
    let of = |date: Date| Some(date.to_datetime(time).to_zoned(zone.clone()).ok()?.timestamp());
    of(today)
        .filter(|at| *at <= now)
        .or_else(|| of(today.yesterday().ok()?))
}

/// When a line was written, read at `now`: a time without an offset is one here, a date without a year is the last such date.
#[must_use]
pub fn line_wall(time: &LineTime, now: WallMs) -> Option<WallMs> {
    let n = |n: u32| i8::try_from(n).ok();
    let of = |year: i16| {
        let ms = i32::try_from(time.ms * 1_000_000).ok()?;
        let (day, at) = (
            (n(time.month)?, n(time.day)?),
            (n(time.hour)?, n(time.minute)?, n(time.second)?),
        );
        let local = DateTime::new(year, day.0, day.1, at.0, at.1, at.2, ms).ok()?;
        let zone = match time.offset {
            Some(minutes) => TimeZone::fixed(Offset::from_seconds(minutes * 60).ok()?),
            None => ZONE.clone(),
        };
        Some(WallMs(local.to_zoned(zone).ok()?.timestamp().as_millisecond()))
    };
    if let Some(year) = time.year {
        return of(i16::try_from(year).ok()?);
    }
    let year = timestamp(now).to_zoned(ZONE.clone()).year();
    // A clock may be ahead.
    of(year)
        .filter(|at| at.0 <= now.0.saturating_add(1000 * DAY))
        .or_else(|| of(year - 1))
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
    fn a_moment_is_ago_a_time_of_day_or_a_date() {
        // Tests run in UTC.
        let now = WallMs(1_795_219_200_000 + 3_600_000);
        let of = |text: &str| moment(text, now).map(stamp);
        for (text, at) in [
            ("10m", "2026-11-21T00:50:00Z"),
            ("00:30", "2026-11-21T00:30:00Z"),
            ("02:30", "2026-11-20T02:30:00Z"),
            ("00:58:15Z", "2026-11-21T00:58:15Z"),
            ("20:58:15Z", "2026-11-20T20:58:15Z"),
            ("01:30+01:00", "2026-11-21T00:30:00Z"),
            ("23:30-02:00", "2026-11-20T01:30:00Z"),
            ("2026-11-19T05:00:00+01:00", "2026-11-19T04:00:00Z"),
            ("2026-11-19 05:00", "2026-11-19T05:00:00Z"),
            ("2026-11-19", "2026-11-19T00:00:00Z"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(at), "{text}");
        }
        for wrong in ["", "soon", "25:00", "-5", "2026-13-01", "02:30+99:00", "02:30é"] {
            assert!(of(wrong).unwrap_err().contains("02:30"), "{wrong}");
        }
        assert!(of("10").unwrap_err().contains("10m is 10 minutes ago"));
        for later in ["2026-11-21T01:00:01Z", "2026-11-22", "2999-01-01T00:00"] {
            assert!(
                of(later).unwrap_err().contains("now is 2026-11-21T01:00:00Z"),
                "{later}"
            );
        }
    }

    #[test]
    fn a_line_without_a_year_is_of_the_last_such_day() {
        let now = WallMs(1_795_219_200_000);
        let of = |month, day, offset| {
            let time = LineTime {
                year: None,
                month,
                day,
                hour: 2,
                minute: 30,
                second: 15,
                ms: 7,
                offset,
            };
            line_wall(&time, now).map(stamp)
        };
        assert_eq!(of(11, 20, None).as_deref(), Some("2026-11-20T02:30:15Z"));
        assert_eq!(of(12, 20, None).as_deref(), Some("2025-12-20T02:30:15Z"));
        assert_eq!(of(11, 20, Some(-60)).as_deref(), Some("2026-11-20T03:30:15Z"));
        assert_eq!(of(13, 20, None), None);
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
