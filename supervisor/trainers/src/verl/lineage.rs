//! Whether a step holds its own state: compares its counters with those of earlier steps.
//!
//! A directory can be whole and still hold an older state: a restored copy, or a save into the wrong directory. The
//! counts of optimizer and schedule show it. They only grow along a lineage, as long as every resume loads them; if
//! the run loads less, a smaller count is only a warning. The dataloader counts within an epoch, so its count may
//! fall: it never condemns a step.

use super::marks::{BATCHES, OPTIMIZER, SCHEDULE};
use supervise_checkpoint::StepCounters;
use supervise_core::checkpoint::{Finding, Verdict};
use supervise_core::id::Step;

#[derive(Debug)]
pub(crate) struct Lineage<'a> {
    pub(crate) known: Vec<(Step, &'a StepCounters)>,
    /// Counters of this very step when it was proven whole.
    pub(crate) own: Option<&'a StepCounters>,
    /// The run may resume without all of its state, which restarts counts.
    pub(crate) partial: bool,
}

impl<'a> Lineage<'a> {
    /// The nearest earlier step with any counters.
    fn before(&self, step: Step) -> Option<(Step, &'a StepCounters)> {
        let lower = self.known.iter().filter(|(s, m)| *s < step && !m.counters.is_empty());
        lower.max_by_key(|(s, _)| *s).copied()
    }

    /// An earlier step that is identical in every byte.
    fn original(&self, step: Step, marks: &StepCounters) -> Option<Step> {
        marks.digest?;
        let same = |m: &StepCounters| m.digest == marks.digest && m.counters == marks.counters;
        let lower = self.known.iter().filter(|(s, m)| *s < step && same(m));
        lower.map(|(s, _)| *s).max()
    }

    pub(crate) fn findings(&self, step: Step, marks: &StepCounters) -> Vec<Finding> {
        if let Some(original) = self.original(step, marks) {
            let detail = format!("every file is the same as in step {original}: this directory is a copy of it");
            return vec![Finding::error("copy_of_other_step", Verdict::Damaged, detail)];
        }
        if let Some(finding) = self.own.and_then(|own| self.another_state(marks, own)) {
            return vec![finding];
        }
        let Some((before, theirs)) = self.before(step) else {
            return Vec::new();
        };
        let mut out: Vec<Finding> = self.went_back(marks, before, theirs).into_iter().collect();
        if out.is_empty() {
            out.extend(stand_still(marks, before, theirs));
        }
        out.extend(self.data_stands_behind(step, marks, before, theirs));
        out
    }

    /// The step was proven with other counts. A step that is trained again is moved aside first, together with its
    /// record.
    fn another_state(&self, marks: &StepCounters, own: &StepCounters) -> Option<Finding> {
        let (name, ours, then) = pairs(marks, own).find(|(_, ours, then)| ours != then)?;
        let detail = format!(
            "its {} counts {}, and counted {then} when this step was proven",
            words(name),
            unit(name, ours)
        );
        Some(match self.partial {
            true => Finding::warning("counters_changed", detail),
            false => Finding::error(
                "counters_changed",
                Verdict::Damaged,
                detail + ": this is another step's state",
            ),
        })
    }

    fn went_back(&self, marks: &StepCounters, before: Step, theirs: &StepCounters) -> Option<Finding> {
        let (name, ours, other) = pairs(marks, theirs).find(|(_, ours, other)| ours < other)?;
        let counted = format!(
            "its {} counts {}, step {before} counted {other}",
            words(name),
            unit(name, ours)
        );
        if self.partial {
            let detail = format!(
                "perhaps an older state: {counted}; a resume that does not load everything counts anew, and this run may do so"
            );
            return Some(Finding::warning("counters_went_back", detail));
        }
        if self.own.is_some_and(|own| own.counters == marks.counters) {
            let detail = format!("{counted}; it was proven whole with these counts before: an attempt counted anew");
            return Some(Finding::warning("counters_went_back", detail));
        }
        let detail = format!("this directory holds an older state: {counted}");
        Some(Finding::error("counters_went_back", Verdict::Damaged, detail))
    }

    /// Fewer batches than before mean a new epoch, if an epoch can be that short. Its length is unknown, but at least
    /// the largest count. A step may take several batches (DAPO's filter): as many as any step here took on average.
    fn data_stands_behind(
        &self,
        step: Step,
        marks: &StepCounters,
        before: Step,
        theirs: &StepCounters,
    ) -> Option<Finding> {
        let (ours, other) = (*marks.counters.get(BATCHES)?, *theirs.counters.get(BATCHES)?);
        let all = self
            .known
            .iter()
            .filter_map(|(s, m)| Some((s.0, *m.counters.get(BATCHES)?)));
        let (largest, each) = all.fold((ours, 1), |(largest, each), (step, batches)| {
            (largest.max(batches), each.max(batches.div_ceil(step.max(1))))
        });
        let given = (step.0 - before.0).saturating_mul(each);
        let epoch = other.saturating_add(given).saturating_sub(ours);
        (ours <= other && epoch < largest).then(|| {
            let detail = format!(
                "the dataloader has given out {ours} batches, and {other} in step {before}: its state may be of another step"
            );
            Finding::warning("data_of_other_step", detail)
        })
    }
}

/// The training state did not advance, or only one of optimizer and schedule did.
fn stand_still(marks: &StepCounters, before: Step, theirs: &StepCounters) -> Option<Finding> {
    let still = |name: &str| {
        let ours = marks.counters.get(name);
        ours.is_some() && ours == theirs.counters.get(name)
    };
    let mut all = pairs(marks, theirs).peekable();
    all.peek()?;
    if all.all(|(_, ours, other)| ours == other) {
        let detail =
            format!("optimizer and schedule count as many steps as in step {before}: nothing was trained between");
        return Some(Finding::warning("counters_stand_still", detail));
    }
    let mut optimizers = pairs(marks, theirs).filter_map(|(name, ..)| name.strip_suffix(OPTIMIZER));
    let half = optimizers.find_map(|role| {
        let (optimizer, schedule) = (format!("{role}{OPTIMIZER}"), format!("{role}{SCHEDULE}"));
        let both = marks.counters.contains_key(&schedule) && theirs.counters.contains_key(&schedule);
        match (both, still(&optimizer), still(&schedule)) {
            (true, true, false) => Some(optimizer),
            (true, false, true) => Some(schedule),
            _ => None,
        }
    })?;
    let detail = format!(
        "its {} counts as many steps as in step {before}, and the rest moved on: its files may be of that step",
        words(&half)
    );
    Some(Finding::warning("counters_stand_still", detail))
}

/// Counters of the training state that both steps have, with both counts.
fn pairs<'a>(marks: &'a StepCounters, theirs: &'a StepCounters) -> impl Iterator<Item = (&'a str, u64, u64)> {
    let both = |(name, ours): (&'a String, &u64)| Some((name.as_str(), *ours, *theirs.counters.get(name)?));
    marks
        .counters
        .iter()
        .filter(|(name, _)| *name != BATCHES)
        .filter_map(both)
}

/// Turns `actor.optimizer` into `optimizer of the actor`.
fn words(name: &str) -> String {
    match name.split_once('.') {
        Some((role, what)) => format!("{what} of the {role}"),
        None => name.to_owned(),
    }
}

fn unit(name: &str, count: u64) -> String {
    let unit = if name.ends_with(OPTIMIZER) { "update" } else { "step" };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
