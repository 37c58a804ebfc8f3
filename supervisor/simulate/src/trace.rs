//! A record of failures: how many on each day, or when each one was.
//!
//! The text is CSV with a header. `day,faults`: days count from 0, and a day that is left out had no failure.
//! `seconds`: the time of each failure from the start. Lines that begin with `#` are comments; further columns are
//! ignored.

use crate::draws::SeededDraws;
use thiserror::Error;

const DAY: f64 = 86_400_000.0;
/// Days of a trace, and failures on one day or in the whole trace, at most.
const MOST: u32 = 100_000;

/// Failures in the order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureTrace {
    times: TraceTimes,
    failures: u64,
    /// In ms.
    span: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum TraceTimes {
    /// Day and failures on it.
    Days(Vec<(u32, u32)>),
    /// In ms.
    Moments(Vec<f64>),
}

/// Why a trace cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{what}", match .line { 0 => String::new(), line => format!("line {line}: ") })]
pub struct TraceError {
    /// From 1; 0: the whole text.
    pub line: usize,
    pub what: String,
}

impl FailureTrace {
    /// Reads a trace.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let at = |line: usize, what: String| TraceError { line, what };
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(n, line)| (n + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let no_header = "needs a header, `day,faults` or `seconds`";
        let Some((n, header)) = lines.next() else {
            return Err(at(0, format!("the trace is empty: it {no_header}")));
        };
        let columns: Vec<&str> = header.split(',').map(str::trim).collect();
        match columns.as_slice() {
            ["day", "faults", ..] => Self::days(lines),
            ["seconds", ..] => Self::moments(lines),
            _ => Err(at(n, format!("`{}` is no header: the trace {no_header}", cut(header)))),
        }
    }

    fn days<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, TraceError> {
        let (mut days, mut failures) = (Vec::new(), 0);
        for (line, text) in lines {
            let at = |what: String| TraceError { line, what };
            let mut cells = text.split(',').map(str::trim);
            let mut number = |name: &str| {
                let cell = cells.next().unwrap_or_default();
                let value = cell.parse::<u32>().ok().filter(|n| *n <= MOST);
                value.ok_or_else(|| at(format!("{name} `{}` is not a number from 0 to {MOST}", cut(cell))))
            };
            let (day, faults) = (number("day")?, number("faults")?);
            if let Some((before, _)) = days.last()
                && *before >= day
            {
                return Err(at(format!("day {day} comes after day {before}: days must rise")));
            }
            failures += u64::from(faults);
            days.push((day, faults));
        }
        let span = days.last().map_or(0.0, |(day, _)| f64::from(*day + 1) * DAY);
        Self::of(TraceTimes::Days(days), failures, span)
    }

    fn moments<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, TraceError> {
        let mut moments: Vec<f64> = Vec::new();
        for (line, text) in lines {
            let at = |what: String| TraceError { line, what };
            let cell = text.split(',').next().unwrap_or_default().trim();
            let most = f64::from(MOST) * DAY / 1000.0;
            let value = cell.parse::<f64>().ok().filter(|s| (0.0..=most).contains(s));
            let ms = 1000.0 * value.ok_or_else(|| at(format!("`{}` is not a number of seconds", cut(cell))))?;
            if moments.last().is_some_and(|before| *before > ms) {
                return Err(at("earlier than the line before: times must rise".to_owned()));
            }
            moments.push(ms);
        }
        let count = moments.len() as u64;
        // The gap after the last one is not known: the average.
        let span = moments.last().map_or(0.0, |last| last + last / count as f64);
        Self::of(TraceTimes::Moments(moments), count, span)
    }

    fn of(times: TraceTimes, failures: u64, span: f64) -> Result<Self, TraceError> {
        let what = match failures {
            0 => "the trace has no failure".to_owned(),
            _ if failures > u64::from(MOST) => format!("the trace has more than {MOST} failures"),
            _ if span < 1000.0 => "the trace is shorter than a second".to_owned(),
            _ => return Ok(Self { times, failures, span }),
        };
        Err(TraceError { line: 0, what })
    }

    /// Number of failures.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Length in ms.
    #[must_use]
    pub fn span_ms(&self) -> f64 {
        self.span
    }

    /// Mean time between failures in ms.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        self.span / self.failures as f64
    }

    /// Calls `note` with the time of each failure in ms. Within a day the times are drawn.
    pub(crate) fn each(&self, draws: &mut SeededDraws, note: &mut dyn FnMut(&mut SeededDraws, f64)) {
        match &self.times {
            TraceTimes::Moments(moments) => moments.iter().for_each(|at| note(draws, *at)),
            TraceTimes::Days(days) => {
                for (day, faults) in days {
                    for _ in 0..*faults {
                        let at = (f64::from(*day) + draws.share()) * DAY;
                        note(draws, at);
                    }
                }
            }
        }
    }
}

/// Text for a message, without control characters.
fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let days = FailureTrace::parse("# 400 nodes\nday,faults,note\n0,2,x\n3,1\n\n4,0\n").unwrap();
        assert_eq!((days.failures(), days.span_ms()), (3, 5.0 * DAY));
        let moments = FailureTrace::parse("seconds\n1.5\n1.5\n30\n").unwrap();
        assert_eq!((moments.failures(), moments.span_ms()), (3, 40_000.0));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let said = |text: &str| FailureTrace::parse(text).unwrap_err().to_string();
        let huge = format!("day,faults\n0,{}\n", MOST + 1);
        for (text, wanted) in [
            ("", "the trace is empty: it needs a header, `day,faults` or `seconds`"),
            (
                "1,2\n",
                "line 1: `1,2` is no header: the trace needs a header, `day,faults` or `seconds`",
            ),
            (
                "day,faults\n5,1\n4,1\n",
                "line 3: day 4 comes after day 5: days must rise",
            ),
            (
                "day,faults\n5,1\n5,1\n",
                "line 3: day 5 comes after day 5: days must rise",
            ),
            (
                "day,faults\n0,-1\n",
                "line 2: faults `-1` is not a number from 0 to 100000",
            ),
            ("day,faults\n0\n", "line 2: faults `` is not a number from 0 to 100000"),
            (&huge, "line 2: faults `100001` is not a number from 0 to 100000"),
            ("day,faults\n0,0\n", "the trace has no failure"),
            ("seconds\nNaN\n", "line 2: `NaN` is not a number of seconds"),
            ("seconds\n-1\n", "line 2: `-1` is not a number of seconds"),
            ("seconds\n1e300\n", "line 2: `1e300` is not a number of seconds"),
            (
                "seconds\n9\n8\n",
                "line 3: earlier than the line before: times must rise",
            ),
            ("seconds\n0\n0\n", "the trace is shorter than a second"),
        ] {
            assert_eq!(said(text), wanted);
        }
    }
}
