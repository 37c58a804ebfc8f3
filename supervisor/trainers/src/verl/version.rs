//! Which release series of verl runs the trainer: defaults, layouts and keys differ between them.

use std::fmt;

/// A released series. Patch releases of one series share defaults and layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.4.
    V0_4,
    /// 0.5.
    V0_5,
    /// 0.6.
    V0_6,
    /// 0.7.
    V0_7,
    /// 0.8.
    V0_8,
    /// 0.9.
    V0_9,
}

impl Version {
    /// Every known series, oldest first.
    pub const ALL: [Self; 6] = [Self::V0_4, Self::V0_5, Self::V0_6, Self::V0_7, Self::V0_8, Self::V0_9];

    /// The series of a version as Python's package metadata spells it (`0.9.1`, `0.8.0.dev3`, `0.7.0+cu128`); `None` where it
    /// is not one that is known.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(['.', '+']);
        let series = (parts.next()?, parts.next()?);
        Self::ALL
            .into_iter()
            .find(|v| v.series().split_once('.') == Some(series))
    }

    /// `0.9`.
    #[must_use]
    pub fn series(self) -> &'static str {
        match self {
            Self::V0_4 => "0.4",
            Self::V0_5 => "0.5",
            Self::V0_6 => "0.6",
            Self::V0_7 => "0.7",
            Self::V0_8 => "0.8",
            Self::V0_9 => "0.9",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verl {}", self.series())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_read_from_what_python_says() {
        for (text, series) in [
            ("0.9.1", Some(Version::V0_9)),
            ("0.7.0+cu128", Some(Version::V0_7)),
            ("0.4.0.dev0", Some(Version::V0_4)),
            ("0.10.0", None),
            ("0.90", None),
            ("1.9.1", None),
            ("", None),
            ("nightly", None),
        ] {
            assert_eq!(Version::of(text), series, "{text}");
        }
    }
}
