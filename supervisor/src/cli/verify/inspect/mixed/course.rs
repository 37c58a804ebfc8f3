//! Compares counters in state files with the same files of other saves of the run.
//!
//! A count that contradicts the saves before and after is a doubt. Counts that restart (a resume that loads less, another epoch)
//! are not: the expectation comes from other saves that agree with each other.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FileCounters {
    /// Updates of the optimizer.
    pub(super) optimizer: Option<u64>,
    /// Steps of the learning-rate schedule.
    pub(super) schedule: Option<u64>,
    /// Batches that the dataloader returned in this epoch.
    pub(super) batches: Option<u64>,
}

impl FileCounters {
    /// Returns true if it counts training and is not zero.
    pub(super) fn moved(&self) -> bool {
        self.optimizer.or(self.schedule).is_some_and(|n| n > 0)
    }
}

type SaveCount = (u64, u64);

/// Reports counters of save `number` that contradict the same file of other saves.
pub(super) fn odd(number: u64, own: FileCounters, others: &[(u64, FileCounters)]) -> Option<String> {
    let of = |count: fn(&FileCounters) -> Option<u64>| -> Option<(SaveCount, Vec<SaveCount>)> {
        let mut all: Vec<SaveCount> = others.iter().filter_map(|(n, c)| Some((*n, count(c)?))).collect();
        all.sort_unstable();
        Some(((number, count(&own)?), all))
    };
    let optimizer = of(|c| c.optimizer).and_then(|(own, others)| out_of_order("optimizer", own, &others));
    let schedule = || {
        let (own, others) = of(|c| c.schedule)?;
        out_of_order("learning-rate schedule", own, &others).or_else(|| off_course(own, &others))
    };
    let batches = || of(|c| c.batches).and_then(|(own, others)| other_place(own, &others));
    optimizer.or_else(schedule).or_else(batches)
}

/// A count above that of a later save, or below that of an earlier one.
fn out_of_order(what: &str, own: SaveCount, others: &[SaveCount]) -> Option<String> {
    let (n, count) = own;
    let (m, other) = others
        .iter()
        .find(|(m, other)| if *m < n { *other > count } else { *other < count })?;
    Some(format!(
        "its {what} counts {count} steps, and that of save {m} {other}: perhaps it is of another save, or a resume counted anew"
    ))
}

/// A schedule advances once per step of the run, once it advances at all.
fn off_course(own: SaveCount, others: &[SaveCount]) -> Option<String> {
    let (n, count) = own;
    let ahead = |(m, c): &SaveCount| i128::from(*c) - i128::from(*m);
    let mut lower = others.iter().rev().filter(|(m, _)| *m < n);
    let (before, earlier) = (lower.next()?, lower.next());
    let after = others.iter().find(|(m, _)| *m > n);
    let agree = |other: Option<&SaveCount>| other.is_some_and(|o| ahead(o) == ahead(before));
    let expected = i128::from(n) + ahead(before);
    let odd = match i128::from(count) {
        c if c == expected => false,
        c => agree(after) || c > expected && agree(earlier),
    };
    odd.then(|| {
        format!(
            "its learning-rate schedule counts {count} steps, and those of saves beside it let expect {expected}: perhaps it is of another save"
        )
    })
}

/// A data position that fits no other save, although they fit each other.
fn other_place(own: SaveCount, others: &[SaveCount]) -> Option<String> {
    let largest = others.iter().chain([&own]).map(|(_, c)| *c).max()?;
    let fit = |a: &SaveCount, b: &SaveCount| fits(*a, *b, largest);
    let pairs = || {
        others
            .iter()
            .enumerate()
            .flat_map(|(n, a)| others.iter().skip(n + 1).map(move |b| (a, b)))
    };
    let one_each = pairs().any(|(a, b)| missed(*a, *b) == 0) && pairs().all(|(a, b)| fit(a, b));
    (one_each && !others.iter().any(|o| fit(o, &own))).then(|| {
        format!(
            "its dataloader has given out {} batches, which fits no save beside it, and those fit each other: perhaps it is of another save",
            own.1
        )
    })
}

/// How far the first save's batches plus the steps between exceed the second's: a multiple of whole epochs.
fn missed(a: SaveCount, b: SaveCount) -> i128 {
    let (first, second) = if a.0 < b.0 { (a, b) } else { (b, a) };
    i128::from(first.1) + i128::from(second.0 - first.0) - i128::from(second.1)
}

/// No epoch is shorter than the largest count.
fn fits(a: SaveCount, b: SaveCount, largest: u64) -> bool {
    let missed = missed(a, b);
    missed == 0 || missed >= i128::from(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(own: SaveCount, others: &[SaveCount]) -> bool {
        let of = |n: u64| FileCounters {
            schedule: Some(n),
            ..FileCounters::default()
        };
        let others: Vec<_> = others.iter().map(|(n, c)| (*n, of(*c))).collect();
        odd(own.0, of(own.1), &others).is_some()
    }

    #[test]
    fn a_schedule_off_the_course_of_its_neighbours_is_doubted() {
        assert!(schedule((20, 15), &[(10, 10), (30, 30)]));
        assert!(schedule((20, 30), &[(10, 10), (30, 30)]));
        assert!(schedule((30, 35), &[(10, 10), (20, 20)]));
        assert!(schedule((30, 15), &[(10, 10), (20, 20)]));
        assert!(schedule((10, 30), &[(20, 20)]));
    }

    #[test]
    fn a_schedule_that_waits_or_begins_late_is_not() {
        for (own, others) in [
            ((20, 20), &[(10, 10), (30, 30)][..]),
            // The critic is warmed up for 5 steps.
            ((4, 0), &[(6, 1), (8, 3)]),
            ((6, 1), &[(2, 0), (4, 0)]),
            ((4, 0), &[(2, 0), (6, 1)]),
            // Some of its steps were skipped.
            ((30, 28), &[(10, 10), (20, 20)]),
            ((20, 18), &[(10, 10), (30, 27)]),
            ((20, 20), &[(10, 10), (30, 20)]),
            ((20, 20), &[]),
        ] {
            assert!(!schedule(own, others), "{own:?} {others:?}");
        }
    }

    fn data(own: SaveCount, others: &[SaveCount]) -> bool {
        other_place(own, others).is_some()
    }

    #[test]
    fn a_place_in_the_data_that_fits_no_other_save_is_doubted() {
        assert!(data((2, 1), &[(1, 1), (3, 3)]));
        assert!(data((20, 30), &[(10, 10), (30, 30)]));
        assert!(data((40, 20), &[(10, 10), (20, 20), (30, 30)]));
    }

    #[test]
    fn epochs_several_batches_a_step_and_a_new_start_are_not() {
        for (own, others) in [
            ((20, 20), &[(10, 10), (30, 30)][..]),
            // An epoch has 25 batches.
            ((30, 5), &[(10, 10), (20, 20)]),
            ((60, 10), &[(40, 15), (50, 0), (70, 20)]),
            // A save at the end of each epoch.
            ((20, 10), &[(10, 10), (30, 10), (40, 10)]),
            // Some steps take several batches; an epoch has 35.
            ((20, 25), &[(10, 30), (30, 20), (40, 15)]),
            ((20, 25), &[(10, 30)]),
            // The position was lost after step 20.
            ((30, 10), &[(10, 10), (20, 20), (40, 20)]),
            ((60, 40), &[(10, 10), (20, 20), (50, 30)]),
        ] {
            assert!(!data(own, others), "{own:?} {others:?}");
        }
    }
}
