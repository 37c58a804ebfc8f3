//! Sightings in exceptions that interpreters saved when they exited.

use super::rules::failure_rules;
use crate::event::Sighting;
use crate::event::scan::{RuleKind, Scanner};
use crate::observe::exception::WorkerException;

/// Scans the traceback of an exception as if it had been printed.
pub(super) fn sightings(of: &WorkerException) -> Vec<(RuleKind, Sighting)> {
    let Ok(mut scanner) = Scanner::new(failure_rules()) else {
        return Vec::new();
    };
    let text = of.text();
    let lines = (1..).zip(text.lines());
    let hits = lines.filter_map(|(number, line)| scanner.line(of.worker, number, line.as_bytes()));
    // The traceback has no line in the worker's output.
    let unplaced = |s: Sighting| Sighting { line: 0, ..s };
    hits.map(|hit| (hit.kind, unplaced(hit.sighting))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::WorkerId;
    use crate::observe::exception::Raised;

    #[test]
    fn an_exception_is_sighted_as_if_it_had_been_printed() {
        let raised = Raised {
            kind: "torch.OutOfMemoryError".to_owned(),
            message: "CUDA out of memory. Tried to allocate 2.00 GiB".to_owned(),
            frames: Vec::new(),
        };
        let ending = WorkerException {
            worker: WorkerId(3),
            chain: vec![raised],
        };
        let oom = |(kind, s): &(RuleKind, Sighting)| {
            *kind == RuleKind::Exception && s.line == 0 && s.text.contains("CUDA out of memory")
        };
        assert!(sightings(&ending).iter().any(oom));
    }
}
