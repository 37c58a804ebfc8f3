//! Dates, times and hashes in the name of a directory, which a script makes anew at each start.

/// Two roots that differ in dates, times or hashes alone, as a script makes them anew at each start.
pub(super) fn differs_in_a_date(one: &str, other: &str) -> bool {
    let (one, other) = (without_dates(one), without_dates(other));
    one == other
}

/// The text with a mark in the place of each date, time or hash: digits with signs between them, six at least, or seven of a hash.
fn without_dates(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_start = out.chars().last().is_none_or(|c| !c.is_ascii_alphanumeric());
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || "-_:.T".contains(c))
                .len();
        let stamp = rest
            .get(..digits)
            .unwrap_or_default()
            .trim_end_matches(|c: char| !c.is_ascii_digit());
        let hash = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || ('a'..='f').contains(&c))
                .len();
        let hash = rest.get(..hash).unwrap_or_default();
        let ends = |part: &str| {
            let after = rest.get(part.len()..).and_then(|r| r.chars().next());
            after.is_none_or(|c| !c.is_ascii_alphanumeric())
        };
        let is_stamp = first.is_ascii_digit()
            && stamp.bytes().filter(u8::is_ascii_digit).count() >= 6
            && (ends(stamp) || stamp.len() > 8);
        let is_hash = hash.len() >= 7 && ends(hash) && hash.bytes().any(|b| b.is_ascii_digit());
        let part = match (is_start, is_stamp, is_hash) {
            (true, true, _) => stamp,
            (true, false, true) => hash,
            _ => {
                out.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
                continue;
            }
        };
        out.push('*');
        rest = rest.get(part.len()..).unwrap_or_default();
    }
    out
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
            ("out/a", "out/b", false),
            ("out/8192", "out/16384", false),
            ("out-1", "out-2", false),
            ("lr-1e-5/20261128", "lr-1e-6/20261128", false),
            ("a/20261128_210400", "b/20261128_210400", false),
            ("mathlarge1", "mathsmall2", false),
            ("out", "", false),
        ] {
            assert_eq!(differs_in_a_date(one, other), same, "{one} {other}");
        }
    }
}
