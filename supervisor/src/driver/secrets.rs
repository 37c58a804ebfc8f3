//! Events without secrets: what is decided, journaled and shown rests on them.
//!
//! A worker may print its token, a cluster may answer with an address that holds a password. Such words are hidden before
//! anything else sees the event, so that the state of this term and the one that is folded from its journal are the same.

use serde_json::Value;
use supervise_config::redact_text;
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
    let Ok(text) = serde_json::to_string(&kind) else {
        return kind;
    };
    if redact_text(&text) == text {
        return kind;
    }
    let Ok(mut value) = serde_json::from_str(&text) else {
        return kind;
    };
    hide(&mut value, false);
    serde_json::from_value(value).unwrap_or(kind)
}

fn hide(value: &mut Value, is_words: bool) {
    match value {
        Value::String(text) if is_words => *text = redact_text(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, is_words)),
        Value::Object(fields) => {
            for (name, field) in fields {
                // Names nest: words may stand below words, and never lose that again.
                hide(field, is_words || WORDS.contains(&name.as_str()));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::event::Sighting;
    use supervise_core::id::{AttemptNo, WorkerId};
    use supervise_core::scan::RuleKind;

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
