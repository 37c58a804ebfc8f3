//! Ranks at a standstill in a made-up world of 16: the rank at fault is named, and no other one ever.

use std::collections::BTreeMap;
use supervise_core::observe::collectives::{CollectiveCall, CollectiveFault, ProcessGroup, RankTrace, read};

const RANKS: u32 = 16;
/// Calls that a rank issues ahead of the oldest that it did not finish.
const AHEAD: usize = 6;

/// A process group: its name, its purpose, its ranks.
type Named = (String, &'static str, Vec<u32>);

/// Tensor parallel pairs, data parallel groups of four, pipelines of four, and all.
fn groups() -> Vec<Named> {
    let mut out = vec![("0".to_owned(), "default_pg", (0..RANKS).collect())];
    let mut add = |desc, ranks: Vec<u32>| {
        let name = out.len().to_string();
        out.push((name, desc, ranks));
    };
    (0..8).for_each(|n| add("tensor", vec![2 * n, 2 * n + 1]));
    (0..4).for_each(|n| add("data", (0..4).map(|k| n % 2 + n / 2 * 8 + k * 2).collect()));
    (0..4).for_each(|n| add("expert", (n * 4..n * 4 + 4).collect()));
    out
}

/// A program: in each step the groups of a rank take turns.
fn program(rank: u32, groups: &[Named], steps: u64) -> Vec<CollectiveCall> {
    let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
    let mut out = Vec::new();
    for step in 0..steps {
        for (op, desc, size) in [
            ("all_reduce", "tensor", 64),
            ("all_to_all", "expert", 100 + u64::from(rank) + step),
            ("_all_gather_base", "tensor", 32),
            ("all_reduce", "data", 4096),
            ("all_reduce", "default_pg", 1),
        ] {
            let own = groups.iter().find(|(_, d, ranks)| *d == desc && ranks.contains(&rank));
            let (name, ..) = own.unwrap();
            let number = numbers.entry(name).or_default();
            *number += 1;
            out.push(CollectiveCall {
                group: name.clone(),
                number: *number,
                op: format!("nccl:{op}"),
                inputs: vec![size],
                types: vec!["BFloat16".to_owned()],
                is_p2p: false,
                is_done: false,
                place: Some(format!("train.py:{}", out.len() % 5 + 10)),
            });
        }
    }
    out
}

/// A rank that goes wrong at the nth call of its program.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    /// Its program makes no more calls.
    Hangs,
    /// Its call is of another size.
    Size,
    /// Its GPU does its part, and it does not learn of it: it comes no further than what it may issue ahead.
    Blind,
}

struct World {
    groups: Vec<Named>,
    programs: Vec<Vec<CollectiveCall>>,
    issued: Vec<usize>,
}

/// Lets all ranks go on until none can. A call ends once each of its group has it as its oldest.
fn run(wrong: &[(u32, usize, Wrong)], cut: Option<(&str, u64)>) -> World {
    let groups = groups();
    let mut programs: Vec<Vec<CollectiveCall>> = (0..RANKS).map(|rank| program(rank, &groups, 8)).collect();
    let mut issued = vec![0_usize; RANKS as usize];
    let mut done = vec![0_usize; RANKS as usize];
    let of = |rank: usize| wrong.iter().find(|(r, ..)| *r as usize == rank).copied();
    for (rank, at, what) in wrong {
        if matches!(what, Wrong::Size) {
            programs[*rank as usize][*at].inputs = vec![7];
        }
    }
    loop {
        let before = (issued.clone(), done.clone());
        for rank in 0..RANKS as usize {
            let end = match of(rank) {
                Some((_, at, Wrong::Hangs)) => at,
                Some((_, at, Wrong::Blind)) => at + 3,
                _ => programs[rank].len(),
            };
            issued[rank] = (done[rank] + AHEAD).min(end).min(programs[rank].len());
        }
        for (name, _, ranks) in &groups {
            let oldest: Vec<Option<&CollectiveCall>> = ranks
                .iter()
                .map(|r| *r as usize)
                .map(|r| {
                    programs[r]
                        .get(done[r])
                        .filter(|c| c.group == *name && done[r] < issued[r])
                })
                .collect();
            let same = |c: &CollectiveCall| {
                let one = oldest[0].unwrap();
                (&c.op, c.number) == (&one.op, one.number) && (c.op.contains("to_all") || c.inputs == one.inputs)
            };
            let ready = oldest.iter().all(Option::is_some) && oldest.iter().flatten().all(|c| same(c));
            let is_cut = oldest[0].is_some_and(|c| cut == Some((name.as_str(), c.number)));
            if ready && !is_cut {
                ranks.iter().for_each(|r| done[*r as usize] += 1);
            }
        }
        if before == (issued.clone(), done.clone()) {
            break;
        }
    }
    for rank in 0..RANKS as usize {
        let seen = match of(rank) {
            Some((_, at, Wrong::Blind)) => done[rank].min(at),
            _ => done[rank],
        };
        programs[rank][..seen].iter_mut().for_each(|c| c.is_done = true);
    }
    World {
        groups,
        programs,
        issued,
    }
}

