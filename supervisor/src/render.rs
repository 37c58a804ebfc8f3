//! Text for the terminal and the matching stable JSON. Pure: values in, text out.

pub mod account;
pub mod advice;
pub mod checkpoints;
pub mod codes;
pub mod columns;
mod command;
pub mod compare;
pub(crate) mod condition;
pub mod config;
pub mod convert;
pub mod danger;
pub mod diagnose;
pub mod elsewhere;
pub(crate) mod excerpt;
pub mod explain;
pub mod gc;
pub mod history;
pub mod journal;
pub mod last_words;
pub mod ledger;
pub mod live;
pub mod merge;
pub mod metrics;
pub mod migrate;
pub mod name;
pub mod next;
pub mod outcome;
pub mod page;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod record;
pub mod reshard;
pub mod resume;
pub mod rollback;
pub mod save_advice;
pub mod sbatch;
pub mod sign;
pub mod simulate;
pub mod status;
pub mod table;
pub mod terminal;
pub mod time;
pub mod top;
pub mod trace;
pub mod trainer;
pub mod unit;
pub mod verify;
pub(crate) mod words;

pub use command::{proposed, shown_command, shown_word};

use supervise_core::checkpoint::{Finding, FindingLevel};
use supervise_core::event::ScanReport;
use supervise_core::journal::record::StartPoint;

/// `1 step`, `2 steps`.
#[must_use]
pub fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// A share from 0 to 1: `91.2 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Bytes in a suitable unit.
#[must_use]
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// Doubts about the step an attempt resumes from, each prefixed with the step.
#[must_use]
pub fn doubts(scan: &ScanReport, from: &StartPoint) -> Vec<Finding> {
    let StartPoint::Step { ckpt, .. } = from else {
        return Vec::new();
    };
    let step = scan.steps.iter().find(|c| c.id == *ckpt);
    let doubtful = step
        .into_iter()
        .flat_map(|c| &c.findings)
        .filter(|f| f.level == FindingLevel::Warning);
    doubtful
        .map(|f| {
            let mut told = f.clone();
            told.file = Some(
                f.file
                    .as_ref()
                    .map_or_else(|| ckpt.0.clone(), |file| ckpt.path_of(file)),
            );
            told
        })
        .collect()
}

/// A table with aligned columns, as wide as its text.
#[must_use]
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let table = columns::TextTable {
        head,
        rows,
        ..columns::TextTable::default()
    };
    table.text(None)
}

/// A line of output for a terminal: control characters escaped, secrets removed, length limited.
#[must_use]
pub fn one_line(text: &str, limit: usize) -> String {
    let clean = terminal::shown(text);
    if clean.len() > limit && clean.chars().count() > limit {
        let cut: String = clean.chars().take(limit.saturating_sub(1)).collect();
        return format!("{cut}…");
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(count(1, "step"), "1 step");
        assert_eq!(count(0, "step"), "0 steps");
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![vec!["a".into(), "long".into()], vec!["bbb".into(), "x".into()]];
        assert_eq!(table(&["h", "second"], &rows), "h    second\na    long\nbbb  x\n");
    }

    #[test]
    fn lines_of_trainers_cannot_play_with_the_terminal() {
        assert_eq!(one_line("a\x1b[2J\rb", 20), r"a\x1b[2J\rb");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }
}
