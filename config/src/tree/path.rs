//! Dotted paths: `a.b`, `a[b].c`, `a.0`.

/// Splits a path into its parts. Brackets are another spelling of a dot: `a[b].c` is `a`, `b`, `c`.
pub fn split_path(path: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let head = path.find('[').map_or(path, |at| &path[..at]);
    let mut rest = &path[head.len()..];
    let head = match head.strip_suffix('.') {
        Some(shorter) if rest.starts_with('[') => shorter,
        _ => head,
    };
    if !(head.is_empty() && rest.starts_with('[')) {
        parts.extend(head.split('.').map(str::to_owned));
    }
    while let Some(first) = rest.chars().next() {
        let (part, after) = match (first, rest.find(']')) {
            ('[', Some(end)) => (&rest[1..end], &rest[end + 1..]),
            ('.', _) => cut(&rest[1..]),
            _ => cut(rest),
        };
        parts.push(part.to_owned());
        rest = after;
    }
    parts
}

fn cut(text: &str) -> (&str, &str) {
    // An unmatched opening bracket belongs to the name.
    let from = usize::from(text.starts_with('['));
    match text[from..].find(['.', '[']) {
        Some(end) => text.split_at(from + end),
        None => (text, ""),
    }
}

/// Joins a child's name to its parent's path.
pub fn join_path(parent: &str, child: &str) -> String {
    if parent.is_empty() {
        child.to_owned()
    } else {
        format!("{parent}.{child}")
    }
}

/// Parses a list index: digits only.
pub(crate) fn index(part: &str) -> Option<usize> {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        part.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::split_path;

    #[test]
    fn paths_split_like_omegaconf() {
        for (path, parts) in [
            ("a.b", vec!["a", "b"]),
            ("a[b]", vec!["a", "b"]),
            ("a[b].c", vec!["a", "b", "c"]),
            ("[a].b", vec!["a", "b"]),
            ("a[0][1]", vec!["a", "0", "1"]),
            ("a", vec!["a"]),
            ("", vec![""]),
            ("a..b", vec!["a", "", "b"]),
        ] {
            assert_eq!(split_path(path), parts, "{path}");
        }
    }
}
