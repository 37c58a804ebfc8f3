//! When the guard reports.

/// A report comes at least this often.
pub(super) const REPORT_MS: u64 = 5000;

/// When a report is due, and what it will say was done.
#[derive(Debug)]
pub(crate) struct ReportSchedule {
    pub(super) reported: u64,
    /// Before this moment a change waits.
    pub(super) free_at: u64,
    pub(super) changed: bool,
    pub(super) output: u64,
    /// When lost output may be told again.
    pub(super) loss_at: u64,
}

impl ReportSchedule {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            reported: now,
            free_at: now,
            changed: false,
            output: 0,
            loss_at: now,
        }
    }

    pub(super) fn due(&self) -> u64 {
        let regular = self.reported.saturating_add(REPORT_MS);
        if self.changed {
            self.free_at.min(regular)
        } else {
            regular
        }
    }
}
