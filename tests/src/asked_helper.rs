//! The supervisor's helper, asked one thing by a test that kills it meanwhile.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use supervise_core::spec::RunSpec;
use supervise_host::io_worker::{IoQuestion, IoReply, IoRequest};

/// The supervisor's helper for long work on files, not started yet.
#[must_use]
pub fn helper(supervise: &str) -> Command {
    let mut command = Command::new(supervise);
    command
        .args(["__io_worker", "work"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Asks one thing after the specification, and closes the helper's input once the last answer is there.
pub fn talk(spec: &RunSpec, ask: IoQuestion) -> impl FnOnce(&mut Child) + use<> {
    let beside = matches!(ask, IoQuestion::Keep { .. });
    let asks = [IoQuestion::Spec(Box::new(spec.clone())), ask];
    let lines: Vec<String> = (1..)
        .zip(asks)
        .map(|(id, ask)| serde_json::to_string(&IoRequest { id, ask }).unwrap() + "\n")
        .collect();
    move |child: &mut Child| {
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in lines {
                // One that is killed reads nothing more.
                if input.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let last = match serde_json::from_str(&line) {
                    Ok(IoReply::Kept { .. }) => true,
                    Ok(IoReply::Done { id: 2, answer }) => !beside || answer.is_err(),
                    _ => false,
                };
                if last {
                    return;
                }
            }
        });
    }
}