impl World {
    /// The records of all ranks; with `active` only of what was not finished, beside the counters.
    fn traces(&self, active: bool) -> Vec<RankTrace> {
        let of = |rank: u32| {
            let calls = &self.programs[rank as usize][..self.issued[rank as usize]];
            let groups = self.groups.iter().filter(|(.., ranks)| ranks.contains(&rank));
            let counted = |name: &str, done: bool| {
                let own = calls.iter().filter(|c| c.group == name && (c.is_done || !done));
                active.then(|| own.map(|c| c.number).max().unwrap_or_default())
            };
            RankTrace {
                rank,
                groups: groups
                    .map(|(name, desc, ranks)| {
                        let group = ProcessGroup {
                            desc: (*desc).to_owned(),
                            ranks: ranks.clone(),
                            entered: counted(name, false),
                            done: counted(name, true),
                        };
                        (name.clone(), group)
                    })
                    .collect(),
                calls: calls.iter().filter(|c| !active || !c.is_done).cloned().collect(),
            }
        };
        (0..RANKS).map(of).collect()
    }
}

fn named(traces: &[RankTrace]) -> Vec<(u32, CollectiveFault)> {
    let found = read(traces);
    assert!(found.culprits.is_empty() != found.open.is_none(), "{found:?}");
    found.culprits.iter().map(|c| (c.rank, c.fault)).collect()
}

#[test]
fn eight_ranks_at_fault_in_four_worlds_are_named_and_no_other_one() {
    let worlds = [
        [(9, 17, Wrong::Hangs), (14, 17, Wrong::Hangs)],
        [(3, 11, Wrong::Hangs), (12, 12, Wrong::Hangs)],
        [(0, 20, Wrong::Hangs), (7, 20, Wrong::Blind)],
        [(5, 15, Wrong::Blind), (10, 16, Wrong::Blind)],
    ];
    for wrong in worlds {
        let ranks: Vec<u32> = wrong.iter().map(|(rank, ..)| *rank).collect();
        for active in [true, false] {
            let found = named(&run(&wrong, None).traces(active));
            let found: Vec<u32> = found.iter().map(|(rank, _)| *rank).collect();
            assert_eq!(found, ranks, "{wrong:?}, only unfinished calls: {active}");
        }
    }
}

#[test]
fn wherever_one_rank_goes_wrong_it_is_named_and_nobody_else() {
    for rank in 0..RANKS {
        for at in 0..30 {
            for what in [Wrong::Hangs, Wrong::Blind] {
                for active in [true, false] {
                    let found = named(&run(&[(rank, at, what)], None).traces(active));
                    // Of one that never made a call of a group nothing tells without the counters.
                    let silent = !active && at < 5;
                    let right = found.iter().all(|(r, _)| *r == rank) && (silent || !found.is_empty());
                    assert!(right, "{what:?} of rank {rank} at {at} ({active}): {found:?}");
                }
            }
        }
    }
}

