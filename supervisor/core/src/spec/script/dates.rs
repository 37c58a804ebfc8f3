//! Dates, times and hashes in the name of a directory, which a script changes at each start.

use regex::Regex;
use std::sync::OnceLock;

/// At least six digits, with separators allowed, or seven of a hash, at the start of a word.
const STAMP: &str = r"(^|[^0-9A-Za-z])(?:[0-9](?:[-_:.T]?[0-9]){5,}|[0-9a-f]{7,})";

/// Returns true if two roots differ only in dates, times and hashes. A shorter counter may mean another training, so it
/// counts as a difference.
#[must_use]
pub fn differs_in_dates(one: &str, other: &str) -> bool {
    static FORM: OnceLock<Option<Regex>> = OnceLock::new();
    let form = FORM.get_or_init(|| Regex::new(STAMP).ok());
    form.as_ref()
        .is_some_and(|form| form.replace_all(one, "$1*") == form.replace_all(other, "$1*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_date_or_a_hash_makes_no_other_root() {
        for (one, other, same) in [
            ("out/20261128_210400", "out/20261128_210512", true),
            ("out/2026-11-28T21:04:00", "out/2026-11-28T21:05:12", true),
            ("ppo_1764363840", "ppo_1764363901", true),
            ("runs/3f9c2ab1", "runs/77aa01fe", true),
            ("out/20261128T210400Z/x", "out/20261129T210400Z/x", true),
            ("out/20261128/210400", "out/20261129/210512", true),
            ("out/a", "out/b", false),
            ("out/8192", "out/16384", false),
            ("out-1", "out-2", false),
            ("lr-1e-5/20261128", "lr-1e-6/20261128", false),
            ("a/20261128_210400", "b/20261128_210400", false),
            ("mathlarge1", "mathsmall2", false),
            ("out", "", false),
        ] {
            assert_eq!(differs_in_dates(one, other), same, "{one} {other}");
        }
    }
}
