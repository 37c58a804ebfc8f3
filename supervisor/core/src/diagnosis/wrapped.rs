//! Lines that a container's runtime or a logger writes as JSON: what the program printed stands inside.

use serde_json::Value;

/// Keys of the words, of the level and of the time in a record of a logger.
const WORDS: [&str; 2] = ["message", "msg"];
const LEVELS: [&str; 4] = ["level", "severity", "levelname", "log_level"];
const TIMES: [&str; 4] = ["time", "timestamp", "ts", "asctime"];

/// The lines inside, each behind its time; `None`: it is a line as it was printed.
pub(super) fn lines(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = line.trim_ascii();
    if !line.starts_with(b"{\"") || !line.ends_with(b"}") {
        return None;
    }
    let record: Value = serde_json::from_slice(line).ok()?;
    let text = |key: &&str| record.get(key)?.as_str();
    let (words, level) = match (record.get("log").and_then(Value::as_str), record.get("stream")) {
        (Some(words), Some(_)) => (words, ""),
        _ => (WORDS.iter().find_map(text)?, LEVELS.iter().find_map(text)?),
    };
    // A level below an error says that the line tells of no failure; standard output has one as well.
    let warns = level.to_ascii_lowercase().starts_with("warn");
    let time = TIMES.iter().find_map(text).filter(|t| is_time(t));
    let opening = match (time, warns) {
        (_, true) => "WARNING: ".to_owned(),
        (Some(time), false) => format!("{time} "),
        (None, false) => String::new(),
    };
    let inside = words.trim_end_matches(['\n', '\r']).split('\n');
    Some(inside.map(|l| format!("{opening}{l}").into_bytes()).collect())
}

/// A date and a time of day, as a prefix of a line has them.
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
        let warned = r#"{"level":"warning","msg":"No space left on device","ts":1.5}"#;
        assert_eq!(inside(warned).unwrap(), ["WARNING: No space left on device"]);
        for other in [
            "{'loss': 1.0}",
            r#"{"loss": 1.0, "step": 3}"#,
            r#"{"prompt": "x", "message": "CUDA out of memory"}"#,
            r#"{"log":"#,
            "KeyError: 'x'",
        ] {
            assert_eq!(inside(other), None, "{other}");
        }
    }
}