#[test]
fn a_call_of_another_size_is_told_and_in_a_pair_of_both() {
    // The fourth call of each step is that of the data parallel four, the first that of the pair.
    let four = run(&[(6, 18, Wrong::Size)], None).traces(true);
    assert_eq!(named(&four), [(6, CollectiveFault::Mismatch)]);
    let text = read(&four).named().unwrap();
    assert!(
        text.contains("rank 6 entered all_reduce of 7 BFloat16") && text.contains("the others all_reduce of 4096"),
        "{text}"
    );
    let pair = named(&run(&[(6, 15, Wrong::Size)], None).traces(true));
    assert_eq!(pair, [(6, CollectiveFault::Mismatch), (7, CollectiveFault::Mismatch)]);
}

#[test]
fn healthy_and_unclear_records_name_nobody() {
    let open = |traces: &[RankTrace]| {
        assert_eq!(named(traces), []);
        read(traces).open.unwrap()
    };
    for active in [true, false] {
        // All is done, with all sizes that an all_to_all may have.
        let done = open(&run(&[], None).traces(active));
        assert!(done.contains("no rank waits"), "{done}");
        // A call that all entered and none leaves: the network.
        for cut in [("0", 3), ("4", 9), ("10", 5)] {
            let cut = open(&run(&[], Some(cut)).traces(active));
            assert!(cut.contains("none of them is behind"), "{cut}");
        }
        // The rank at fault left no record.
        let mut silent = run(&[(9, 17, Wrong::Hangs)], None).traces(active);
        silent.retain(|t| t.rank != 9);
        let text = open(&silent);
        assert!(text.contains("rank 9 left no record"), "{text}");
    }
    assert_eq!(read(&[]).words(), None);
}

#[test]
fn ranks_that_call_in_another_order_wait_for_each_other() {
    let call = |group: &str, number: u64| CollectiveCall {
        group: group.to_owned(),
        number,
        op: "nccl:all_reduce".to_owned(),
        inputs: vec![4],
        types: Vec::new(),
        is_p2p: false,
        is_done: false,
        place: None,
    };
    let group = |entered| ProcessGroup {
        ranks: vec![0, 1],
        entered: Some(entered),
        ..ProcessGroup::default()
    };
    let rank = |rank, a, b, waits: &str| RankTrace {
        rank,
        groups: BTreeMap::from([("1".to_owned(), group(a)), ("2".to_owned(), group(b))]),
        calls: vec![call(waits, 8)],
    };
    let both = [rank(0, 8, 7, "1"), rank(1, 7, 8, "2")];
    assert_eq!(
        named(&both),
        [(0, CollectiveFault::Deadlock), (1, CollectiveFault::Deadlock)]
    );
    assert!(read(&both).named().unwrap().contains("another order"));
}

#[test]
fn a_rank_that_answers_no_other_is_named_and_one_in_the_middle_is_not() {
    // 0 receives from 1, which receives from 2, which hangs.
    let p2p = |op: &str| CollectiveCall {
        group: "3".to_owned(),
        number: 5,
        op: format!("nccl:{op}"),
        inputs: Vec::new(),
        types: Vec::new(),
        is_p2p: true,
        is_done: false,
        place: None,
    };
    let group = ProcessGroup {
        desc: "pipeline".to_owned(),
        ranks: vec![10, 11, 12],
        entered: Some(5),
        done: Some(4),
    };
    let rank = |rank, calls| RankTrace {
        rank,
        groups: BTreeMap::from([("3".to_owned(), group.clone())]),
        calls,
    };
    let all = [
        rank(10, vec![p2p("recv 0<-1")]),
        rank(11, vec![p2p("recv 1<-2")]),
        rank(12, vec![]),
    ];
    assert_eq!(named(&all), [(12, CollectiveFault::NotEntered)]);
    assert!(read(&all).named().unwrap().contains("did not answer `recv 1<-2`"));
    // A pair that talks to each other waits for the wire.
    let pair = [rank(10, vec![p2p("recv 0<-1")]), rank(11, vec![p2p("send 1->0")])];
    assert_eq!(named(&pair), []);
}
