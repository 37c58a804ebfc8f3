//! Windows of a real CUDA training on two H100, healthy and hung (`tests/fixtures/activity/cuda*.json`), replayed.

use crate::traces::{Seen, read};
use serde::Deserialize;
use std::collections::BTreeMap;
use supervise_core::id::WorkerId;
use supervise_core::observe::activity::{
    ActivitySample, ActivityWindow, DevicePulse, IN_A_ROW, RankSample, RankState, Watcher,
};
use supervise_core::observe::durations::DurationKind;

/// A step of a large model, one of a small one, and tokens that are made one by one.
const HEALTHY: [&str; 3] = ["train", "train_small", "decode"];
/// A kernel that counts cycles, one whose blocks wait for a word as those of NCCL do, and a process that sleeps or computes beside its device.
const HUNG: [&str; 4] = ["kernel_spins", "kernel_polls", "sleeps", "spins"];

#[derive(Debug, Deserialize)]
struct Traces {
    #[serde(rename = "source")]
    _source: String,
    #[serde(flatten)]
    by: BTreeMap<String, Vec<Seen>>,
}

impl Traces {
    fn of(&self, name: &str) -> impl Iterator<Item = ActivityWindow> + Clone {
        self.by[name].iter().map(Seen::window)
    }

    /// A rank that was healthy in these windows.
    fn known(&self, names: &[&str]) -> Watcher {
        let mut watcher = Watcher::default();
        for window in names.iter().flat_map(|name| self.of(name)) {
            assert!(!watcher.window(window, DurationKind::Step).is_stuck(), "{names:?}");
            watcher.progress();
        }
        watcher
    }
}

/// Both recordings. In the second, windows of a healthy step show a device that was never busy.
fn recorded() -> [Traces; 2] {
    [read("cuda.json"), read("cuda_again.json")]
}

fn stuck_after(looks: impl Iterator<Item = ActivitySample>) -> Option<usize> {
    let looks: Vec<ActivitySample> = looks.collect();
    let first = looks.iter().position(ActivitySample::is_stuck)?;
    assert!(
        looks[first..].iter().all(ActivitySample::is_stuck),
        "it comes and goes: {looks:?}"
    );
    Some(first)
}

#[test]
fn a_hang_of_a_gpu_or_beside_it_is_seen_whatever_it_did_before() {
    for traces in recorded() {
        for before in HEALTHY {
            for hang in HUNG {
                let mut watcher = traces.known(&[before]);
                let looks = traces.of(hang).map(|window| watcher.window(window, DurationKind::Step));
                let first = stuck_after(looks).unwrap_or_else(|| panic!("{before}, then {hang}: nothing seen"));
                assert!(
                    first < IN_A_ROW as usize,
                    "{before}, then {hang}: only after {first} windows"
                );
            }
        }
    }
}

/// A step with all kinds of work in it: what is idle in one of them is not missed in another.
#[test]
fn a_step_of_several_kinds_of_work_is_healthy_in_each_and_its_hangs_are_seen() {
    // An idle device in a healthy window, at a power that a small step has as well, cannot be told again.
    for (traces, hangs) in recorded().into_iter().zip([&HUNG[..], &HUNG[..2]]) {
        for long in HEALTHY {
            let mut watcher = traces.known(&HEALTHY);
            for window in traces.of(long) {
                assert!(!watcher.window(window, DurationKind::Step).is_stuck(), "{long}");
            }
        }
        for hang in hangs {
            let mut watcher = traces.known(&HEALTHY);
            let looks = traces.of(hang).map(|window| watcher.window(window, DurationKind::Step));
            assert!(stuck_after(looks).is_some(), "{hang}");
        }
    }
}

/// A training on one machine has next to no traffic: without the third family two never agree.
#[test]
fn without_its_gpu_a_training_without_traffic_tells_nothing() {
    for traces in recorded() {
        let blind = |mut window: ActivityWindow| {
            window.devices.clear();
            window
        };
        let mut watcher = Watcher::default();
        for window in traces.of("train").map(blind) {
            watcher.window(window, DurationKind::Step);
            watcher.progress();
        }
        let mut looks = traces
            .of("kernel_polls")
            .map(|w| watcher.window(blind(w), DurationKind::Step));
        assert!(!looks.any(|look| look.is_stuck()));
    }
}

/// The host may wait for its device without a sign of life: a long kernel, and the first step, of which nothing is known.
#[test]
fn a_gpu_at_work_is_a_sign_of_life() {
    for traces in recorded() {
        let asleep: Vec<ActivityWindow> = traces.of("sleeps").collect();
        let waits = |mut window: ActivityWindow, n: usize| {
            window.pulses.clone_from(&asleep[n % asleep.len()].pulses);
            window
        };
        for mut watcher in [traces.known(&["decode"]), Watcher::default()] {
            for (n, window) in traces.of("decode").enumerate() {
                let look = watcher.window(waits(window, n), DurationKind::Step);
                assert!(look.is_device_at_work() && !look.is_stuck(), "{look:?}");
                assert_eq!(look.ranks[0].sign, RankState::Alive);
            }
        }
    }
}

