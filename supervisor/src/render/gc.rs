//! Leftovers of a run and which of them to delete, as text and as JSON.

use super::terminal::shown;
use super::time::{local_stamp, stamp};
use super::{bytes, count, table};
use crate::lead::Lead;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use supervise_core::id::WallMs;
use supervise_host::io_worker::{Leftover, LeftoverKind, RECORD_SUFFIX};

/// Which leftovers the operator asked to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcSelection {
    /// Whole steps and those of other runs too.
    pub all: bool,
    /// Number of newest attempts to keep.
    pub keep_attempts: usize,
    /// The checkpoint root has a whole step.
    pub has_whole: bool,
}

/// One leftover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftoverView {
    /// `torn`, `whole`, `foreign` or `attempt`.
    pub kind: &'static str,
    pub path: Utf8PathBuf,
    pub bytes: u64,
    /// When it was moved there, in UTC.
    pub since: String,
    #[serde(skip)]
    at: WallMs,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub delete: bool,
    #[serde(skip)]
    place: Utf8PathBuf,
}

/// All leftovers of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GcView {
    pub version: u32,
    pub run: String,
    /// All of them, those to be deleted marked.
    pub leftovers: Vec<LeftoverView>,
    pub bytes: u64,
    pub deleted: bool,
    /// Why whole steps are kept although the operator asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl GcView {
    /// The view of leftovers, with those to delete marked.
    #[must_use]
    pub fn of(run: &str, run_dir: &Utf8Path, store: &Utf8Path, found: Vec<Leftover>, choice: &GcSelection) -> Self {
        let attempts = found.iter().filter(|l| matches!(l.kind, LeftoverKind::Attempt(_)));
        let mut surplus = attempts.count().saturating_sub(choice.keep_attempts);
        let mut goes = |kind: LeftoverKind| match kind {
            LeftoverKind::Torn => true,
            LeftoverKind::Whole | LeftoverKind::Foreign => choice.all && choice.has_whole,
            // They are listed oldest first.
            LeftoverKind::Attempt(_) => {
                let goes = surplus > 0;
                surplus = surplus.saturating_sub(1);
                goes
            }
        };
        let leftovers: Vec<LeftoverView> = found
            .into_iter()
            .map(|l| LeftoverView {
                delete: goes(l.kind),
                kind: word(l.kind),
                path: match l.kind {
                    LeftoverKind::Attempt(_) => run_dir.join(&l.place),
                    _ => store.join(&l.place),
                },
                bytes: l.bytes,
                since: stamp(WallMs(l.since.saturating_mul(1000))),
                at: WallMs(l.since.saturating_mul(1000)),
                why: l.why,
                place: l.place,
            })
            .collect();
        let would = |l: &LeftoverView| matches!(l.kind, "whole" | "foreign");
        let kept = (choice.all && !choice.has_whole && leftovers.iter().any(would)).then(|| {
            "there is no whole step in the checkpoint root: a step that was whole when it was moved aside may be the last good one"
                .to_owned()
        });
        Self {
            version: 1,
            run: run.to_owned(),
            bytes: leftovers.iter().filter(|l| l.delete).map(|l| l.bytes).sum(),
            leftovers,
            deleted: false,
            kept,
        }
    }

    /// Restricts the deletion to these: others were kept, or no longer exist.
    pub fn narrow(&mut self, places: &[Utf8PathBuf]) {
        for l in &mut self.leftovers {
            l.delete = places.contains(&l.place);
        }
        self.bytes = self.leftovers.iter().filter(|l| l.delete).map(|l| l.bytes).sum();
    }

    /// Locations of the leftovers to delete.
    #[must_use]
    pub fn chosen(&self) -> Vec<Utf8PathBuf> {
        let chosen = self.leftovers.iter().filter(|l| l.delete);
        chosen.map(|l| l.place.clone()).collect()
    }

    /// The table of leftovers.
    #[must_use]
    pub fn text(&self) -> String {
        if self.leftovers.is_empty() {
            return format!("run {}: nothing is left over\n", shown(&self.run));
        }
        let rows: Vec<Vec<String>> = self.leftovers.iter().map(row).collect();
        let mut out = table(&["GOES", "WHAT", "SIZE", "SINCE", "PATH", "WHY"], &rows);
        let chosen = self.leftovers.iter().filter(|l| l.delete).count();
        out.push_str(&format!(
            "{} of {}, {} to delete\n",
            chosen,
            count(self.leftovers.len() as u64, "leftover"),
            bytes(self.bytes)
        ));
        if let Some(kept) = &self.kept {
            out.push_str(&format!("{} {kept}: not deleted\n", Lead::Note));
        } else if self.leftovers.iter().any(|l| !l.delete && l.kind != "attempt") {
            out.push_str("note: whole steps and earlier ones stay; --all deletes them too\n");
        }
        out
    }

    /// The question before anything is deleted.
    #[must_use]
    pub fn question(&self) -> String {
        let chosen = self.chosen().len() as u64;
        format!("delete {} ({})? [y/N] ", count(chosen, "leftover"), bytes(self.bytes))
    }

    /// The message after the deletion.
    #[must_use]
    pub fn done(&self) -> String {
        let chosen = self.chosen().len() as u64;
        format!("deleted {}, {} freed", count(chosen, "leftover"), bytes(self.bytes))
    }
}

