//! Events without secrets: what is decided, journaled and shown rests on them.
//!
//! A worker may print its token, a cluster may answer with an address that holds a password. Such words are hidden before
//! anything else sees the event, so that the state of this term and the one that is folded from its journal are the same. Whatever
//! is made of events has no secrets: the journal, `status`, `explain`, what is printed and what `on_event` is told.

use serde_json::Value;
use supervise_config::{redact_lines, redact_text};
use supervise_core::event::EventKind;

/// Fields that hold words for people. Names of steps and files, by which things are found again, are in none of them.
const WORDS: [&str; 14] = [
    "text", "why", "what", "by", "detail", "finding", "said", "note", "notes", "output", "line", "lines", "argv",
    "words",
];

/// The event with every secret in its words hidden.
pub(super) fn hidden(kind: EventKind) -> EventKind {
    // A scan holds names, sizes and verdicts of our own, and is large.
    if matches!(kind, EventKind::Checkpoints(_) | EventKind::Timer(_)) {
        return kind;
    }
    let Ok(mut value) = serde_json::to_value(&kind) else {
        return kind;
    };
    match hide(&mut value, false) {
        // By way of text, as all else is read: a reader of values would make the program larger by a thirtieth.
        true => {
            let text = serde_json::to_vec(&value).unwrap_or_default();
            serde_json::from_slice(&text).unwrap_or(kind)
        }
        false => kind,
    }
}

/// `true`: something was hidden.
fn hide(value: &mut Value, is_words: bool) -> bool {
    match value {
        Value::String(text) if is_words => replace(text, redact_text(text)),
        Value::Array(items) if is_words && items.iter().all(Value::is_string) => {
            // Lines in their order: a private key is known by its first and its last one.
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
        // Names nest: words may stand below words, and never lose that again.
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
