//! Bytes moved by RDMA cards (InfiniBand, RoCE, EFA). The kernel's network stack does not see them, and
//! `/proc/net/dev` does not count them.
//!
//! Reading a counter may query the card, and a wedged card blocks the reader. So a child of the guard, or of the
//! parent of the ranks on each node, reads them: `supervise __fabric`. It adds up the increase of each counter in
//! shared memory. The parent never blocks, and the time stored beside the sum shows when the cards last answered.

use crate::guard::log_queue::null;
use crate::process::boottime_ms;
use crate::process::spawn::{SpawnProgram, SpawnWiring, start, take_standard};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CARDS: &str = "/sys/class/infiniband";
/// Counters of a port, and the bytes per unit. A port has either these or those.
const COUNTERS: [(&str, u64); 4] = [
    ("counters/port_xmit_data", 4),
    ("counters/port_rcv_data", 4),
    ("hw_counters/tx_bytes", 1),
    ("hw_counters/rx_bytes", 1),
];
const CARDS_LIMIT: usize = 64;
const PORTS_LIMIT: usize = 8;
const NUMBER: u64 = 64;
const PAUSE: Duration = Duration::from_secs(2);
/// Age at which two answers are missing.
const OLD_MS: u64 = 5000;

#[derive(Debug)]
pub(crate) struct Fabric {
    /// `None`: it has exited.
    pid: Option<i32>,
    memory: File,
}

impl Fabric {
    /// Starts the child; `None`: this machine has no RDMA card, or the child cannot be started.
    pub(crate) fn start() -> Option<Self> {
        // The kernel keeps this list, so no card is queried.
        std::fs::read_dir(CARDS).ok()?.next()?.ok()?;
        let made = || -> io::Result<Self> {
            let memory = File::from(memfd_create("fabric", MFdFlags::MFD_CLOEXEC)?);
            write(&memory, 0, 0)?;
            let argv = ["supervise", "__fabric", CARDS].map(str::to_owned);
            let program = SpawnProgram::first_of(&["/proc/self/exe"], &argv, &[])?;
            let null = null()?;
            let wiring = SpawnWiring {
                input: null.as_fd(),
                output: memory.as_fd(),
                errors: null.as_fd(),
                cgroup: None,
                gate: None,
                dies_with_creator: true,
            };
            let pid = Some(start(&program, &wiring)?.pid);
            Ok(Self { pid, memory })
        };
        made().ok()
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Returns true if the reaped process was the child. Nothing is counted from then on.
    pub(crate) fn was(&mut self, pid: i32) -> bool {
        self.pid.take_if(|own| *own == pid).is_some()
    }

    /// Bytes since the start; `None`: some cards no longer answer. 0 before the first answer.
    pub(crate) fn bytes(&self, now: u64) -> Option<u64> {
        let mut words = [[0_u8; 8]; 2];
        self.memory.read_exact_at(words.as_flattened_mut(), 0).ok()?;
        let [at, moved] = words.map(u64::from_le_bytes);
        (at == 0 || now.saturating_sub(at) <= OLD_MS).then_some(moved)
    }
}

fn write(memory: &File, at: u64, moved: u64) -> io::Result<()> {
    memory.write_all_at([at, moved].map(u64::to_le_bytes).as_flattened(), 0)
}

/// The child: reads until its creator exits, which kills it. Argument: the directory of the cards; standard output:
/// the shared memory.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    crate::system::ignore_signals();
    let (Some(cards), Ok(memory)) = (args.first(), take_standard(1)) else {
        return 64;
    };
    let (mut ports, memory) = (Ports::of(Path::new(cards)), File::from(memory));
    crate::process::let_go_of_start();
    loop {
        let moved = ports.read();
        if write(&memory, boottime_ms(), moved).is_err() {
            return 74;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Last value of each counter, and the total increase since the first reading.
#[derive(Debug)]
struct Ports {
    cards: PathBuf,
    known: BTreeMap<PathBuf, u64>,
    moved: u64,
}

impl Ports {
    fn of(cards: &Path) -> Self {
        Self {
            cards: cards.to_owned(),
            known: BTreeMap::new(),
            moved: 0,
        }
    }

    fn read(&mut self) -> u64 {
        let ports = listed(&self.cards, CARDS_LIMIT)
            .into_iter()
            .flat_map(|card| listed(&card.join("ports"), PORTS_LIMIT));
        for (port, (name, unit)) in ports.flat_map(|port| COUNTERS.map(|counter| (port.clone(), counter))) {
            let counter = port.join(name);
            let Some(now) = read_number(&counter) else { continue };
            let before = self.known.insert(counter, now);
            // A counter that fell was reset and has counted from zero since.
            let rose = before.map_or(0, |before| now.checked_sub(before).unwrap_or(now));
            self.moved = self.moved.saturating_add(rose.saturating_mul(unit));
        }
        self.moved
    }
}

fn read_number(counter: &Path) -> Option<u64> {
    let mut text = String::new();
    File::open(counter).ok()?.take(NUMBER).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn listed(dir: &Path, limit: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.take(limit).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn set(cards: &Path, counter: &str, text: &str) {
        let path = cards.join(counter);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn what_the_counters_of_all_ports_rose_by_is_added_up() {
        let temp = tempfile::tempdir().unwrap();
        let cards = temp.path();
        assert_eq!(Ports::of(&cards.join("none")).read(), 0);
        set(
            cards,
            "mlx5_0/ports/1/counters/port_xmit_data",
            "18446744073709551000\n",
        );
        set(cards, "mlx5_0/ports/1/counters/port_rcv_data", "1000\n");
        fs::create_dir_all(cards.join("mlx5_0/ports/2/counters")).unwrap();
        set(cards, "mlx5_1/ports/1/counters/port_xmit_data", "N/A (no PMA)\n");
        set(cards, "mlx5_1/ports/1/counters/port_rcv_data", "5000\n");
        set(cards, "rdmap0/ports/1/hw_counters/rx_bytes", "7\n");
        fs::write(cards.join("no_card"), "").unwrap();
        let mut ports = Ports::of(cards);
        assert_eq!(ports.read(), 0, "before it was looked at");
        set(
            cards,
            "mlx5_0/ports/1/counters/port_xmit_data",
            "18446744073709551010\n",
        );
        set(cards, "rdmap0/ports/1/hw_counters/rx_bytes", "107\n");
        assert_eq!(ports.read(), 140);
        // Reset, and 20 words since; a counter that cannot be read for a moment keeps its last value.
        set(cards, "mlx5_0/ports/1/counters/port_rcv_data", "20\n");
        set(cards, "mlx5_1/ports/1/counters/port_rcv_data", "");
        assert_eq!(ports.read(), 220);
        set(cards, "mlx5_1/ports/1/counters/port_rcv_data", "5001\n");
        set(cards, "mlx5_1/ports/1/counters/port_xmit_data", "9000\n");
        assert_eq!(ports.read(), 224);
        assert_eq!(ports.read(), 224);
    }

    #[test]
    fn cards_that_answer_no_more_tell_nothing() {
        let memory = File::from(memfd_create("fabric", MFdFlags::MFD_CLOEXEC).unwrap());
        write(&memory, 0, 0).unwrap();
        let fabric = Fabric { pid: None, memory };
        assert_eq!(fabric.bytes(1_000_000), Some(0), "they never did");
        write(&fabric.memory, 50_000, 700).unwrap();
        assert_eq!(fabric.bytes(50_000 + OLD_MS), Some(700));
        assert_eq!(fabric.bytes(50_001 + OLD_MS), None);
    }
}
