//! A terminal that can be read: a window of tmux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{PATIENCE, Refusal, Scene, eventually, until};

/// Windows that were opened.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A window in which a command of a scene runs; afterwards the shell tells how it ended and how it left the terminal.
#[derive(Debug)]
pub struct Tmux {
    socket: PathBuf,
    shell: i32,
}

impl Tmux {
    /// A program of a scene on a terminal of a size.
    ///
    /// # Errors
    /// There is no tmux.
    pub fn start(scene: &Scene, size: (u16, u16), program: &Path, arguments: &[&str]) -> Result<Self, Refusal> {
        if !Path::new("/usr/bin/tmux").exists() {
            return Err(Refusal::new("there is no tmux (tests/testbed/install.sh)"));
        }
        let mut tmux = Self {
            // The server of a window that was closed may still be on its way out.
            socket: scene.path(&format!("tmux-{}", STARTED.fetch_add(1, Ordering::Relaxed))),
            shell: 0,
        };
        let mut command = scene.other(Path::new("/usr/bin/tmux"));
        command
            .arg("-S")
            .arg(&tmux.socket)
            .args(["-f", "/dev/null", "new-session", "-d", "-x", &size.0.to_string(), "-y", &size.1.to_string()])
            .args(["sh", "-c", "\"$@\"; echo \"ended with $?\"; stty -a | tr ' ' '\\n' | grep -xE -- '-?(icanon|echo);?'; exec sleep 1000", "sh"])
            .arg(program)
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8");
        assert!(command.status().unwrap().success());
        tmux.shell = tmux
            .tell(&["display-message", "-p", "#{pane_pid}"])
            .trim()
            .parse()
            .unwrap();
        Ok(tmux)
    }

    fn tell(&self, words: &[&str]) -> String {
        let mut command = Command::new("/usr/bin/tmux");
        let told = command
            .env("LC_ALL", "C.UTF-8")
            .arg("-S")
            .arg(&self.socket)
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(told.stdout).unwrap()
    }

    /// Types keys, by tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        self.tell(&[&["send-keys"], keys].concat());
    }

    /// The screen as it is now.
    #[must_use]
    pub fn screen(&self) -> String {
        self.tell(&["capture-pane", "-p"])
    }

    /// The screen once it shows something, and is drawn: nothing of it changes from one look to the next.
    ///
    /// # Panics
    /// It never does.
    #[must_use]
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.shows_all(&[text])
    }

    /// The same for several texts that are on the screen at once.
    ///
    /// # Panics
    /// It never shows them.
    #[must_use]
    #[track_caller]
    pub fn shows_all(&self, texts: &[&str]) -> String {
        let mut last = String::new();
        let found = until(PATIENCE, || {
            let before = std::mem::replace(&mut last, self.screen());
            let is_there = last == before && texts.iter().all(|text| last.contains(text));
            is_there.then(|| last.clone()).ok_or(())
        });
        found.unwrap_or_else(|()| panic!("{texts:?} never came on the screen:\n{last}"))
    }

    /// The process of the program.
    #[must_use]
    pub fn pid(&self) -> i32 {
        let children = format!("/proc/{0}/task/{0}/children", self.shell);
        eventually("the program runs", || {
            fs::read_to_string(&children)
                .ok()?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
    }

    /// It ended with this code, and the terminal is as it was.
    ///
    /// # Panics
    /// It is not.
    #[must_use]
    #[track_caller]
    pub fn ended(&self, code: i32) -> String {
        let mark = format!("ended with {code}\n");
        let mut screen = String::new();
        // What stood on the screen before says nothing about the terminal's modes now.
        let is_restored = until(PATIENCE, || {
            screen = self.screen();
            let modes: Vec<&str> = screen
                .rsplit_once(&mark)
                .map_or("", |(_, after)| after)
                .lines()
                .collect();
            (modes.contains(&"icanon") && modes.contains(&"echo"))
                .then_some(())
                .ok_or(())
        });
        assert!(is_restored.is_ok(), "{screen}");
        assert_eq!(
            self.tell(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"])
                .trim(),
            "0 1"
        );
        screen
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = Command::new("/usr/bin/tmux");
        let _ = command
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .stderr(Stdio::null())
            .status();
    }
}
