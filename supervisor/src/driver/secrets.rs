//! Hides secrets in events, on which decisions, the journal and all output are based.
//!
//! A worker may print its token, and a cluster may answer with an address that contains a password. They are hidden before any
//! other code sees the event, so that the state of this term equals the one replayed from its journal. Everything derived from
//! events is then free of secrets: the journal, `status`, `explain`, printed lines and notifications.

use serde_json::Value;
use supervise_config::{redact_lines, redact_text};
use supervise_core::event::EventKind;

/// Fields that hold text for people. Names of steps and files, which identify things, are in none of them.
const WORDS: [&str; 14] = [
    "text", "why", "what", "by", "detail", "finding", "said", "note", "notes", "output", "line", "lines", "argv",
    "words",
];

/// The event with every secret in its texts hidden.
pub(super) fn hidden(kind: EventKind) -> EventKind {
    // A scan is large, and holds only names, sizes and our own verdicts.
    if matches!(kind, EventKind::Checkpoints(_) | EventKind::Timer(_)) {
        return kind;
    }
    let Ok(mut value) = serde_json::to_value(&kind) else {
        return kind;
    };
    match hide(&mut value, false) {
        // Through text, as everything else is parsed: deserializing from values would make the program 3 % larger.
        true => {
            let text = serde_json::to_vec(&value).unwrap_or_default();
            serde_json::from_slice(&text).unwrap_or(kind)
        }
        false => kind,
    }
}

/// Hides secrets in place. Returns true if something was hidden.
fn hide(value: &mut Value, is_words: bool) -> bool {
    match value {
        Value::String(text) if is_words => replace(text, redact_text(text)),
        Value::Array(items) if is_words && items.iter().all(Value::is_string) => {
            // In order: a private key is recognized by its first and last line.
            let safe = redact_lines(items.iter().filter_map(Value::as_str));
            let mut hidden = false;
            for (item, safe) in items.iter_mut().zip(safe) {
                if let Value::String(text) = item {
                    hidden |= replace(text, safe);
                }
            }
            hidden
        }
        Value::Array(items) => {
            let mut hidden = false;
            for item in items {
                hidden |= hide(item, is_words);
            }
            hidden
        }
        // Fields nest: everything below a text field counts as text.
        Value::Object(fields) => {
            let mut hidden = false;
            for (name, field) in fields {
                hidden |= hide(field, is_words || WORDS.contains(&name.as_str()));
            }
            hidden
        }
        _ => false,
    }
}

fn replace(text: &mut String, safe: String) -> bool {
    let differs = *text != safe;
    *text = safe;
    differs
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::event::Sighting;
    use supervise_core::event::scan::RuleKind;
    use supervise_core::id::{AttemptNo, WorkerId};

    #[test]
    fn words_lose_their_secrets_and_nothing_else_changes() {
        let seen = |text: &str| EventKind::Sighted {
            attempt: AttemptNo(1),
            means: RuleKind::Exception,
            sighting: Sighting {
                rule: "hf_abcdefghijklmnopqrstuvwx".into(),
                worker: WorkerId(0),
                line: 3,
                text: text.into(),
                number: None,
                count: u64::MAX,
            },
        };
        let secret = seen("401 for hf_abcdefghijklmnopqrstuvwx at http://me:pw@host");
        assert_eq!(hidden(secret), seen("401 for *** at http://***@host"));
        assert_eq!(hidden(seen("plain")), seen("plain"));
        let stalled = EventKind::IoStalled {
            what: "token ghp_abcdefghijklmnopqrst".into(),
        };
        assert_eq!(
            hidden(stalled),
            EventKind::IoStalled {
                what: "token ***".into()
            }
        );
    }
}
