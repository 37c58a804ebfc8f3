//! How a process slips away from those who started it, as inference engines and title
//! changers do: a new session, two generations apart, and a title written over the memory
//! that holds its arguments and its environment, so that neither `/proc/PID/cmdline` nor
//! `/proc/PID/environ` says where it came from. It keeps its inherited output open and a
//! heartbeat file growing.
//!
//! The two forks are two starts of the own program with a secret first argument: a program
//! that lets something go passes its arguments to [`intercept`] before all else.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

const MIDDLE: &str = "--escape-middle";
const LEAF: &str = "--escape-leaf";
const TITLE: &[u8] = b"engine::core worker";
/// Long enough for any test, short enough not to stay on a machine where a test died.
const LIFETIME: Duration = Duration::from_secs(600);

/// Starts a process that slips away; returns when it has, its heartbeat file there.
/// The file's first line is its process id; it ends by itself when the file is removed.
pub fn let_go(heartbeat: &Path) -> io::Result<()> {
    let status = Command::new(std::env::current_exe()?)
        .arg(MIDDLE)
        .arg(heartbeat)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("the process between ended with {status}")));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::metadata(heartbeat).map_or(0, |m| m.len()) == 0 {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Plays the part of an escaping process, if the arguments say so.
pub fn intercept(arguments: &[String]) -> Option<ExitCode> {
    let [part, heartbeat] = arguments else {
        return None;
    };
    let done = match part.as_str() {
        MIDDLE => leave_session(Path::new(heartbeat)),
        LEAF => live_on(Path::new(heartbeat)),
        _ => return None,
    };
    Some(if done.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn leave_session(heartbeat: &Path) -> io::Result<()> {
    nix::unistd::setsid()?;
    Command::new(std::env::current_exe()?)
        .arg(LEAF)
        .arg(heartbeat)
        .spawn()?;
    Ok(())
}

fn live_on(heartbeat: &Path) -> io::Result<()> {
    retitle(TITLE)?;
    let mut file = OpenOptions::new().append(true).create(true).open(heartbeat)?;
    writeln!(file, "{}", std::process::id())?;
    let end = Instant::now() + LIFETIME;
    while Instant::now() < end && heartbeat.exists() {
        thread::sleep(Duration::from_millis(50));
        file.write_all(b".")?;
    }
    Ok(())
}

/// Writes a title over this process's arguments and environment, where `/proc` reads them.
///
/// The process's own memory is written through `/proc/self/mem`. Its variables read as
/// unset or empty from then on.
pub fn retitle(title: &[u8]) -> io::Result<()> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let fields = stat.rsplit_once(')').ok_or_else(wrong)?.1.split_whitespace();
    // Fields 48 to 51 of the line: where arguments and environment begin and end.
    let bounds: Vec<u64> = fields.skip(45).take(4).filter_map(|f| f.parse().ok()).collect();
    let [arguments, _, _, end] = bounds[..] else {
        return Err(wrong());
    };
    let length = usize::try_from(end.saturating_sub(arguments)).map_err(|_| wrong())?;
    let mut text = vec![0; length];
    for (byte, letter) in text.iter_mut().zip(title) {
        *byte = *letter;
    }
    OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")?
        .write_all_at(&text, arguments)?;
    let name = title.get(..title.len().min(15)).unwrap_or(title);
    fs::write("/proc/self/comm", name)
}
