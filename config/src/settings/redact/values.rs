//! Values in a text: where one ends, and which do not count.

/// Values that mean "none".
pub(super) const EMPTY: [&str; 6] = ["null", "None", "none", "true", "false", "***"];

/// Whether an unquoted value ends at this character.
pub(super) fn ends(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '\\' | '`' | ',' | ';' | '<' | '>' | '{' | '}' | '(' | ')' | '[' | ']' | '|' | '\x1b'
        )
}
