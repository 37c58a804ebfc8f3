//! Exceptions that ended Python interpreters, as the interpreters recorded them: they show the cause if the output does
//! not.
//!
//! They are formatted like a printed traceback and matched by the same rules, so both ways lead to the same class.

use crate::id::WorkerId;
use crate::observe::stacks::PyFrame;
use serde::{Deserialize, Serialize};

const CHAIN: usize = 4;
const FRAMES: usize = 32;
/// Longest message and longest name kept, in bytes.
const MESSAGE: usize = 4000;
const NAME: usize = 400;
/// Most interpreters that are reported.
pub const ENDINGS: usize = 64;
/// Longest line about one interpreter, in bytes.
pub const LINE: usize = 256 << 10;

/// The exception that ended an interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerException {
    /// The worker it belongs to.
    pub worker: WorkerId,
    /// The exception, followed by those it was raised while handling.
    pub chain: Vec<Raised>,
}

/// An exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// Its type, with its module.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its message.
    pub message: String,
    /// Frames, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<PyFrame>,
}

/// A line as the interpreter writes it.
#[derive(Deserialize)]
struct RawException {
    pid: i32,
    chain: Vec<Raised>,
}

/// Parses lines that interpreters wrote; `worker` gives the worker of a process. Other lines are skipped.
#[must_use]
pub fn read(text: &str, worker: impl Fn(i32) -> Option<WorkerId>) -> Vec<WorkerException> {
    let mut out: Vec<WorkerException> = Vec::new();
    for line in text.lines().filter(|l| l.len() <= LINE) {
        let Ok(mut written) = serde_json::from_slice::<RawException>(line.as_bytes()) else {
            continue;
        };
        let Some(worker) = worker(written.pid).filter(|w| out.iter().all(|e| e.worker != *w)) else {
            continue;
        };
        written.chain.truncate(CHAIN);
        written.chain.iter_mut().for_each(Raised::cut);
        if !written.chain.is_empty() && out.len() < ENDINGS {
            let chain = written.chain;
            out.push(WorkerException { worker, chain });
        }
    }
    out
}

impl Raised {
    fn cut(&mut self) {
        fn cut(text: &mut String, most: usize) {
            text.truncate(text.floor_char_boundary(most));
        }
        cut(&mut self.kind, NAME);
        cut(&mut self.message, MESSAGE);
        self.frames.truncate(FRAMES);
        for frame in &mut self.frames {
            cut(&mut frame.file, NAME);
            cut(&mut frame.function, NAME);
        }
    }

    fn last_line(&self) -> String {
        match self.message.is_empty() {
            true => self.kind.clone(),
            false => format!("{}: {}", self.kind, self.message),
        }
    }
}

impl WorkerException {
    /// The exception itself, such as `ValueError: no such split`.
    #[must_use]
    pub fn words(&self) -> String {
        self.chain.first().map(Raised::last_line).unwrap_or_default()
    }

    /// The traceback, as Python prints it.
    #[must_use]
    pub fn text(&self) -> String {
        let part = |raised: &Raised| {
            let mut out = "Traceback (most recent call last):\n".to_owned();
            for f in &raised.frames {
                out.push_str(&format!("{f}\n"));
            }
            out + &raised.last_line() + "\n"
        };
        let parts: Vec<String> = self.chain.iter().rev().map(part).collect();
        parts.join("\nDuring handling of the above exception, another exception occurred:\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"pid":7,"chain":[{"type":"torch.OutOfMemoryError","message":"CUDA out of memory. Tried to allocate 2.00 GiB","frames":[{"file":"/me/train.py","line":9,"function":"step"}]},{"type":"KeyError","message":"'x'","frames":[]}]}"#;

    fn worker(pid: i32) -> Option<WorkerId> {
        (pid == 7).then_some(WorkerId(3))
    }

    #[test]
    fn an_ending_reads_as_the_traceback_that_is_printed() {
        let text = format!("nonsense\n{{\"pid\":8,\"chain\":[]}}\n{LINE}\n{LINE}\n");
        let found = read(&text, worker);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].worker, WorkerId(3));
        let text = found[0].text();
        assert!(
            text.starts_with("Traceback (most recent call last):\nKeyError: 'x'\n\nDuring"),
            "{text}"
        );
        assert!(
            text.ends_with("in step\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_ending_is_left_out_and_what_is_too_long_cut() {
        let long = "x".repeat(MESSAGE * 2);
        let frame = r#"{"file":"f","line":1,"function":"g"}"#;
        let frames = vec![frame; 100].join(",");
        let line =
            |pid: i32| format!(r#"{{"pid":{pid},"chain":[{{"type":"E","message":"{long}","frames":[{frames}]}}]}}"#);
        let found = read(&line(7), worker);
        assert_eq!(
            (found[0].chain[0].message.len(), found[0].chain[0].frames.len()),
            (MESSAGE, FRAMES)
        );
        for bad in [
            "{",
            "[]",
            "{\"pid\":7}",
            "{\"pid\":7,\"chain\":[{}]}",
            &line(9),
            &"x".repeat(super::LINE + 1),
            "\u{0}\u{fffd}",
        ] {
            assert!(read(bad, worker).is_empty());
        }
    }
}
