//! Names that a checkpoint imports, checked against the settings.

use crate::adapter::ExpectedLayout;
use std::collections::BTreeSet;
use supervise_checkpoint::torch::TorchFacts;
use supervise_core::checkpoint::{Finding, FindingLevel, Verdict};

/// Names kept per step, and the most that one file lists: a full list may hide more.
const NAMES: usize = 16;

/// Names that files import beyond torch's own and the trusted ones: sorted, the first few.
pub(crate) fn not_trusted<'a>(expect: &ExpectedLayout, facts: impl Iterator<Item = &'a TorchFacts>) -> Vec<String> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut hidden = false;
    for facts in facts {
        hidden |= facts.unfamiliar.len() >= NAMES;
        names.extend(facts.unfamiliar.iter().map(String::as_str));
    }
    let trusted = |name: &str| expect.trust_globals.iter().any(|pattern| fits(pattern, name));
    let mut out: Vec<String> = names
        .into_iter()
        .filter(|name| !trusted(name))
        .map(str::to_owned)
        .collect();
    let all = expect.trust_globals.iter().any(|pattern| pattern == "*");
    if hidden && out.is_empty() && !all {
        out.push("names beyond those that are listed".to_owned());
    }
    out.truncate(NAMES);
    out
}

/// `module.name`, `module.*` for all below a module, `*`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(module) => name.starts_with(module) && (module.is_empty() || module.ends_with('.')),
        None => pattern == name,
    }
}

/// If the settings allow it, a dangerous name does not fail the step; it is still reported.
pub(crate) fn allow(expect: &ExpectedLayout, findings: &mut [Finding]) {
    if !expect.trust_unsafe {
        return;
    }
    for finding in findings.iter_mut().filter(|f| f.effect() == Verdict::Unsafe) {
        finding.level = FindingLevel::Warning;
        finding.verdict = Verdict::Whole;
        finding.detail.push_str(" (allowed by proof.trust_unsafe)");
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_all_below_a_module() {
        for (pattern, name, fit) in [
            ("a.b.C", "a.b.C", true),
            ("a.b.C", "a.b.CD", false),
            ("a.b.*", "a.b.C", true),
            ("a.b.*", "a.b.c.D", true),
            ("a.b.*", "a.bc.D", false),
            ("a.b*", "a.bc.D", false),
            ("a.*", "b.a.C", false),
            ("*", "anything.at.all", true),
        ] {
            assert_eq!(fits(pattern, name), fit, "{pattern} and {name}");
        }
    }
}
