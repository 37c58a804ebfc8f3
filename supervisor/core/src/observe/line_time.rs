//! The time that a line of output begins with, as loggers write it.

use regex::bytes::Regex;

/// Bytes of a line that are searched.
const SEARCHED: usize = 96;

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTime {
    /// `None`: the format has none.
    pub year: Option<u32>,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub ms: u32,
    /// Minutes east of UTC; `None`: local time.
    pub offset: Option<i32>,
}

/// Finds the time of a line.
#[derive(Debug)]
pub struct LineClock(Regex);

impl LineClock {
    /// # Errors
    /// Never: the pattern is tested.
    pub fn new() -> Result<Self, regex::Error> {
        Regex::new(
            r"(?-u)^.{0,40}?(?:(\d{4})[-/](\d\d)[-/](\d\d)[T ]|\b[EWIF](\d\d)(\d\d) |\b(\d\d)-(\d\d) )(\d\d):(\d\d):(\d\d)(?:[.,](\d{3})\d*)?(?:(Z)\b| ?([+-])(\d\d):?(\d\d)\b)?",
        )
        .map(Self)
    }

    /// The time of a line; `None`: it has none.
    #[must_use]
    pub fn of(&self, line: &[u8]) -> Option<LineTime> {
        let c = self.0.captures(&line[..line.len().min(SEARCHED)])?;
        let n = |at: usize| std::str::from_utf8(c.get(at)?.as_bytes()).ok()?.parse::<u32>().ok();
        let east = || Some(i32::try_from(n(14)? * 60 + n(15)?).unwrap_or_default());
        let offset = match (c.get(12), c.get(13).map(|sign| sign.as_bytes())) {
            (Some(_), _) => Some(0),
            (None, Some(b"-")) => east().map(|east| -east),
            (None, Some(_)) => east(),
            (None, None) => None,
        };
        Some(LineTime {
            year: n(1),
            month: n(2).or(n(4)).or(n(6))?,
            day: n(3).or(n(5)).or(n(7))?,
            hour: n(8)?,
            minute: n(9)?,
            second: n(10)?,
            ms: n(11).unwrap_or(0),
            offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_of_loggers_are_read() {
        let clock = LineClock::new().unwrap();
        let of = |line: &str| {
            let t = clock.of(line.as_bytes())?;
            let (day, time) = ((t.year, t.month, t.day), (t.hour, t.minute, t.second, t.ms));
            Some((day, time, t.offset))
        };
        let date = (Some(2026), 11, 29);
        for (line, expected) in [
            ("2026-11-29 02:30:15,123 - INFO", (date, (2, 30, 15, 123), None)),
            ("[2026-11-29T02:30:15.123456Z] x", (date, (2, 30, 15, 123), Some(0))),
            (
                "[INFO|trainer.py:7] 2026-11-29 02:30:15 >> x",
                (date, (2, 30, 15, 0), None),
            ),
            ("2026/11/29 02:30:15+05:45 x", (date, (2, 30, 15, 0), Some(345))),
            ("2026-11-29 02:30:15 -0330 x", (date, (2, 30, 15, 0), Some(-210))),
            (
                "I1129 02:30:15.123456 77 x.cc",
                ((None, 11, 29), (2, 30, 15, 123), None),
            ),
            ("(pid=7) INFO 11-29 02:30:15 x", ((None, 11, 29), (2, 30, 15, 0), None)),
        ] {
            assert_eq!(of(line), Some(expected), "{line}");
        }
        for line in ["step:1 - loss:0.5", "", "at 02:30:15", "2026-11-29"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
