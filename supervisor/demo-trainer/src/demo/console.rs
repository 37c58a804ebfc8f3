//! Output of the demo trainer. As with Python, a lost reader is an exception.

use std::io::{self, Write as _};

use super::failure::Failure;

/// Prints a line on stdout at once.
pub fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| lost(&e))
}

/// Draws the progress bar on stderr, over the one before it.
pub fn draw_progress(step: u64, total: u64) -> Result<(), Failure> {
    let done = (step * 10 / total.max(1)) as usize;
    let bar = format!(
        "{}{}",
        "█".repeat(done.min(10)),
        " ".repeat(10usize.saturating_sub(done))
    );
    let percent = step * 100 / total.max(1);
    let mut err = io::stderr().lock();
    write!(
        err,
        "\rTraining Progress: {percent:3}%|{bar}| {step}/{total} [00:00<00:00]"
    )
    .and_then(|()| if step == total { writeln!(err) } else { Ok(()) })
    .map_err(|e| lost(&e))
}

fn lost(error: &io::Error) -> Failure {
    Failure::Exception {
        class: "BrokenPipeError",
        message: format!("[Errno 32] Broken pipe: {error}"),
        function: "print",
    }
}
