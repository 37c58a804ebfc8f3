//! How the two runs of a demo ended, from the files of the demo trainer and the run directories.

use camino::Utf8Path;
use std::fmt::Write as _;
use std::fs;

/// How one run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DemoOutcome {
    /// Hash of all weights, optimizer state and generators; `None`: the run did not finish.
    pub(super) digest: Option<String>,
    pub(super) attempts: usize,
    pub(super) faults: usize,
    /// Steps that were moved aside.
    pub(super) aside: usize,
    /// How often a rank found another trainer alive.
    pub(super) violations: usize,
}

impl DemoOutcome {
    /// `dir`: the directory around the checkpoint root.
    pub(super) fn read(dir: &Utf8Path) -> Self {
        let run = dir.join("checkpoints/.supervise");
        let text = |name: &str| fs::read_to_string(dir.join(name));
        Self {
            digest: text("digest.txt").ok().map(|d| d.trim().to_owned()),
            attempts: names(&run.join("attempts")).len(),
            faults: names(&dir.join("faults")).len(),
            aside: steps_below(&run.join("aside"), 4),
            violations: text("writers/violations").map_or(0, |v| v.lines().count()),
        }
    }
}

/// The two runs side by side.
#[derive(Debug)]
pub(super) struct DemoComparison {
    pub(super) undisturbed: DemoOutcome,
    pub(super) faulted: DemoOutcome,
}

impl DemoComparison {
    pub(super) fn text(&self) -> String {
        let mut text = format!("{:<24}{:<20}broken four times\n", "", "undisturbed");
        let mut row = |name: &str, cell: fn(&DemoOutcome) -> String| {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{name:<24}{:<20}{}", cell(&self.undisturbed), cell(&self.faulted));
        };
        row("faults", |o| o.faults.to_string());
        row("attempts", |o| o.attempts.to_string());
        row("steps moved aside", |o| o.aside.to_string());
        row("two trainers at once", |o| o.violations.to_string());
        row("hash of the weights", |o| {
            o.digest
                .as_ref()
                .map_or("none".to_owned(), |d| d.chars().take(16).collect())
        });
        text.push('\n');
        for complaint in self.complaints() {
            let _ = writeln!(text, "failed: {complaint}");
        }
        if self.complaints().is_empty() {
            text += "finished: the broken run ended with the weights of the undisturbed one, bit for bit\n";
        }
        text
    }

    pub(super) fn complaints(&self) -> Vec<&'static str> {
        let (straight, faulted) = (&self.undisturbed, &self.faulted);
        let expectations = [
            (faulted.digest.is_some(), "the broken run did not get to its end"),
            (straight.digest == faulted.digest, "the weights of the two runs differ"),
            (straight.faults == 0, "the undisturbed run had faults"),
            (faulted.faults > 0, "nothing went wrong in the broken run"),
            (faulted.attempts > straight.attempts, "the broken run was not restarted"),
            (
                straight.violations + faulted.violations == 0,
                "two trainers were alive at once",
            ),
        ];
        let missed = expectations.into_iter().filter(|(holds, _)| !holds);
        missed.map(|(_, text)| text).collect()
    }
}

fn names(dir: &Utf8Path) -> Vec<String> {
    let entries = dir.read_dir_utf8().into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_owned()).collect()
}

fn steps_below(dir: &Utf8Path, depth: u8) -> usize {
    let below = names(dir).into_iter().map(|name| dir.join(name));
    // Next to each step there is a file that says why it is there.
    let dirs = below.filter(|path| path.is_dir());
    dirs.map(|path| match path.file_name() {
        Some(name) if name.starts_with("global_step_") => 1,
        _ if depth > 0 => steps_below(&path, depth - 1),
        _ => 0,
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(digest: &str, attempts: usize, faults: usize) -> DemoOutcome {
        DemoOutcome {
            digest: Some(digest.to_owned()),
            attempts,
            faults,
            ..DemoOutcome::default()
        }
    }

    fn complaints(faulted: DemoOutcome) -> usize {
        let comparison = DemoComparison {
            undisturbed: outcome("a", 1, 0),
            faulted,
        };
        comparison.complaints().len()
    }

    #[test]
    fn only_equal_weights_after_faults_and_more_attempts_are_good() {
        assert_eq!(complaints(outcome("a", 3, 4)), 0);
        assert_eq!(complaints(outcome("b", 3, 4)), 1);
        assert_eq!(complaints(outcome("a", 1, 4)), 1);
        assert_eq!(complaints(outcome("a", 3, 0)), 1);
        let two_at_once = DemoOutcome {
            violations: 1,
            ..outcome("a", 3, 4)
        };
        assert_eq!(complaints(two_at_once), 1);
        let unfinished = DemoOutcome {
            digest: None,
            ..outcome("", 3, 4)
        };
        assert_eq!(complaints(unfinished), 2);
    }
}
