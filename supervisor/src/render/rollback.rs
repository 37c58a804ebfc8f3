//! The next start of a run that was rolled back, as text.

use super::count;
use super::terminal::shown;
use serde::{Deserialize, Serialize};
use supervise_core::checkpoint::StateKind;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{DiskEdit, StartPoint};

/// What the next start will do, as stable JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RollbackView {
    pub version: u32,
    pub run: String,
    pub to: u64,
    pub checkpoint: Option<String>,
    /// Steps to be moved aside first.
    pub aside: Vec<String>,
    pub lost: Vec<StateKind>,
    /// Why that step can be resumed from.
    pub reasons: Vec<Reason>,
}

impl RollbackView {
    /// The view of the planned next start.
    #[must_use]
    pub fn of(run: &str, from: &StartPoint, edits: &[DiskEdit], lost: &[StateKind], reasons: Vec<Reason>) -> Self {
        let aside = edits.iter().filter_map(|edit| match edit {
            DiskEdit::MoveAside { from, .. } => Some(from.to_string()),
            _ => None,
        });
        Self {
            version: 1,
            run: run.to_owned(),
            to: from.step().0,
            checkpoint: match from {
                StartPoint::Step { ckpt, .. } => Some(ckpt.to_string()),
                StartPoint::Fresh | StartPoint::AsIs => None,
            },
            aside: aside.collect(),
            lost: lost.to_vec(),
            reasons,
        }
    }

    /// As JSON; `dry`: nothing was recorded.
    #[must_use]
    pub fn json(&self, dry: bool) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.insert("dry_run".to_owned(), dry.into());
        }
        value
    }

    /// The same as text; `dry`: nothing was recorded.
    #[must_use]
    pub fn text(&self, dry: bool) -> String {
        let would = if dry { "would resume" } else { "resumes" };
        let mut out = format!("run {}: its next start {would} from step {}\n", self.run, self.to);
        for reason in &self.reasons {
            out.push_str(&format!("  {}\n", shown(&reason.text)));
        }
        if !self.aside.is_empty() {
            let steps = count(self.aside.len() as u64, "step");
            out.push_str(&format!(
                "  {steps} will go aside, not deleted: {}\n",
                shown(&self.aside.join(", "))
            ));
        }
        out
    }
}
