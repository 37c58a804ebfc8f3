//! Nodes whose hardware ended an attempt: later ones avoid them if other nodes can take their place.

use crate::diagnosis::teller;
use crate::journal::record::Diagnosis;
use crate::rulebook::action::FailureAction;
use crate::rulebook::taxonomy::{Class, Family};
use crate::spec::{GangSpec, LauncherKind};
use crate::state::{Attempt, PastFailure};

/// The node of the worker that reported broken hardware.
#[must_use]
pub fn broken_node(a: &Attempt, d: &Diagnosis, gang: &GangSpec) -> Option<String> {
    let is_hardware = d.class.is_in(Family::Gpu) || d.class == Class::NodePcie;
    if d.action != FailureAction::Node || !is_hardware || gang.launcher != LauncherKind::Gang {
        return None;
    }
    let at = teller(a, &d.class)?.0.checked_div(gang.per_node())?;
    a.nodes.on.get(usize::try_from(at).ok()?).cloned()
}

/// Nodes whose hardware ended an attempt since the last configuration change, each with the class of the failure.
#[must_use]
pub fn broken_nodes(failures: &[PastFailure]) -> Vec<(String, String)> {
    let told = failures.iter().map(|f| &f.diagnosis);
    let mut nodes: Vec<(String, String)> = told
        .filter_map(|d| Some((d.node.clone()?, d.class.to_string())))
        .collect();
    nodes.sort();
    nodes.dedup_by(|a, b| a.0 == b.0);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AttemptNo;

    #[test]
    fn each_broken_node_is_named_once_with_what_it_caused() {
        let failure = |node: Option<&str>, class: Class| PastFailure {
            attempt: AttemptNo(1),
            diagnosis: Diagnosis {
                class: class.into(),
                action: FailureAction::Node,
                answer: None,
                advice: None,
                fingerprint: 1,
                step: None,
                text: String::new(),
                node: node.map(str::to_owned),
                worker: None,
                at_start: false,
            },
            trained: false,
        };
        let failures = [
            failure(Some("n2"), Class::GpuEccUncorrectable),
            failure(None, Class::MemCudaOom),
            failure(Some("n1"), Class::GpuFallenOffBus),
            failure(Some("n2"), Class::GpuEccUncorrectable),
        ];
        let named = [("n1", Class::GpuFallenOffBus), ("n2", Class::GpuEccUncorrectable)];
        assert_eq!(
            broken_nodes(&failures),
            named.map(|(n, c)| (n.to_owned(), c.code().to_owned()))
        );
    }
}
