//! The check that the parts of a set are of one save: what each counts, beside the others and beside generations that were proven.
//!
//! AReaL writes the engines' state first, then what is kept of the run, the place in the data last, all in place. Killed between
//! two of these it leaves parts of two saves, each whole by itself, and resumes from them without a word. File times are no
//! proof: a copy has others. What counts up tells, and so does the random number that each save of an engine carries.

use super::names::INFO;
use super::set::{CHECKS, DATA, GIVEN, OPTIMIZER, save_mark, shard_mark};
use std::collections::BTreeSet;
use supervise_checkpoint::json::StepInfo;
use supervise_checkpoint::{EarlierStep, StepCounters};
use supervise_core::checkpoint::{Finding, Verdict};

/// One set, with what it is compared with.
#[derive(Debug)]
pub(super) struct SetComparison<'a> {
    /// The step it says it holds.
    pub(super) info: StepInfo,
    /// Its counters.
    pub(super) marks: &'a StepCounters,
    /// Engines that are in it.
    pub(super) engines: &'a BTreeSet<&'a str>,
    /// Generations that were proven.
    pub(super) earlier: &'a [EarlierStep],
    /// Updates that an optimizer makes in a step at most.
    pub(super) updates_per_step: Option<u32>,
    /// An optimizer may have begun anew.
    pub(super) counts_anew: bool,
}

/// The table of an engine's state.
pub(super) const METADATA: &str = ".metadata";
/// Code of the finding that weights are newer than what is kept beside them.
pub(super) const AHEAD: &str = "ahead";

impl SetComparison<'_> {
    fn count(&self, name: &str) -> Option<u64> {
        self.marks.counters.get(name).copied()
    }

    /// Steps that were trained.
    fn done(&self) -> u64 {
        self.info.global_step.saturating_add(1)
    }

    /// The newest generation of this step or of one before.
    fn before(&self) -> Option<&EarlierStep> {
        let not_above = self.earlier.iter().filter(|e| e.step.0 <= self.done());
        not_above.max_by_key(|e| e.step)
    }

    /// All that does not fit.
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

    /// AReaL asks itself once a step whether to save, and counts: the counter is written two files after the step.
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

    /// Each save before has the place in the data that its step has: one that is another step's is no accident. Where batches are given out
    /// ahead of the steps, as to rollouts, two steps may well have the same, and the time tells alone.
    fn goes_by_steps(&self) -> bool {
        let epoch = self.info.steps_per_epoch.max(1);
        let given = |e: &EarlierStep| Some((e.step.0, *e.marks.counters.get(GIVEN)?));
        let mut all = self.earlier.iter().filter_map(given);
        all.all(|(step, given)| given % epoch == step % epoch)
    }

    /// The place in the data is written last. At the same place of another epoch it may be the same.
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

    /// The engine's state is the one that was proven with another step.
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

    /// Record of the same save of this engine, and of one of its shards.
    pub(super) fn recorded(&self, engine: &str, shard: &str) -> Option<u64> {
        let (save, shard) = (save_mark(engine), shard_mark(engine, shard));
        let own = self.count(&save)?;
        let same = self
            .earlier
            .iter()
            .filter(|e| e.marks.counters.get(&save) == Some(&own));
        same.filter_map(|e| e.marks.counters.get(&shard)).copied().next()
    }

    /// Shards of an engine that are not what they were when this save was proven, and how many are.
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

    /// Some shards are others than when this save was proven. What they count does not always tell: what all ranks have is
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

    /// All shards are others, and nothing that counts says so.
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

    /// No more updates than a step that was trained before.
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
