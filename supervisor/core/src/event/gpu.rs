//! Checks of GPUs before a launch, from the output of `nvidia-smi`: whether those that the run names are present, free
//! and healthy.
//!
//! Output that cannot be read has no consequences: only known problems block a launch.

mod pulses;
pub use pulses::DeviceWindow;

use crate::event::{ActError, ActErrorKind};
use crate::id::Ms;
use crate::observe::activity::DevicePulse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fields queried for each device, in order.
pub const DEVICE_FIELDS: &str =
    "index,uuid,memory.used,memory.total,ecc.errors.uncorrected.volatile.total,retired_pages.pending";
/// Fields about remapped memory rows, which current GPUs have instead of retired pages.
pub const ROW_FIELDS: &str = "gpu_uuid,remapped_rows.pending,remapped_rows.failure";
/// Fields queried for each process on a device.
pub const OWNER_FIELDS: &str = "gpu_uuid,pid,process_name,used_memory";
/// The argument that queries activity. Older drivers know these fields too.
pub const FOLLOW: &str = "--query-gpu=index,power.draw,utilization.gpu,utilization.memory";
/// A device with more than 1/20 of its memory in use is not free. Monitors and displays use less.
const PART: u64 = 20;
/// A killed process usually frees its memory within tenths of a second: delays before silent re-checks.
const AGAIN: [Ms; 5] = [Ms(100), Ms(150), Ms(250), Ms(500), Ms(1000)];
/// Most devices and processes that are read.
const MOST: usize = 256;
/// Most processes that a message names.
const NAMED: usize = 4;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub index: u32,
    pub uuid: String,
    /// Used memory in MiB.
    pub used: u64,
    /// Total memory in MiB.
    pub total: u64,
    /// Uncorrected memory errors since the driver was loaded; `None`: not counted.
    pub errors: Option<u64>,
    /// Whether pages wait for a reset to be retired.
    pub retiring: bool,
    /// Whether a memory row waits for a reset to be replaced. It is not used until then.
    pub replacing: bool,
    /// Whether a memory row could not be replaced because no spares are left.
    pub worn_out: bool,
}

/// A process that uses a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    pub uuid: String,
    pub pid: i32,
    pub name: String,
    /// Memory it holds in MiB, if reported.
    pub used: Option<u64>,
}

/// The devices that a run names: indices or prefixes of UUIDs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuIds(Vec<String>);

impl GpuIds {
    /// Parses the list that CUDA takes. CUDA itself stops at the first invalid entry.
    #[must_use]
    pub fn read(list: &str) -> Self {
        let known = |word: &&str| word.parse::<u32>().is_ok() || word.starts_with("GPU-");
        let words = list.split(',').map(str::trim).take_while(known);
        Self(words.take(MOST).map(str::to_owned).collect())
    }

    /// The list without the devices of these names.
    #[must_use]
    pub fn without(&self, left_out: &BTreeMap<String, String>) -> Self {
        let kept = self.0.iter().filter(|word| !left_out.contains_key(*word));
        Self(kept.cloned().collect())
    }

    /// The list as CUDA takes it.
    #[must_use]
    pub fn list(&self) -> String {
        self.0.join(",")
    }

