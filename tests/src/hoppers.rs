//! Lines of processes that slip away by forking: each one forks a child and exits, in a session of its own, so that whoever
//! kills what was found mostly kills what has gone already. A line ends by itself after so many hops, and leaves a note.

#![expect(unsafe_code, reason = "fork has no safe form")]
#![expect(clippy::exit, reason = "a child of fork must not return into what its parent does")]

use nix::unistd::{ForkResult, fork, setsid};
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The lines begin when this file appears.
pub const GO: &str = "go";
/// A line that nobody has ended leaves this file.
pub const OUTLIVED: &str = "outlived";

/// Lines end without a file to begin at, too.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

/// Starts so many lines, of so many hops each.
///
/// # Errors
/// No process can be made.
pub fn start(lines: u32, hops: u32, folder: &Path) -> io::Result<()> {
    for _ in 0..lines {
        // SAFETY: this process has one thread.
        if let ForkResult::Child = unsafe { fork() }? {
            std::process::exit(i32::from(line(hops, folder).is_err()));
        }
    }
    Ok(())
}

fn line(hops: u32, folder: &Path) -> io::Result<()> {
    setsid()?;
    let until = Instant::now() + PATIENCE;
    while !folder.join(GO).exists() {
        if Instant::now() > until {
            return Ok(());
        }
        sleep(PAUSE);
    }
    for _ in 0..hops {
        // SAFETY: as above.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { .. }) => std::process::exit(0),
            Ok(ForkResult::Child) => {
                let _ = setsid();
            }
            Err(_) => sleep(PAUSE),
        }
    }
    fs::write(folder.join(OUTLIVED), "")
}
