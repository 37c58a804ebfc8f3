//! The summary at the end of a term.

use super::advice::advice;
use super::count;
use super::outcome::{outcome_in, proven_word};
use super::record::start_point;
use super::terminal::shown;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;

/// The summary at the end of a term: the outcome, and what no resume restored.
#[must_use]
pub fn last_words(s: &RunState, spec: &RunSpec) -> String {
    let mut out = match &s.outcome {
        Some(o) => format!(
            "{} (exit code {})\n",
            shown(&outcome_in(o, s)),
            s.exit_code().unwrap_or_else(|| o.exit_code())
        ),
        None => "this supervisor ends; the run has no outcome yet\n".to_owned(),
    };
    if let Some(o) = &s.outcome {
        let worker = s.attempt.as_ref().map(|a| a.blamed().map_or(0, |w| w.0));
        for line in advice(o, s, &spec.run.0, worker) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    let of = spec
        .last_step
        .or(s.progress.total)
        .map(|l| format!(" of {l}"))
        .unwrap_or_default();
    if let Some(mark) = s.progress.mark {
        out.push_str(&format!("newest {} step: {mark}{of}; ", proven_word(s)));
    }
    out.push_str(&format!(
        "{}, term {}\n",
        count(u64::from(s.attempts.0), "attempt"),
        s.term
    ));
    let resumed = s.attempt.as_ref().filter(|a| a.order.from.step().0 > 0);
    if let Some(a) = resumed {
        let mut lost: Vec<&str> = spec
            .not_restored
            .iter()
            .chain(&a.order.lost)
            .map(|k| k.words())
            .collect();
        lost.sort_unstable();
        lost.dedup();
        if !lost.is_empty() {
            out.push_str(&format!(
                "not restored at the last {}: {}\n",
                start_point(&a.order.from),
                lost.join(", ")
            ));
        }
    }
    out
}
