//! Codes are documented, all of them and no others.

use crate::real;
use std::collections::BTreeSet;
use supervise_checkpoint::codes::{CODES, meaning};

/// Words in quotes that stand first in a call that makes a finding.
fn codes_in(source: &str) -> BTreeSet<String> {
    const CALLS: [&str; 6] = [
        "Finding::error(",
        "Finding::warning(",
        "Finding::note(",
        "damaged(",
        ": (&str, &str) = (",
        "let code = if error.verdict() == Verdict::Unknown {",
    ];
    let mut out = BTreeSet::new();
    for call in CALLS {
        for (at, _) in source.match_indices(call) {
            let rest = source[at + call.len()..].trim_start();
            if let Some((code, _)) = rest.strip_prefix('"').and_then(|r| r.split_once('"')) {
                out.insert(code.to_owned());
            }
        }
    }
    out
}

#[test]
fn every_code_in_the_source_is_documented() {
    let mut used = BTreeSet::from(["pickle_broken".to_owned()]);
    for path in real::sources() {
        used.extend(codes_in(&String::from_utf8(real::bytes(&path)).unwrap()));
    }
    let documented: BTreeSet<String> = CODES.iter().map(|(c, _)| (*c).to_owned()).collect();
    assert_eq!(used, documented);
    assert!(CODES.is_sorted());
    assert_eq!(
        meaning("zip_truncated"),
        Some("the archive has no end: the save was cut off")
    );
    assert_eq!(meaning("nothing"), None);
}