    /// Number of devices named.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if none is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Parses devices, one per line, and skips lines that do not parse.
#[must_use]
pub fn devices(text: &str) -> Vec<Device> {
    let device = |line: &str| {
        let [index, uuid, used, total, errors, retiring] = fields(line)?;
        Some(Device {
            index: index.parse().ok()?,
            uuid: uuid.to_owned(),
            used: used.parse().ok()?,
            total: total.parse().ok()?,
            errors: errors.parse().ok(),
            retiring: is_yes(retiring),
            replacing: false,
            worn_out: false,
        })
    };
    text.lines().take(MOST).filter_map(device).collect()
}

/// Adds what a query says about remapped rows. Drivers write "yes" as a word or as a number.
pub fn note_rows(devices: &mut [Device], text: &str) {
    for line in text.lines().take(MOST) {
        let Some([uuid, pending, failure]) = fields(line) else {
            continue;
        };
        if let Some(device) = devices.iter_mut().find(|d| d.uuid == uuid) {
            device.replacing = is_yes(pending);
            device.worn_out = is_yes(failure);
        }
    }
}

fn is_yes(word: &str) -> bool {
    word.eq_ignore_ascii_case("yes") || word == "1"
}

/// A remark about the devices that does not block the launch.
#[must_use]
pub fn remark(named: &GpuIds, all: &[Device]) -> Option<String> {
    let wait = wanted(named, all).into_iter().filter(|d| d.replacing);
    let wait: Vec<String> = wait.map(|d| format!("GPU {} ({})", d.index, d.uuid)).collect();
    let who = wait.join(", ");
    (!wait.is_empty())
        .then(|| format!("{who}: a broken row of memory is replaced when it is reset; do that at the next chance"))
}

/// Parses the processes on the devices, one per line.
#[must_use]
pub fn owners(text: &str) -> Vec<GpuProcess> {
    let owner = |line: &str| {
        let [uuid, pid, name, used] = fields(line)?;
        Some(GpuProcess {
            uuid: uuid.to_owned(),
            pid: pid.parse().ok()?,
            name: name.chars().filter(|c| !c.is_control()).take(80).collect(),
            used: used.parse().ok(),
        })
    };
    text.lines().take(MOST).filter_map(owner).collect()
}

/// Parses the last second of a device. A line without utilization (a MIG slice) shows nothing.
#[must_use]
pub fn pulse(line: &str) -> Option<DevicePulse> {
    let [index, watts, busy, memory] = fields(line)?;
    // Reject percentages above 100 and more power than any device draws.
    let number = |word: &str, most: f64, unit: f64| {
        let value: f64 = word.parse().ok().filter(|v| (0.0..=most).contains(v))?;
        Some((value * unit).round() as u32)
    };
    Some(DevicePulse {
        index: index.parse().ok()?,
        milliwatts: number(watts, 100_000.0, 1000.0).unwrap_or_default(),
        busy: number(busy, 100.0, 10.0)?,
        memory: number(memory, 100.0, 10.0)?,
        own: false,
    })
}

fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = line.split(',').map(str::trim).collect();
    words.try_into().ok()
}

/// The device list as `nvidia-smi` takes it; `None`: all.
#[must_use]
pub fn wanted_words(named: &GpuIds) -> Option<String> {
    (!named.is_empty()).then(|| named.list())
}

/// The devices in `all` that the run names.
#[must_use]
pub fn wanted<'a>(named: &GpuIds, all: &'a [Device]) -> Vec<&'a Device> {
    all.iter()
        .filter(|d| named.0.iter().any(|word| d.is_called(word)))
        .collect()
}

/// Returns true if a device that the run names is not free, so that its processes should be listed.
#[must_use]
pub fn is_any_in_use(named: &GpuIds, all: &[Device]) -> bool {
    wanted(named, all).iter().any(|d| d.is_in_use())
}

impl Device {
    fn is_called(&self, word: &str) -> bool {
        word.parse() == Ok(self.index) || word.starts_with("GPU-") && self.uuid.starts_with(word)
    }

    fn is_in_use(&self) -> bool {
        self.used.saturating_mul(PART) > self.total
    }
}

/// A device that the run names but cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unfit {
    /// The run's name for it.
    word: String,
    who: String,
    why: String,
    /// What the operator should do.
    advice: &'static str,
}

/// The first named device that is missing or broken; `before`: the error counts when the term first checked.
fn unfit(named: &GpuIds, all: &[Device], before: &BTreeMap<String, u64>) -> Option<Unfit> {
    if all.is_empty() {
        return None;
    }
    named.0.iter().find_map(|word| {
        let unfit = |who, why, advice| Unfit {
            word: word.clone(),
            who,
            why,
            advice,
        };
        let Some(d) = all.iter().find(|d| d.is_called(word)) else {
            let there: Vec<String> = all.iter().map(|d| d.index.to_string()).collect();
            let why = format!(
                "it is not there any more, or never was: the driver lists {}",
                there.join(", ")
            );
            return Some(unfit(format!("GPU {word}"), why, ""));
        };
        const RESET: &str = "; reset it, or take its node out of the job";
        let new = d
            .errors
            .zip(before.get(&d.uuid))
            .map_or(0, |(now, then)| now.saturating_sub(*then));
        let (why, advice) = match new {
            0 if d.worn_out => (
                "a broken row of its memory could not be replaced, no spare ones are left".to_owned(),
                "; take its node out of the job, or go on with `gang.check_gpus: false`",
            ),
            0 if d.retiring => ("pages of its memory wait for a reset to be retired".to_owned(), RESET),
            0 => return None,
            n => {
                let why = format!("{n} errors of its memory were not corrected since this run was started");
                (why, RESET)
            }
        };
        Some(unfit(format!("GPU {} ({})", d.index, d.uuid), why, advice))
    })
}

