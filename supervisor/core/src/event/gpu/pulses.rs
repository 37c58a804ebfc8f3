//! Activity of devices, collected per second until it is reported.

use crate::observe::activity::{DEVICES_LIMIT, DevicePulse};
use std::collections::BTreeMap;

/// Several seconds of all devices.
#[derive(Debug, Default)]
pub struct DeviceWindow {
    sums: BTreeMap<u32, Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    milliwatts: u64,
    /// Seconds in which the power was reported.
    powered: u64,
    busy: u64,
    memory: u64,
    seconds: u64,
    own: bool,
}

impl DeviceWindow {
    /// Adds one second of a device, or of several that count as one.
    pub fn add(&mut self, p: DevicePulse) {
        if self.sums.len() >= DEVICES_LIMIT && !self.sums.contains_key(&p.index) {
            return;
        }
        let sums = self.sums.entry(p.index).or_default();
        sums.own = p.own;
        for (sum, n) in [
            (&mut sums.milliwatts, p.milliwatts),
            (&mut sums.powered, u32::from(p.milliwatts > 0)),
            (&mut sums.busy, p.busy),
            (&mut sums.memory, p.memory),
            (&mut sums.seconds, 1),
        ] {
            *sum = sum.saturating_add(n.into());
        }
    }

    /// Returns the mean for each device and starts over.
    pub fn take(&mut self) -> Vec<DevicePulse> {
        let mean = |sum: u64, seconds: u64| u32::try_from(sum / seconds.max(1)).unwrap_or(u32::MAX);
        let pulse = |(index, s): (u32, Sums)| DevicePulse {
            index,
            milliwatts: mean(s.milliwatts, s.powered),
            busy: mean(s.busy, s.seconds),
            memory: mean(s.memory, s.seconds),
            own: s.own,
        };
        std::mem::take(&mut self.sums).into_iter().map(pulse).collect()
    }
}
