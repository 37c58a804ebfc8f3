//! Values inside a text: where one ends, and which are none.

/// Values that are none.
pub(super) const EMPTY: [&str; 6] = ["null", "None", "none", "true", "false", "***"];

/// Place where a value without quotes ends.
pub(super) fn ends(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '\\' | '`' | ',' | ';' | '<' | '>' | '{' | '}' | '(' | ')' | '[' | ']' | '|' | '\x1b'
        )
}
