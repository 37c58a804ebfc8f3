//! Lives of ranks: when each of them lived, by a clock that all nodes of a test have in common.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

const EVERY: Duration = Duration::from_millis(20);

/// Writes the first and the last moment of this process's life into `FOLDER/ATTEMPT.rank_R`, again and again: nobody has to see it die.
///
/// # Errors
/// The file cannot be made: another process of this attempt had this rank.
pub fn record(folder: &Path, attempt: &str, rank: usize) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = format!("{}.rank_{rank}", attempt.rsplit('/').next().unwrap_or_default());
    let file = File::create_new(folder.join(name))?;
    let first = now()?;
    write(&file, first, first)?;
    thread::spawn(move || {
        while now().and_then(|now| write(&file, first, now)).is_ok() {
            thread::sleep(EVERY);
        }
    });
    Ok(())
}

fn write(file: &File, first: u64, last: u64) -> io::Result<()> {
    file.write_all_at(format!("{first:020} {last:020}\n").as_bytes(), 0)
}

/// Milliseconds since the machine started.
fn now() -> io::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    let ms = now.tv_sec() * 1000 + now.tv_nsec() / 1_000_000;
    u64::try_from(ms).map_err(io::Error::other)
}
