//! A worker that does one thing wrong, or right, for tests of the host.
//!
//!     fake_worker exit CODE                 ends at once
//!     fake_worker sleep SECONDS             sleeps, then ends with 0
//!     fake_worker spam BYTES                writes that much to stdout, then ends with 0
//!     fake_worker ignore-term               says `ready`, ignores SIGTERM and SIGINT, sleeps
//!     fake_worker daemonize FILE            lets a hidden process go (see `escape`), ends with 0
//!     fake_worker hop LINES HOPS FOLDER     starts lines of processes that fork to get away (see `hoppers`), sleeps
//!     fake_worker print LINE…               prints lines, ends with 0
//!     fake_worker error CODE LINE…          prints lines on stderr, ends with CODE
//!     fake_worker segv                      ends by SIGSEGV
//!     fake_worker close-stdout-and-sleep    closes its outputs, sleeps
//!     fake_worker listen NAME               takes an abstract name, says `ready`, sleeps

use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use supervise_tests::{escape, hoppers};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = escape::intercept(&arguments) {
        return code;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match act(&words) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            let _ = writeln!(io::stderr(), "fake_worker: {e}");
            ExitCode::from(64)
        }
    }
}

fn act(words: &[&str]) -> io::Result<u8> {
    match words {
        ["exit", code] => number(code),
        ["sleep", seconds] => {
            let seconds: f64 = number(seconds)?;
            let duration = Duration::try_from_secs_f64(seconds).map_err(io::Error::other)?;
            thread::sleep(duration);
            Ok(0)
        }
        ["spam", bytes] => spam(number(bytes)?).map(|()| 0),
        ["ignore-term"] => {
            // Blocked before a thread exists, so the signals stay pending for ever.
            SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]).thread_block()?;
            print("ready")?;
            sleep_for_ever()
        }
        ["daemonize", file] => escape::let_go(Path::new(file)).map(|()| 0),
        ["hop", lines, hops, folder] => {
            hoppers::start(number(lines)?, number(hops)?, Path::new(folder))?;
            print("ready")?;
            sleep_for_ever()
        }
        ["print", lines @ ..] => lines.iter().try_for_each(|l| print(l)).map(|()| 0),
        ["error", code, lines @ ..] => {
            lines.iter().try_for_each(|l| writeln!(io::stderr(), "{l}"))?;
            number(code)
        }
        // The first signal only takes the standard library's own handler away.
        ["segv"] => loop {
            kill(Pid::this(), Signal::SIGSEGV)?;
        },
        ["close-stdout-and-sleep"] => {
            nix::unistd::close(io::stdout().as_raw_fd())?;
            nix::unistd::close(io::stderr().as_raw_fd())?;
            sleep_for_ever()
        }
        ["listen", name] => {
            let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
            print("ready")?;
            sleep_for_ever()
        }
        _ => Err(io::Error::other(format!("unknown arguments {words:?}"))),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("{text} is not a number")))
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Numbered lines of 64 bytes, so that a reader can tell what is missing.
fn spam(bytes: u64) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in 0..bytes / 64 {
        writeln!(out, "{line:010} {}", "x".repeat(52))?;
    }
    out.write_all("y".repeat((bytes % 64) as usize).as_bytes())?;
    out.flush()
}

fn sleep_for_ever() -> ! {
    loop {
        thread::park();
    }
}
