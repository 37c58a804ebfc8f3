//! Hugging Face's command-line tool.

use camino::Utf8Path;
use std::io;
use std::process::{Command, ExitStatus, Stdio};

const HF: &str = "hf";

/// Runs `hf version`, to check that it is installed and works.
///
/// # Errors
/// It cannot be started.
pub fn version() -> io::Result<ExitStatus> {
    let mut command = Command::new(HF);
    command
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status()
}

/// Uploads a model's directory to a repository; the tool's messages go to standard error.
///
/// # Errors
/// It cannot be started.
pub fn upload(dir: &Utf8Path, repository: &str, private: bool) -> io::Result<ExitStatus> {
    let mut command = Command::new(HF);
    command.args(["upload", "--repo-type", "model"]);
    if private {
        command.arg("--private");
    }
    command.args(["--", repository, dir.as_str()]);
    command.stdin(Stdio::null()).stdout(io::stderr()).status()
}
