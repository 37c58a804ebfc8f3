//! Runs a scheduler's command to its end, for its output or its error message.

use crate::process::capture::{CaptureCommand, CapturedOutput, capture};
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::time::Duration;

const OUTPUT: usize = 16 << 20;
const ERRORS: usize = 8 << 10;

/// Runs a command to its end. Returns what it printed.
///
/// # Errors
/// Its error message, or why there is none.
pub(crate) fn call(
    argv: &[&str],
    env: BTreeMap<String, String>,
    cwd: &Utf8Path,
    input: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, String> {
    let argv: Vec<String> = argv.iter().map(|w| (*w).to_owned()).collect();
    let env: Vec<(String, String)> = env.into_iter().collect();
    let said = capture(&CaptureCommand {
        input,
        argv: &argv,
        env: &env,
        cwd: cwd.as_str(),
        limit,
        output: OUTPUT,
        errors: ERRORS,
        stop: None,
    });
    match said {
        Ok(CapturedOutput { status, output, .. }) if status.is_success() => Ok(output),
        Ok(CapturedOutput { errors, .. }) => Err(format!("{}: {}", argv[0], last_words(&errors))),
        Err(e) => Err(format!("{}: {e}", argv[0])),
    }
}

fn last_words(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    match lines.as_slice() {
        [] => "it failed without a word".to_owned(),
        [.., before, last] => format!("{before}; {last}"),
        [last] => (*last).to_owned(),
    }
    .chars()
    .take(400)
    .collect()
}
