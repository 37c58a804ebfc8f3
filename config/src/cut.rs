//! Removes one top-level block from a trainer's YAML, for a trainer that rejects keys it does not know.

use crate::error::{ConfigError, ErrorKind};
use crate::pystr;
use crate::tree::{ConfigTree, ConfigValue};
use crate::yaml::parse_trainer_yaml;

/// Returns the text without the block `key`. Its lines are left empty to keep line numbers; everything else is unchanged.
///
/// # Errors
/// The text is not YAML, or the block cannot be removed without changing the rest.
pub fn without_block(text: &str, key: &str, file: &str) -> Result<String, ConfigError> {
    let out = cut(text, key);
    let mut wanted = ConfigTree::new(parse_trainer_yaml(text, file)?);
    let block = wanted.delete(key)?;
    let same = parse_trainer_yaml(&out, file).is_ok_and(|left| shown(&left.value) == shown(&wanted.root.value));
    if same {
        return Ok(out);
    }
    Err(ConfigError::new(ErrorKind::BadValue, format!("the block `{key}` cannot be taken out of the file without changing the rest of it"))
        .from_origin(&block.origin)
        .with_hint("put what it says into supervise.yaml beside the file, or write it as lines that are indented below the key, without anchors that others use"))
}

fn shown(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Map(map) if map.is_empty() => String::new(),
        other => pystr::value(other),
    }
}

fn cut(text: &str, key: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let begins = [key.to_owned(), format!("'{key}'"), format!("\"{key}\"")]
            .iter()
            .any(|k| {
                line.strip_prefix(k.as_str())
                    .is_some_and(|rest| rest.trim_start().starts_with(':'))
            });
        let indented = line.starts_with([' ', '\t']) || line.trim().is_empty();
        inside = begins || inside && (indented || line.starts_with('#'));
        if inside && (begins || indented) {
            out.push_str(&line[line.trim_end_matches(['\r', '\n']).len()..]);
        } else {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(text: &str) -> Result<String, ConfigError> {
        without_block(text, "supervisor", "x.yaml")
    }

    #[test]
    fn only_the_lines_of_the_block_are_emptied() {
        for (before, after) in [
            (
                "a: 1\nsupervisor:\n  retries: 2\n\n  protect:\n    keep: 3\nb: on\n",
                "a: 1\n\n\n\n\n\nb: on\n",
            ),
            ("supervisor: {retries: 2}\na: 1", "\na: 1"),
            (
                "a: 1\nsupervisor:\n  x: 1\n# about b\nb: 2\n",
                "a: 1\n\n\n# about b\nb: 2\n",
            ),
            (
                "a: 1\r\n'supervisor' :\r\n  x: 1\r\nb: 2\r\n",
                "a: 1\r\n\r\n\r\nb: 2\r\n",
            ),
            (
                "a:\n  supervisor: 1\nsupervisor:\n  x: |\n    supervisor: 2\n",
                "a:\n  supervisor: 1\n\n\n\n",
            ),
            ("a: 1\nsupervisor:\n  x: 1", "a: 1\n\n"),
        ] {
            assert_eq!(without(before).unwrap(), after, "{before:?}");
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        for text in [
            "{a: 1, supervisor: {x: 1}}\n",
            "supervisor:\n  x: &x 1\na: *x\n",
            "supervisor: {x: 1,\ny: 2}\na: 1\n",
            "a: 1\n",
        ] {
            assert!(without(text).is_err(), "{text:?}");
        }
    }
}
