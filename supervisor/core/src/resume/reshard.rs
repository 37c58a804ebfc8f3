//! Steps saved by another number of ranks: resharded if the settings say so.

use super::step::{LoadedParts, allowed, from_loaded};
use super::{ResumeChoice, is_elsewhere};
use crate::checkpoint::reshard::ReshardSpec;
use crate::checkpoint::{CheckpointSummary, ReshardOffer, Resumability};
use crate::event::ScanReport;
use crate::journal::reason::Reason;
use crate::journal::record::{DiskEdit, RunOutcome};
use crate::spec::RunSpec;
use crate::state::RunState;

/// How the step would have to be resharded, if the settings allow it. A step outside the root is not ours to change.
pub(super) fn wanted<'a>(spec: &RunSpec, c: &'a CheckpointSummary) -> Option<&'a ReshardOffer> {
    let unfit = matches!(c.resume, Resumability::Not { .. });
    let here = spec.policy.elastic && spec.saves.is_steps() && !is_elsewhere(&c.id);
    c.reshard.as_ref().filter(|_| unfit && here)
}

/// Reshards the step and scans again, because every start must be proven.
#[expect(
    clippy::too_many_arguments,
    reason = "one choice, all of whose parts come from the caller"
)]
pub(super) fn cut_anew(
    s: &RunState,
    spec: &RunSpec,
    scan: &ScanReport,
    c: &CheckpointSummary,
    reshard: &ReshardOffer,
    care: bool,
    foreign: bool,
    mut reasons: Vec<Reason>,
) -> ResumeChoice {
    let (from, to) = (reshard.from, reshard.to);
    if let Some(why) = hinder(s, spec, c, reshard) {
        reasons.insert(0, Reason::new("does_not_fit", why.clone()));
        let outcome = RunOutcome::Deterministic { why };
        return ResumeChoice::Refuse { outcome, reasons };
    }
    let lost = match allowed(spec, c, &reshard.lost) {
        Ok(lost) => lost,
        Err((outcome, reason)) => {
            reasons.insert(0, reason);
            return ResumeChoice::Refuse { outcome, reasons };
        }
    };
    let text = format!(
        "{} was saved by {from} ranks and this run has {to}: it is cut anew for them (supervisor.elastic); as it is it goes aside",
        c.id
    );
    reasons.push(Reason::new("reshard", text));
    let cut = ReshardSpec {
        ckpt: c.id.clone(),
        step: c.step,
        pins: c.pins,
        from,
        to,
    };
    let loaded = LoadedParts {
        holds: &c.holds,
        every: &c.contents,
        lost,
        pins: c.pins,
        put_away: vec![DiskEdit::Reshard(cut)],
    };
    from_loaded(s, spec, scan, c, loaded, care, foreign, reasons)
}

/// Why it is not resharded, although it could be.
fn hinder(s: &RunState, spec: &RunSpec, c: &CheckpointSummary, reshard: &ReshardOffer) -> Option<String> {
    if let Some(d) = s.derivation(c).filter(|d| d.of.to == reshard.to) {
        return Some(format!(
            "{} was cut anew for {} ranks already, from one of {}, and is told to be one of {} again: this is a bug in supervise; the original was moved aside",
            c.id, d.of.to, d.of.from, reshard.from
        ));
    }
    (!spec.indivisible.is_empty()).then(|| {
        format!(
            "{} was saved by {} ranks and could be cut anew for the {} of this run, but the trainer divides by them and cannot: {}. Nothing was changed",
            c.id,
            reshard.from,
            reshard.to,
            spec.indivisible.join("; ")
        )
    })
}