/// Unfit devices, each with the reason, as long as at least `needed` others remain.
#[must_use]
pub fn spared(
    named: &GpuIds,
    needed: usize,
    all: &[Device],
    before: &BTreeMap<String, u64>,
) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut left = named.clone();
    while left.count() > needed
        && let Some(Unfit { word, why, .. }) = unfit(&left, all, before)
    {
        out.insert(word, why);
        left = named.without(&out);
    }
    out
}

/// Why the launch is blocked; `before`: the error counts when the term first checked.
#[must_use]
pub fn in_the_way(
    named: &GpuIds,
    all: &[Device],
    owners: &[GpuProcess],
    before: &BTreeMap<String, u64>,
) -> Option<ActError> {
    let wanted = wanted(named, all);
    if all.is_empty() || named.is_empty() {
        return None;
    }
    if let Some(Unfit { who, why, advice, .. }) = unfit(named, all, before) {
        return Some(failed(format!("{who}: {why}{advice}"), ActErrorKind::GpuUnfit));
    }
    let busy = wanted.iter().find(|d| d.is_in_use())?;
    let of = owners.iter().filter(|o| o.uuid == busy.uuid);
    let named: Vec<String> = of.take(NAMED).map(GpuProcess::words).collect();
    let by = match named.is_empty() {
        true => "by no process that can be seen from here".to_owned(),
        false => format!("by {}", named.join(", ")),
    };
    let what = format!(
        "GPU {}: {} of {} MiB are in use {by}",
        busy.index, busy.used, busy.total
    );
    Some(failed(what, ActErrorKind::GpuBusy))
}

/// Delay before the launch silently re-checks a device in use, after `looks` checks. `None`: report it and wait.
#[must_use]
pub fn looks_again(error: &ActError, looks: usize) -> Option<Ms> {
    let pause = AGAIN.get(looks.checked_sub(1)?)?;
    (error.kind == ActErrorKind::GpuBusy).then_some(*pause)
}

impl GpuProcess {
    fn words(&self) -> String {
        let used = self.used.map_or_else(String::new, |mib| format!(", {mib} MiB"));
        format!("process {} ({}{used})", self.pid, self.name)
    }
}

