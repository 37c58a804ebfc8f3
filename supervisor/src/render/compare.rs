//! Result of comparing two models.

use super::count;
use crate::exit::SuperviseExitCode;
use crate::render::terminal::shown;
use camino::Utf8PathBuf;
use serde::Serialize;
use std::fmt::Write as _;
use supervise_weights::compare::{CompareReport, Difference, DifferenceKind, Values};

const TOLD: usize = 20;

/// A comparison of two models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompareView {
    /// File or directory of the first model.
    pub first: Utf8PathBuf,
    /// File or directory of the second model.
    pub second: Utf8PathBuf,
    pub equal: bool,
    pub tensors: u64,
    pub numbers: u64,
    /// NaN values in the first and in the second.
    pub nan: [u64; 2],
    pub differences: Vec<Difference>,
}

impl CompareView {
    /// The view of a comparison.
    #[must_use]
    pub fn of(first: Utf8PathBuf, second: Utf8PathBuf, compared: CompareReport) -> Self {
        Self {
            first,
            second,
            equal: compared.differences.is_empty(),
            tensors: compared.tensors,
            numbers: compared.numbers,
            nan: compared.nan,
            differences: compared.differences,
        }
    }

    /// Like `cmp`: 0 if the models are equal, 1 if they differ.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.equal {
            true => SuperviseExitCode::Finished.code(),
            false => SuperviseExitCode::Different.code(),
        }
    }

    /// The comparison as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let all = count(self.tensors, "tensor");
        let both = match self.tensors {
            0 => "no tensor is in both".to_owned(),
            n => format!("{} in both", count(n, "tensor")),
        };
        // Writing into a String cannot fail.
        let _ = match self.differences.len() {
            0 => writeln!(out, "equal: {all}, {} numbers", self.numbers),
            n => {
                let (first, second) = (shown(self.first.as_str()), shown(self.second.as_str()));
                writeln!(
                    out,
                    "different: {}; {both}\n  first: {first}\n  second: {second}",
                    count(n as u64, "tensor")
                )
            }
        };
        for one in self.differences.iter().take(TOLD) {
            let _ = writeln!(out, "  {}: {}", shown(&one.name), words(&one.what));
        }
        if let Some(more) = self.differences.len().checked_sub(TOLD).filter(|n| *n > 0) {
            let _ = writeln!(out, "  and {more} more: --json lists all");
        }
        if self.nan != [0, 0] {
            let _ = writeln!(
                out,
                "not a number: {} in the first, {} in the second",
                self.nan[0], self.nan[1]
            );
        }
        out
    }
}

fn words(what: &DifferenceKind) -> String {
    match what {
        DifferenceKind::OnlyInFirst => "only in the first".to_owned(),
        DifferenceKind::OnlyInSecond => "only in the second".to_owned(),
        DifferenceKind::Shape { first, second } => format!("shape {first:?}, and {second:?}"),
        DifferenceKind::Dtype { first, second } => {
            format!("{}, and {} (--as TYPE casts both)", first.word(), second.word())
        }
        DifferenceKind::Values(values) => numbers(values),
    }
}

fn numbers(v: &Values) -> String {
    format!(
        "{} of {} differ, by {:e} at most ({:.2} %); first at {:?}: {:e}, and {:e}",
        v.different,
        v.of,
        v.max_absolute,
        100.0 * v.max_relative,
        v.first_at,
        v.first_values[0],
        v.first_values[1]
    )
}
