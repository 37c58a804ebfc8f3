//! A list of bounded length that still covers the whole range.

/// Items in order of arrival: if there are too many, every other one is dropped, but never the newest.
#[derive(Debug, Clone)]
pub(super) struct Thinned<T> {
    kept: Vec<T>,
    last: Option<T>,
    /// Every `every`-th item is kept.
    every: usize,
    seen: usize,
    limit: usize,
}

impl<T: Copy> Thinned<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: Vec::new(),
            last: None,
            every: 1,
            seen: 0,
            limit,
        }
    }

    /// Adds an item; `always`: keeps it out of turn.
    pub(super) fn push(&mut self, item: T, always: bool) {
        self.seen += 1;
        if !always && !self.seen.is_multiple_of(self.every) {
            self.last = Some(item);
            return;
        }
        self.last = None;
        self.kept.push(item);
        if self.kept.len() > self.limit {
            let mut n = 0;
            self.kept.retain(|_| {
                n += 1;
                n % 2 == 1
            });
            self.every *= 2;
            self.last = (n % 2 == 0).then_some(item);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.kept.iter().copied().chain(self.last)
    }

    pub(super) fn last(&self) -> Option<T> {
        self.last.or(self.kept.last().copied())
    }
}

/// At most about so many items over the whole range, the last one among them.
pub(super) fn spread<T: Copy>(all: Vec<T>, most: usize) -> Vec<T> {
    let every = all.len().div_ceil(most.max(1)).max(1);
    let last = all
        .last()
        .filter(|_| !(all.len().max(1) - 1).is_multiple_of(every))
        .copied();
    all.into_iter().step_by(every).chain(last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_short_and_ends_with_the_newest() {
        let mut list = Thinned::new(10);
        for n in 1..=1000 {
            list.push(n, false);
            let all: Vec<u32> = list.iter().collect();
            assert!(all.len() <= 12, "{all:?}");
            assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
            assert_eq!((all.last(), list.last()), (Some(&n), Some(n)));
        }
    }

    #[test]
    fn a_spread_keeps_the_ends() {
        for n in 0..100_u32 {
            let few = spread((0..n).collect(), 10);
            assert!(few.len() <= 11 && few.is_sorted(), "{few:?}");
            assert_eq!(
                (few.first(), few.last()),
                ((n > 0).then_some(&0), n.checked_sub(1).as_ref()),
                "{n}"
            );
        }
    }
}