/// Others may work on a GPU that the run does not name.
#[test]
fn work_on_a_gpu_that_is_not_named_is_no_sign_of_life() {
    for traces in recorded() {
        let asleep: Vec<ActivityWindow> = traces.of("sleeps").collect();
        let of_others = traces.of("decode").zip(&asleep).map(|(mut window, still)| {
            window.pulses.clone_from(&still.pulses);
            window.devices.iter_mut().for_each(|d| d.own = false);
            window
        });
        let mut watcher = Watcher::default();
        let looks = of_others.map(|window| watcher.window(window, DurationKind::Step));
        assert!(stuck_after(looks).is_some());
    }
}

/// A metric on the CPU for minutes, at the end of a step with traffic in it; and a GPU that is slowed down for its heat.
#[test]
fn a_gpu_that_waits_for_its_process_and_one_that_is_throttled_are_no_hangs() {
    for traces in recorded() {
        let talks = |mut window: ActivityWindow| {
            window.network = Some(100_000);
            window
        };
        let idle = traces.by["sleeps"][0].window().devices;
        let waits = |mut window: ActivityWindow| {
            window.network = Some(0);
            window.devices.clone_from(&idle);
            window
        };
        let hot = |mut window: ActivityWindow| {
            window.network = Some(0);
            for device in &mut window.devices {
                (device.milliwatts, device.busy, device.memory) = (device.milliwatts / 3, 1000, 100);
            }
            window
        };
        for changed in [&waits as &dyn Fn(ActivityWindow) -> ActivityWindow, &hot] {
            let mut watcher = Watcher::default();
            for window in traces.of("train").map(talks) {
                watcher.window(window, DurationKind::Step);
                watcher.progress();
            }
            let mut looks = traces
                .of("train")
                .map(|w| watcher.window(changed(w), DurationKind::Step));
            assert!(!looks.any(|look| look.is_stuck()));
        }
    }
}

/// Two ranks with a GPU each, composed of two recordings of one rank: there is none of two.
fn beside(first: &ActivityWindow, second: &ActivityWindow) -> ActivityWindow {
    let mut both = first.clone();
    both.network = Some(first.network.unwrap() + second.network.unwrap());
    both.pulses.extend(second.pulses.iter().map(|p| RankSample {
        worker: WorkerId(1),
        pid: 1001,
        ..*p
    }));
    both.devices
        .extend(second.devices.iter().map(|d| DevicePulse { index: 1, ..*d }));
    both
}

/// Composed: the GPU is that of a recorded process that sleeps, the CPU signs are those of one that spins: on all of a core beside its
/// H100, and on a twentieth of one, which is a rank of verl's SFT on another machine. (The rank of that recording that takes a whole core
/// shared it with others, which these healthy windows did not.) The other rank waits, in a kernel or asleep.
#[test]
fn a_rank_that_spins_on_its_cpu_while_its_gpu_is_at_0_percent_is_found_and_named() {
    let sft: Traces = read("verl_sft.json");
    for traces in recorded() {
        let idle = || traces.of("sleeps").cycle();
        assert!(idle().take(6).all(|w| w.devices.iter().all(|d| d.busy == 0)));
        for (before, waits) in HEALTHY
            .iter()
            .flat_map(|b| ["kernel_polls", "sleeps"].map(move |w| (*b, w)))
        {
            for (of, name, rank) in [(&traces, "spins", 0), (&sft, "one_spins_5", 1)] {
                let spins = of.of(name).zip(idle()).map(|(cpu, mut window)| {
                    window.pulses = vec![cpu.pulses[rank]];
                    window
                });
                let mut watcher = Watcher::default();
                for window in traces.of(before) {
                    let look = watcher.window(beside(&window, &window), DurationKind::Step);
                    assert!(!look.is_stuck(), "{before}");
                    watcher.progress();
                }
                let looks = traces.of(waits).zip(spins).map(|(peer, spins)| {
                    let look = watcher.window(beside(&peer, &spins), DurationKind::Step);
                    assert!(
                        look.words().contains("worker 1 (pid 1001) spins: "),
                        "{before}, {name}: {}",
                        look.words()
                    );
                    assert!(
                        look.words().contains("GPU 1 does nothing (0 % busy"),
                        "{before}, {name}: {}",
                        look.words()
                    );
                    look
                });
                let first = stuck_after(looks).unwrap_or_else(|| panic!("{before}, then {name} beside {waits}"));
                assert!(
                    first < IN_A_ROW as usize,
                    "{before}, then {name} beside {waits}: only after {first}"
                );
            }
        }
    }
}

/// The same GPU beside a rank that works as in healthy windows: a tokenizer, a metric.
#[test]
fn a_gpu_at_0_percent_beside_a_rank_that_works_is_left_alone() {
    for traces in recorded() {
        for before in HEALTHY {
            let mut watcher = traces.known(&[before]);
            let idle = traces.of("sleeps").cycle();
            for (cpu, mut window) in traces.of(before).zip(idle) {
                window.pulses.clone_from(&cpu.pulses);
                assert!(!watcher.window(window, DurationKind::Step).is_stuck(), "{before}");
            }
        }
    }
}
