//! Unwraps lines that a container runtime or a logger writes as JSON.

use serde_json::Value;

/// Keys of message, level and time in a log record.
const WORDS: [&str; 2] = ["message", "msg"];
const LEVELS: [&str; 4] = ["level", "severity", "levelname", "log_level"];
const TIMES: [&str; 4] = ["time", "timestamp", "ts", "asctime"];

/// Keys of an exception besides the message, most complete first, and of its type if separate.
const RAISED: [&str; 9] = [
    "exc_info",
    "exception",
    "traceback",
    "stacktrace",
    "stack_trace",
    "exc",
    "exc_value",
    "error",
    "err",
];
const TYPES: [&str; 3] = ["exc_type", "error_type", "exception_type"];

/// The lines inside, each after its time; `None` if the line is not wrapped.
pub(super) fn lines(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = line.trim_ascii();
    if !line.starts_with(b"{\"") || !line.ends_with(b"}") {
        return None;
    }
    let record: Value = serde_json::from_slice(line).ok()?;
    let text = |key: &&str| record.get(key)?.as_str();
    let raised = RAISED.iter().find_map(text).filter(|r| !r.is_empty());
    let (words, level) = match (record.get("log").and_then(Value::as_str), record.get("stream")) {
        (Some(words), Some(_)) => (words, ""),
        // An event record without an exception is scanned as it is.
        _ => match (WORDS.iter().find_map(text), LEVELS.iter().find_map(text)?) {
            (Some(words), level) => (words, level),
            (None, level) => (raised.and(text(&"event"))?, level),
        },
    };
    // Keep only the warning level: it shows that the line reports no failure, while stdout has an info level as well.
    let warns = level.to_ascii_lowercase().starts_with("warn");
    let time = TIMES.iter().find_map(text).filter(|t| is_time(t));
    let opening = match (time, warns) {
        (_, true) => "WARNING: ".to_owned(),
        (Some(time), false) => format!("{time} "),
        (None, false) => String::new(),
    };
    let fails = |level: &str| {
        ["err", "crit", "fatal", "warn", "panic", "except"]
            .iter()
            .any(|l| level.starts_with(l))
    };
    let raised = raised
        .filter(|_| fails(&level.to_ascii_lowercase()))
        .unwrap_or_default();
    let kind = TYPES.iter().find_map(text).filter(|kind| !raised.contains(*kind));
    let raised = match kind {
        Some(kind) if !raised.is_empty() => format!("{kind}: {raised}"),
        _ => raised.to_owned(),
    };
    let inside = [words, &raised]
        .into_iter()
        .enumerate()
        .filter(|(at, t)| *at == 0 || !t.is_empty());
    let inside = inside.flat_map(|(_, t)| t.trim_end_matches(['\n', '\r']).split('\n'));
    Some(inside.map(|l| format!("{opening}{l}").into_bytes()).collect())
}

/// Returns true for a date and time as in a line prefix.
fn is_time(text: &str) -> bool {
    text.len() <= 40
        && text
            .as_bytes()
            .get(..5)
            .is_some_and(|d| d.ends_with(b"-") && d[..4].iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(line: &str) -> Option<Vec<String>> {
        let own = |l: Vec<u8>| String::from_utf8(l).unwrap();
        Some(lines(line.as_bytes())?.into_iter().map(own).collect())
    }

    #[test]
    fn what_was_printed_stands_inside_a_record() {
        let docker = r#"{"log":"  File \"a.py\"\n","stream":"stderr","time":"2026-11-20T10:00:00.123456789Z"}"#;
        assert_eq!(
            inside(docker).unwrap(),
            ["2026-11-20T10:00:00.123456789Z   File \"a.py\""]
        );
        let logger = r#"{"severity":"ERROR","message":"Traceback (most recent call last):\nKeyError: 'x'"}"#;
        assert_eq!(
            inside(logger).unwrap(),
            ["Traceback (most recent call last):", "KeyError: 'x'"]
        );
        let raised = r#"{"level":"error","message":"it failed","exc_type":"KeyError","exc":"'x'"}"#;
        assert_eq!(inside(raised).unwrap(), ["it failed", "KeyError: 'x'"]);
        let event =
            r#"{"level":"error","event":"save failed","exc_info":"Traceback (most recent call last):\nKeyError: 'x'"}"#;
        assert_eq!(
            inside(event).unwrap(),
            ["save failed", "Traceback (most recent call last):", "KeyError: 'x'"]
        );
        let warned = r#"{"level":"warning","msg":"No space left on device","ts":1.5}"#;
        assert_eq!(inside(warned).unwrap(), ["WARNING: No space left on device"]);
        for other in [
            "{'loss': 1.0}",
            r#"{"loss": 1.0, "step": 3}"#,
            r#"{"prompt": "x", "message": "CUDA out of memory"}"#,
            r#"{"log":"#,
            r#"{"level":"info","event":"step 3 done"}"#,
            "KeyError: 'x'",
        ] {
            assert_eq!(inside(other), None, "{other}");
        }
    }
}
