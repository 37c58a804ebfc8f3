//! The release of verl that runs the trainer: defaults, layouts and keys differ between releases.

use std::fmt;

/// A released series. In some of them a patch release moved a key: see [`VerlRelease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseSeries {
    V0_4,
    V0_5,
    V0_6,
    V0_7,
    V0_8,
    V0_9,
}

impl ReleaseSeries {
    /// Oldest first.
    pub const ALL: [Self; 6] = [Self::V0_4, Self::V0_5, Self::V0_6, Self::V0_7, Self::V0_8, Self::V0_9];

    /// Parses a version from Python package metadata (`0.9.1`, `0.8.0.dev3`, `0.7.0+cu128`); `None` for an unknown
    /// series.
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

/// A release: series and patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VerlRelease {
    pub series: ReleaseSeries,
    /// The third number.
    pub patch: u32,
}

impl VerlRelease {
    /// The releases whose configurations and trainers we have read, oldest first: of each series the newest, and
    /// older ones that differ. An unlisted patch counts as the nearest older one.
    pub const KNOWN: [Self; 8] = [
        Self::new(ReleaseSeries::V0_4, 0),
        Self::new(ReleaseSeries::V0_4, 1),
        Self::new(ReleaseSeries::V0_5, 0),
        Self::new(ReleaseSeries::V0_6, 1),
        Self::new(ReleaseSeries::V0_7, 0),
        Self::new(ReleaseSeries::V0_7, 1),
        Self::new(ReleaseSeries::V0_8, 0),
        Self::new(ReleaseSeries::V0_9, 1),
    ];

    /// A release of a series.
    #[must_use]
    pub const fn new(series: ReleaseSeries, patch: u32) -> Self {
        Self { series, patch }
    }

    /// Parses a version from Python package metadata; `None` for an unknown series.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let series = ReleaseSeries::of(text)?;
        let third = text.trim().split(['.', '+']).nth(2).unwrap_or_default();
        let digits = third.bytes().take_while(u8::is_ascii_digit).count();
        let patch = third[..digits].parse().unwrap_or(0);
        Some(Self { series, patch })
    }

    /// Returns true if it is this release or a newer one.
    #[must_use]
    pub fn since(self, series: ReleaseSeries, patch: u32) -> bool {
        self >= Self::new(series, patch)
    }
}

impl fmt::Display for VerlRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verl {}.{}", self.series.series(), self.patch)
    }
}

impl fmt::Display for ReleaseSeries {
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
            ("0.9.1", Some(ReleaseSeries::V0_9)),
            ("0.7.0+cu128", Some(ReleaseSeries::V0_7)),
            ("0.4.0.dev0", Some(ReleaseSeries::V0_4)),
            ("0.10.0", None),
            ("0.90", None),
            ("1.9.1", None),
            ("", None),
            ("nightly", None),
        ] {
            assert_eq!(ReleaseSeries::of(text), series, "{text}");
        }
    }

    #[test]
    fn a_patch_is_read_where_there_is_one() {
        for (text, said) in [
            ("0.4.0", Some("verl 0.4.0")),
            ("0.7.1rc2+cu128", Some("verl 0.7.1")),
            ("0.8.0.dev3", Some("verl 0.8.0")),
            ("0.9", Some("verl 0.9.0")),
            ("0.6.99999999999", Some("verl 0.6.0")),
            ("0.10.0", None),
        ] {
            assert_eq!(VerlRelease::of(text).map(|r| r.to_string()).as_deref(), said, "{text}");
        }
        assert!(
            VerlRelease::of("0.7.1")
                .is_some_and(|r| r.since(ReleaseSeries::V0_7, 1) && !r.since(ReleaseSeries::V0_8, 0))
        );
        assert!(VerlRelease::KNOWN.is_sorted());
    }
}
