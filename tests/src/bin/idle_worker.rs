//! A worker that only says when it started: it appends a line `monotonic_ns pid rank` to
//! the file named by `STAMPS`, then sleeps until it is ended.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::process::ExitCode;

use nix::time::{ClockId, clock_gettime};

fn main() -> ExitCode {
    let Ok(path) = std::env::var("STAMPS") else {
        return ExitCode::from(2);
    };
    let rank = std::env::var("RANK").unwrap_or_else(|_| "0".to_owned());
    if stamp(&path, &rank).is_err() {
        return ExitCode::from(3);
    }
    loop {
        std::thread::park();
    }
}

fn stamp(path: &str, rank: &str) -> io::Result<()> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let nanoseconds = now.tv_sec() * 1_000_000_000 + now.tv_nsec();
    // One write, so that lines of several workers do not mix.
    let line = format!("{nanoseconds} {} {rank}\n", std::process::id());
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)?
        .write_all(line.as_bytes())
}