fn failed(what: String, kind: ActErrorKind) -> ActError {
    ActError {
        what,
        retryable: kind == ActErrorKind::GpuBusy,
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "0, GPU-aa11, 3, 81559, 0, No\n1, GPU-bb22, 40000, 81559, 2, No\n";

    fn said(named: &str, devices_: &str, owners_: &str, before: &[(&str, u64)]) -> Option<String> {
        let before = before.iter().map(|(u, n)| ((*u).to_owned(), *n)).collect();
        in_the_way(&GpuIds::read(named), &devices(devices_), &owners(owners_), &before)
            .map(|e| format!("{:?}: {}", e.kind, e.what))
    }

    #[test]
    fn only_what_is_named_and_known_holds_a_launch_up() {
        assert_eq!(said("0", TWO, "", &[]), None);
        assert_eq!(said("", TWO, "", &[]), None);
        assert_eq!(said("-1", TWO, "", &[]), None);
        // MIG slices have names that this does not know.
        assert_eq!(said("MIG-1234", TWO, "", &[]), None);
        for odd in [
            "",
            "NVIDIA-SMI has failed\n",
            "0, GPU-aa11, [N/A], [N/A], [N/A], [N/A]\n",
            "\0\0,,,,,\n",
        ] {
            assert_eq!(said("0", odd, "", &[]), None, "{odd:?}");
        }
    }

    #[test]
    fn what_devices_do_is_read_and_averaged() {
        let mut all = DeviceWindow::default();
        for line in [
            "0, 120.83, 100, 0",
            "1, 70.10, 0, 0",
            "0, 388.55, 19, 19",
            "1, [N/A], 10, 2",
            // A MIG slice, and invalid output.
            "2, 300.00, [N/A], [N/A]",
            "0, nan, inf, -1",
            "0, 1e300, 1000, 0",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        ] {
            pulse(line).into_iter().for_each(|p| all.add(p));
        }
        let [zero, one] = all.take().try_into().unwrap();
        assert_eq!((zero.milliwatts, zero.busy, zero.memory), (254_690, 595, 95));
        assert_eq!((one.milliwatts, one.busy, one.memory), (70_100, 50, 10));
        assert_eq!(all.take(), []);
    }

    #[test]
    fn whoever_uses_a_device_is_named() {
        let owners = "GPU-bb22, 4711, python3, 39000\nGPU-aa11, 5, other, 1\nnonsense\n";
        assert_eq!(
            said("GPU-bb", TWO, owners, &[]).unwrap(),
            "GpuBusy: GPU 1: 40000 of 81559 MiB are in use by process 4711 (python3, 39000 MiB)"
        );
        assert_eq!(
            said("0,1", TWO, "", &[]).unwrap(),
            "GpuBusy: GPU 1: 40000 of 81559 MiB are in use by no process that can be seen from here"
        );
    }

    #[test]
    fn only_a_device_in_use_is_looked_at_again_and_ever_more_rarely() {
        let busy = failed(String::new(), ActErrorKind::GpuBusy);
        let pauses: Vec<u64> = (0..9).filter_map(|n| Some(looks_again(&busy, n)?.0)).collect();
        assert_eq!(pauses, [100, 150, 250, 500, 1000]);
        assert_eq!(looks_again(&failed(String::new(), ActErrorKind::GpuUnfit), 1), None);
    }

    #[test]
    fn one_that_is_not_fit_is_spared_as_long_as_each_worker_has_one() {
        let all = devices(TWO);
        let spared = |list: &str, needed| {
            let none = BTreeMap::new();
            let out = spared(&GpuIds::read(list), needed, &all, &none);
            out.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(spared("0,7,1,9", 2), ["7", "9"]);
        assert_eq!(spared("0,7,1,9", 3), ["7"]);
        assert_eq!(spared("0,7,1,9", 4), [""; 0]);
        assert_eq!(spared("0,1", 1), [""; 0]);
    }

    #[test]
    fn what_is_missing_or_broken_is_not_waited_for() {
        assert!(
            said("0,1,2", TWO, "", &[])
                .unwrap()
                .starts_with("GpuUnfit: GPU 2: it is not there any more")
        );
        // Errors from before the run do not count; new ones do.
        assert!(said("1", TWO, "", &[("GPU-bb22", 2)]).unwrap().starts_with("GpuBusy"));
        assert!(
            said("1", TWO, "", &[("GPU-bb22", 1)])
                .unwrap()
                .contains("1 errors of its memory were not corrected")
        );
        let retiring = "0, GPU-aa11, 3, 81559, 0, Yes\n";
        assert!(said("0", retiring, "", &[]).unwrap().contains("wait for a reset"));
    }

    #[test]
    fn a_row_that_waits_is_said_and_one_that_cannot_be_replaced_is_in_the_way() {
        let look = |rows: &str| {
            let mut all = devices(TWO);
            note_rows(&mut all, rows);
            let named = GpuIds::read("0");
            let refused = in_the_way(&named, &all, &[], &BTreeMap::new());
            (remark(&named, &all), refused.map(|e| (e.kind, e.what)))
        };
        for pending in ["GPU-aa11, 1, 0\n", "GPU-bb22, No, Yes\nGPU-aa11, Yes, No\n"] {
            let (remark, refused) = look(pending);
            assert!(remark.unwrap().starts_with("GPU 0 (GPU-aa11): "), "{pending}");
            assert_eq!(refused, None);
        }
        for failure in ["GPU-aa11, 0, 1\n", "GPU-aa11, No, Yes\n"] {
            let (kind, what) = look(failure).1.unwrap();
            assert_eq!(kind, ActErrorKind::GpuUnfit);
            assert!(what.contains("no spare ones are left"), "{what}");
        }
        for nothing in [
            "",
            "GPU-aa11, 0, 0\n",
            "GPU-aa11, [N/A], [N/A]\n",
            "GPU-zz, 1, 1\n",
            "Field \"remapped_rows.pending\" is not a valid field to query.\n",
        ] {
            assert_eq!(look(nothing), (None, None), "{nothing:?}");
        }
    }
}
