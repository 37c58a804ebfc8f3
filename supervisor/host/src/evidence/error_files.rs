//! The error files that torch writes: the exception that ended a rank
//! (`torch.distributed.elastic.multiprocessing.errors`). torchrun copies the file of the first rank that failed to
//! the path it was given itself.

use super::{DIRECTORY, EvidenceOrder};
use crate::io_worker::read_small;
use serde::Deserialize;
use std::collections::BTreeMap;
use supervise_core::id::WorkerId;

const FILE: u64 = 1 << 20;
const FILES: usize = 64;

#[derive(Debug, Deserialize)]
struct ErrorFile {
    message: Message,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Message {
    Raised {
        message: String,
        #[serde(default, rename = "extraInfo")]
        extra: Extra,
    },
    Text(String),
}

#[derive(Debug, Default, Deserialize)]
struct Extra {
    #[serde(default)]
    py_callstack: Option<String>,
    /// Seconds since 1970, as text.
    #[serde(default)]
    timestamp: Option<String>,
}

/// The file of a worker, in the attempt's directory.
#[must_use]
pub fn error_file(worker: u32) -> String {
    format!("{DIRECTORY}/error-{worker}.json")
}

/// The exceptions in the workers' files, the earliest first. A file without one is skipped.
pub(super) fn read(order: &EvidenceOrder) -> Vec<(WorkerId, String)> {
    let count = u32::try_from(order.workers.len()).unwrap_or(u32::MAX);
    let mut found = BTreeMap::new();
    for worker in 0..count {
        let bytes = read_small(&order.attempt.join(error_file(worker)), FILE);
        if let Some((time, text)) = bytes.ok().and_then(|bytes| parse(&bytes)) {
            found.insert((time, worker), text);
        }
        if found.len() == FILES {
            break;
        }
    }
    found
        .into_iter()
        .map(|((_, worker), text)| (WorkerId(worker), text))
        .collect()
}

fn parse(bytes: &[u8]) -> Option<(u64, String)> {
    let file: ErrorFile = serde_json::from_slice(bytes).ok()?;
    Some(match file.message {
        Message::Text(text) => (u64::MAX, text),
        Message::Raised { message, extra } => {
            let time = extra.timestamp.and_then(|t| t.parse().ok());
            (time.unwrap_or(u64::MAX), extra.py_callstack.unwrap_or(message))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traceback_is_read_or_else_the_message() {
        let raised = br#"{"message": {"message": "ValueError: x", "extraInfo":
            {"py_callstack": "Traceback (most recent call last):\nValueError: x\n", "timestamp": "1795907911"}, "errorCode": 1}}"#;
        let (time, text) = parse(raised).unwrap();
        assert_eq!((time, text.lines().count()), (1_795_907_911, 2));
        let bare = br#"{"message": {"message": "SignalException: 15"}}"#;
        assert_eq!(parse(bare), Some((u64::MAX, "SignalException: 15".to_owned())));
        assert_eq!(parse(br#"{"message": "died"}"#), Some((u64::MAX, "died".to_owned())));
        for damaged in [
            &b""[..],
            b"{",
            b"[]",
            b"{\"message\": 3}",
            b"{\"message\": {}}",
            &[0xff; 64],
        ] {
            assert_eq!(parse(damaged), None);
        }
    }
}
