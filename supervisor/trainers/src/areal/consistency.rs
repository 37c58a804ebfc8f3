//! Whether the parts of a set belong to one save: compares their counts with each other and with proven generations.
//!
//! AReaL writes the engines' state first, then the run's state, the dataloader position last, all in place. If killed
//! in between, it leaves parts of two saves, each whole by itself, and silently resumes from them. File times are no
//! proof: a copy has different ones. Counters do show it, and so does the random number in each engine's save.

use super::names::INFO;
use super::set::{CHECKS, DATA, GIVEN, OPTIMIZER, save_mark, shard_mark};
use std::collections::BTreeSet;
use supervise_checkpoint::json::StepInfo;
use supervise_checkpoint::{EarlierStep, StepCounters};
use supervise_core::checkpoint::{Finding, Verdict};

#[derive(Debug)]
pub(super) struct SetComparison<'a> {
    /// The step it claims to hold.
    pub(super) info: StepInfo,
    pub(super) marks: &'a StepCounters,
    pub(super) engines: &'a BTreeSet<&'a str>,
    pub(super) earlier: &'a [EarlierStep],
    /// Most updates that an optimizer makes per step.
    pub(super) updates_per_step: Option<u32>,
    /// An optimizer may have restarted its count.
    pub(super) counts_anew: bool,
}

pub(super) const METADATA: &str = ".metadata";
/// Finding code: weights are newer than the run's state next to them.
pub(super) const AHEAD: &str = "ahead";

