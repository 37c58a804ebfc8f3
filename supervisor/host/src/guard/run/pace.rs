//! When the guard reports.

pub(super) const REPORT_MS: u64 = 5000;

#[derive(Debug)]
pub(crate) struct ReportSchedule {
    pub(super) reported: u64,
    pub(super) free_at: u64,
    pub(super) changed: bool,
    pub(super) output: u64,
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