fn row(l: &LeftoverView) -> Vec<String> {
    let goes = if l.delete { "yes" } else { "no" };
    vec![
        goes.to_owned(),
        what(l).to_owned(),
        bytes(l.bytes),
        local_stamp(l.at),
        l.path.to_string(),
        l.why.clone().unwrap_or_default(),
    ]
}

fn what(l: &LeftoverView) -> &'static str {
    match l.kind {
        _ if l.path.as_str().ends_with(RECORD_SUFFIX) => "proof record",
        "torn" => "torn step",
        "whole" => "whole step",
        // Another run's, or this one's own from before a fresh start.
        "foreign" => "earlier step",
        _ => "attempt",
    }
}

fn word(kind: LeftoverKind) -> &'static str {
    match kind {
        LeftoverKind::Torn => "torn",
        LeftoverKind::Whole => "whole",
        LeftoverKind::Foreign => "foreign",
        LeftoverKind::Attempt(_) => "attempt",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::id::AttemptNo;

    fn view(all: bool, has_whole: bool) -> GcView {
        let kinds = [
            LeftoverKind::Torn,
            LeftoverKind::Whole,
            LeftoverKind::Foreign,
            LeftoverKind::Attempt(AttemptNo(1)),
            LeftoverKind::Attempt(AttemptNo(2)),
            LeftoverKind::Attempt(AttemptNo(3)),
        ];
        let found = kinds.iter().enumerate().map(|(n, kind)| Leftover {
            kind: *kind,
            place: format!("aside/{n}").into(),
            bytes: 1024,
            since: 0,
            why: None,
        });
        let choice = GcSelection {
            all,
            keep_attempts: 2,
            has_whole,
        };
        GcView::of(
            "r",
            Utf8Path::new("/run"),
            Utf8Path::new("/store"),
            found.collect(),
            &choice,
        )
    }

    #[test]
    fn whole_steps_go_only_where_they_are_asked_for_and_another_is_there() {
        let chosen = |v: GcView| v.chosen().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(chosen(view(false, true)), ["aside/0", "aside/3"]);
        assert_eq!(chosen(view(true, true)), ["aside/0", "aside/1", "aside/2", "aside/3"]);
        assert_eq!(chosen(view(true, false)), ["aside/0", "aside/3"]);
        assert!(view(true, false).text().contains("may be the last good one"));
        assert_eq!(view(false, true).question(), "delete 2 leftovers (2.0 KiB)? [y/N] ");
    }
}
