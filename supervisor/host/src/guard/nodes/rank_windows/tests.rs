use super::*;

fn pulse(rank: u32, cpu_ms: u64) -> RankPulse {
    let pulse = RankSample {
        worker: WorkerId(rank),
        pid: 100 + i32::try_from(rank).unwrap(),
        state: b'S',
        cpu_ms,
        bytes: 10 * cpu_ms,
        ..RankSample::default()
    };
    RankPulse {
        pulse,
        name: None,
        waits: Some("futex".to_owned()),
    }
}

/// Two nodes with a rank each, and the memory shared by launcher and guard.
struct Gang {
    windows: Windows,
    memory: File,
    gathering: NodeWindows,
    network: Option<u64>,
}

impl Gang {
    fn new() -> Self {
        Self {
            windows: Windows::default(),
            memory: tempfile::tempfile().unwrap(),
            gathering: NodeWindows::new(2, 2),
            network: Some(7),
        }
    }

    fn tells(&mut self, node: u32, at: u64, over_ms: u64, cpu_ms: u64) {
        self.windows.add(node, pulse(node, cpu_ms));
        self.windows
            .end(node, &format!("n{}", node + 1), at, over_ms, self.network);
        self.windows.write(&self.memory).unwrap();
    }

    fn takes(&mut self, now: u64) -> Option<Gathered> {
        self.gathering.read(&self.memory, now);
        self.gathering.take()
    }
}

fn cpu(gathered: &Gathered) -> Vec<u64> {
    gathered.counts.pulses.iter().map(|p| p.cpu_ms).collect()
}

#[test]
fn a_window_is_over_once_each_node_has_told_one_and_counts_once() {
    let mut gang = Gang::new();
    assert_eq!(gang.takes(1000), None);
    gang.tells(0, 20_000, 10_000, 100);
    assert_eq!(gang.takes(20_500), None);
    gang.tells(1, 23_000, 10_000, 9000);
    let first = gang.takes(24_000).unwrap();
    assert_eq!((cpu(&first), first.counts.network), (vec![100, 9000], Some(14)));
    assert_eq!(first.places[&(WorkerId(1), 101)].node, "n2");
    assert_eq!(gang.takes(26_000), None, "nothing new");
    gang.tells(1, 33_000, 10_000, 9000);
    assert_eq!(gang.takes(34_000), None, "only one has told more");
}

#[test]
fn what_a_node_tells_while_another_is_waited_for_is_added_up() {
    let mut gang = Gang::new();
    gang.tells(0, 20_000, 10_000, 0);
    assert_eq!(gang.takes(21_000), None);
    gang.tells(0, 30_000, 10_000, 8000);
    assert_eq!(gang.takes(31_000), None);
    gang.tells(1, 32_000, 20_000, 6000);
    let told = gang.takes(33_000).unwrap();
    assert_eq!((cpu(&told), told.counts.over_ms), (vec![4000, 3000], 10_000));
    assert_eq!(told.counts.pulses[0].bytes, 40_000);
}

#[test]
fn a_network_that_a_node_could_not_count_is_known_again_in_the_next_window() {
    let mut gang = Gang::new();
    let mut tells = |node, at, network| {
        gang.network = network;
        gang.tells(node, at, 10_000, 1);
        gang.takes(at + 1000).map(|told| told.counts.network)
    };
    for (first, second, at) in [(None, Some(7), 100_000), (Some(7), None, 200_000)] {
        assert_eq!(tells(0, at, first), None);
        assert_eq!(tells(0, at + 10_000, second), None);
        assert_eq!(tells(1, at + 11_000, Some(8)), Some(None));
        assert_eq!(tells(1, at + 21_000, Some(8)), None);
        assert_eq!(tells(0, at + 22_000, Some(7)), Some(Some(15)));
    }
}

#[test]
fn a_node_that_tells_nothing_keeps_all_from_being_judged() {
    let mut gang = Gang::new();
    for at in (20_000..200_000).step_by(10_000) {
        gang.tells(0, at, 10_000, 0);
        assert_eq!(gang.takes(at + 1000), None);
    }
    // It reports again: the other node's reports are from the last half minute.
    gang.tells(1, 201_000, 10_000, 0);
    assert!(gang.takes(202_000).is_some());
    gang.tells(1, 211_000, 10_000, 0);
    assert_eq!(gang.takes(212_000), None);
    gang.tells(0, 250_000, 10_000, 0);
    assert_eq!(gang.takes(251_000), None, "the other's is old");
    gang.windows.end(1, "n2", 252_000, 10_000, Some(7));
    gang.windows.write(&gang.memory).unwrap();
    assert_eq!(gang.takes(253_000), None);
}

#[test]
fn a_text_that_is_being_written_is_read_later() {
    let mut gang = Gang::new();
    gang.tells(0, 20_000, 10_000, 1);
    gang.tells(1, 20_000, 10_000, 1);
    let mut byte = [0];
    gang.memory.read_exact_at(&mut byte, WINDOWS_AT + 40).unwrap();
    gang.memory.write_all_at(b"~", WINDOWS_AT + 40).unwrap();
    assert_eq!(gang.takes(21_000), None);
    gang.memory.write_all_at(&byte, WINDOWS_AT + 40).unwrap();
    assert!(gang.takes(22_000).is_some());
}

#[test]
fn processes_of_a_rank_are_told_each() {
    let process = |rank: u32, pid: i32, name: &str| RankPulse {
        pulse: RankSample {
            pid,
            ..pulse(rank, 100).pulse
        },
        name: Some(name.to_owned()),
        waits: None,
    };
    let mut gang = Gang::new();
    gang.windows.add(0, process(0, 11, "raylet"));
    gang.tells(0, 20_000, 10_000, 1);
    // The same PID on another node is another process.
    gang.windows.add(1, process(1, 11, "ray::Actor.step"));
    gang.windows.add(1, process(1, 12, "raylet"));
    gang.tells(1, 20_000, 10_000, 1);
    let told = gang.takes(21_000).unwrap();
    assert_eq!(told.counts.pulses.len(), 5);
    let place = &told.places[&(WorkerId(1), 11)];
    assert_eq!(
        (place.node.as_str(), place.name.as_deref()),
        ("n2", Some("ray::Actor.step"))
    );
}

#[test]
fn a_crowd_is_not_judged_one_by_one() {
    let mut gang = Gang::new();
    for node in 0..5 {
        for pid in 0..250 {
            let mut one = pulse(node, 100);
            one.pulse.pid = pid;
            gang.windows.add(node, one);
        }
        gang.windows.end(node, "n", 20_000, 10_000, Some(7));
    }
    gang.windows.write(&gang.memory).unwrap();
    assert_eq!(gang.takes(21_000), None);
    assert!(gang.gathering.held.is_empty());
}
