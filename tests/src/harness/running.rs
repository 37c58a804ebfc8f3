//! A running `supervise`, and one that has ended.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command};

use super::{PATIENCE, Scene, send, until};

/// A running `supervise`; killed when it goes out of sight.
#[derive(Debug)]
pub struct Supervisor {
    child: Child,
    output: PathBuf,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code; `None`: by a signal.
    pub code: Option<i32>,
    /// Its lines on both outputs.
    pub text: String,
}

impl Scene {
    /// Runs a line of a shell to its end.
    #[must_use]
    pub fn shell(&self, line: &str) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.start_command(command).wait()
    }
}

impl Supervisor {
    pub(super) fn start(mut command: Command, output: PathBuf) -> Self {
        let file = File::create(&output).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        // Out of reach of what the tests' own terminal is sent.
        let child = command.process_group(0).spawn().unwrap();
        Supervisor { child, output }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Its output so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// SIGKILL, and waits for it alone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns true if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It does not end.
    #[must_use]
    #[track_caller]
    pub fn wait(self) -> Ended {
        self.wait_within(PATIENCE)
    }

    /// Waits for the end of a run that has to find out first that it hangs.
    ///
    /// # Panics
    /// It does not end.
    #[must_use]
    #[track_caller]
    pub fn wait_long(self) -> Ended {
        self.wait_within(8 * PATIENCE)
    }

    #[track_caller]
    fn wait_within(mut self, limit: std::time::Duration) -> Ended {
        match until(limit, || self.child.try_wait().unwrap().ok_or(())) {
            Ok(status) => {
                let text = self.text();
                if let Some(signal) = status.signal() {
                    panic!("supervise ended by signal {signal}:\n{text}");
                }
                Ended {
                    code: status.code(),
                    text,
                }
            }
            Err(()) => panic!("supervise does not end:\n{}", self.text()),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Its exit code is this one.
    ///
    /// # Panics
    /// It is another one.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "supervise said:\n{}", self.text);
        self
    }

    /// It printed this.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Self {
        assert!(self.text.contains(words), "{words:?} is not in:\n{}", self.text);
        self
    }
}