impl SetComparison<'_> {
    fn count(&self, name: &str) -> Option<u64> {
        self.marks.counters.get(name).copied()
    }

    fn done(&self) -> u64 {
        self.info.global_step.saturating_add(1)
    }

    /// The newest generation of this step or an earlier one.
    fn before(&self) -> Option<&EarlierStep> {
        let not_above = self.earlier.iter().filter(|e| e.step.0 <= self.done());
        not_above.max_by_key(|e| e.step)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut out: Vec<Finding> = [self.checks(), self.place_in_data()].into_iter().flatten().collect();
        for engine in self.engines {
            out.extend(
                self.written_over(engine)
                    .or_else(|| self.of_another_step(engine))
                    .or_else(|| self.newer(engine))
                    .or_else(|| self.older(engine))
                    .or_else(|| self.replaced(engine)),
            );
        }
        out
    }

    /// AReaL checks once per step whether to save, and counts the checks: the counter is written two files after the
    /// step.
    fn checks(&self) -> Option<Finding> {
        let checks = self.count(CHECKS)?;
        let (expected, since) = match self.before().and_then(|e| Some((e, *e.marks.counters.get(CHECKS)?))) {
            Some((e, then)) => (
                then.saturating_add(self.done() - e.step.0),
                format!("step {} had {then}", e.step),
            ),
            None => (self.done(), "one is made in each step".to_owned()),
        };
        (checks != expected).then(|| {
            let detail = format!(
                "it has counted {checks} steps, and step_info.json says that {} were trained ({since}): the files are of two saves",
                self.done()
            );
            Finding::error("info_of_two_saves", Verdict::Incomplete, detail).in_file(format!("{INFO}/checkpoint_info.json"))
        })
    }

    /// Returns true if every earlier save has the dataloader position of its step, so that another step's position is
    /// no coincidence. If batches are returned ahead of the steps, for rollouts, two steps may share a position, and
    /// only file times can tell.
    fn goes_by_steps(&self) -> bool {
        let epoch = self.info.steps_per_epoch.max(1);
        let given = |e: &EarlierStep| Some((e.step.0, *e.marks.counters.get(GIVEN)?));
        let mut all = self.earlier.iter().filter_map(given);
        all.all(|(step, given)| given % epoch == step % epoch)
    }

    /// The dataloader position is written last. It may repeat at the same point of another epoch.
    fn place_in_data(&self) -> Option<Finding> {
        let data = self.count(DATA).filter(|_| self.goes_by_steps())?;
        let epoch = self.info.steps_per_epoch.max(1);
        let same = self.earlier.iter().find(|e| {
            let apart = e.step.0.abs_diff(self.done());
            apart > 0 && !apart.is_multiple_of(epoch) && e.marks.counters.get(DATA) == Some(&data)
        })?;
        let detail = format!(
            "it is the one of step {}, and step_info.json says step {}: the save was cut short before it was written",
            same.step,
            self.done()
        );
        Some(
            Finding::error("info_of_two_saves", Verdict::Incomplete, detail)
                .in_file(format!("{INFO}/dataloader_info.pkl")),
        )
    }

    fn of_another_step(&self, engine: &str) -> Option<Finding> {
        let save = self.count(&save_mark(engine))?;
        let of = |e: &&EarlierStep| e.marks.counters.get(&save_mark(engine)) == Some(&save);
        if self.earlier.iter().filter(of).any(|e| e.step.0 == self.done()) {
            return None;
        }
        let other = self.earlier.iter().find(of)?;
        let what = if other.step.0 > self.done() { "newer" } else { "older" };
        let detail = format!(
            "the state of {engine} was saved with step {}, and {INFO} says step {}: the weights are {what} than what is kept beside them",
            other.step,
            self.done()
        );
        Some(match other.step.0 > self.done() {
            true => ahead(engine, detail),
            false => Finding::error("mixed_generations", Verdict::Damaged, detail).in_file(table(engine)),
        })
    }

    /// The recorded CRC-32 of a shard in the same save of this engine.
    pub(super) fn recorded(&self, engine: &str, shard: &str) -> Option<u64> {
        let (save, shard) = (save_mark(engine), shard_mark(engine, shard));
        let own = self.count(&save)?;
        let same = self
            .earlier
            .iter()
            .filter(|e| e.marks.counters.get(&save) == Some(&own));
        same.filter_map(|e| e.marks.counters.get(&shard)).copied().next()
    }

    /// Shards of an engine that differ from when this save was proven, and the number of unchanged ones.
    fn since_proven(&self, engine: &str) -> (Vec<&str>, usize) {
        let first = shard_mark(engine, "");
        let shards = self.marks.counters.iter();
        let known = shards.filter_map(|(name, crc)| {
            let shard = name.strip_prefix(&first)?;
            Some((shard, self.recorded(engine, shard)? == *crc))
        });
        let (same, other): (Vec<_>, Vec<_>) = known.partition(|(_, same)| *same);
        (other.into_iter().map(|(shard, _)| shard).collect(), same.len())
    }

    /// Some shards differ from when this save was proven. Counts do not always show it: state common to all ranks is
    /// written by one of them.
    fn written_over(&self, engine: &str) -> Option<Finding> {
        let (other, same) = self.since_proven(engine);
        let shard = other.first().filter(|_| same > 0)?;
        let detail = format!(
            "it is not what it was when this save was proven, and {same} others are: a later save began to write over it and was cut short"
        );
        let file = format!("{}/{shard}", super::names::state_dir(engine));
        Some(Finding::error("mixed_generations", Verdict::Damaged, detail).in_file(file))
    }

    /// All shards differ, and no count shows it.
    fn replaced(&self, engine: &str) -> Option<Finding> {
        let (other, _) = self.since_proven(engine);
        let detail = "the shards are not what they were when this save was proven: a later save wrote over them and was cut short";
        (!other.is_empty())
            .then(|| Finding::error("mixed_generations", Verdict::Damaged, detail).in_file(table(engine)))
    }

    /// More updates than the steps can have made.
    fn newer(&self, engine: &str) -> Option<Finding> {
        let name = format!("{engine}.{OPTIMIZER}");
        let updates = self.count(&name)?;
        let each = u64::from(self.updates_per_step?);
        let before = self
            .before()
            .and_then(|e| Some((e.step.0, *e.marks.counters.get(&name)?)));
        let (step, then) = before.unwrap_or((0, 0));
        let most = then.saturating_add((self.done() - step).saturating_mul(each));
        (updates > most).then(|| {
            let detail = format!(
                "the optimizer of {engine} has made {updates} updates, and {} trained steps make {most} at most: the save was cut short before {INFO} was written",
                self.done()
            );
            ahead(engine, detail)
        })
    }

    /// No more updates than at an earlier step.
    fn older(&self, engine: &str) -> Option<Finding> {
        let name = format!("{engine}.{OPTIMIZER}");
        let updates = self.count(&name)?;
        let lower = self.earlier.iter().filter(|e| e.step.0 < self.done());
        let other = lower
            .filter(|e| e.marks.counters.get(&name).is_some_and(|n| *n >= updates))
            .max_by_key(|e| e.step)?;
        let detail = format!(
            "the optimizer of {engine} has made {updates} updates, as many as at step {} or fewer, and {INFO} says step {}",
            other.step,
            self.done()
        );
        Some(match self.counts_anew {
            true => Finding::warning("counters_went_back", detail),
            false => Finding::error("mixed_generations", Verdict::Damaged, detail).in_file(table(engine)),
        })
    }
}

fn ahead(engine: &str, detail: String) -> Finding {
    Finding::error("ahead", Verdict::Incomplete, detail).in_file(table(engine))
}

fn table(engine: &str) -> String {
    format!("{}/{METADATA}", super::names::state_dir(engine))
}
