//! A directory that all users reach, and the program run by each of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::Refusal;

/// Whoever plants files.
pub(super) const ATTACKER: u32 = 1000;
/// A user without privileges.
pub(super) const USER: u32 = 1001;

/// A stage that is gone with the test.
pub(super) struct Stage {
    dir: tempfile::TempDir,
    user: u32,
    program: PathBuf,
}

/// All that a command said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    /// The exit code is this one, and output and errors together hold all of these.
    #[track_caller]
    pub(super) fn expect(&self, code: i32, parts: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        let all = format!("{}{}", self.out, self.err);
        for part in parts {
            assert!(all.contains(part), "{part:?} is missing in {self:#?}");
        }
        assert!(!all.contains("panicked"), "{self:#?}");
        self
    }
}

impl Stage {
    /// `None`: this is not root. `test` is told of.
    pub(super) fn new(test: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            Refusal::new("it needs root to play other users").tell(test);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("supervise-trust.").tempdir().unwrap();
        let stage = Self {
            dir,
            user: 0,
            program: env!("CARGO_BIN_EXE_supervise").into(),
        };
        // As a directory that a lab shares.
        stage.mode("", 0o777);
        stage.folder("home", 0);
        Some(stage)
    }

    /// The same for a user without privileges.
    pub(super) fn of(user: u32, test: &str) -> Option<Self> {
        let mut stage = Self::new(test)?;
        // The program may lie where nobody else can go.
        let program = stage.path("supervise");
        copy(&stage.program, &program);
        (stage.user, stage.program) = (user, program);
        stage.give("home", user);
        Some(stage)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A file of this user, mode 644.
    pub(super) fn write(&self, name: &str, text: &str, owner: u32) {
        fs::write(self.path(name), text).unwrap();
        self.mode(name, 0o644);
        self.give(name, owner);
    }

    /// A program of this user.
    pub(super) fn program(&self, name: &str, text: &str, owner: u32) -> String {
        let draft = format!("{name}.draft");
        self.write(&draft, text, owner);
        copy(&self.path(&draft), &self.path(name));
        self.give(name, owner);
        self.mode(name, 0o755);
        self.text(name)
    }

    pub(super) fn folder(&self, name: &str, owner: u32) {
        fs::create_dir_all(self.path(name)).unwrap();
        self.give(name, owner);
    }

    pub(super) fn give(&self, name: &str, owner: u32) {
        lchown(self.path(name), Some(owner), Some(owner)).unwrap();
    }

    pub(super) fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// What was executed: programs of these tests write here.
    pub(super) fn ran(&self) -> bool {
        fs::remove_file(self.path("ran")).is_ok()
    }

    /// A script's line that leaves its mark.
    pub(super) fn mark(&self) -> String {
        format!("echo x >>{}", self.text("ran"))
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args);
        self.dress(&mut command, "");
        command
    }

    fn dress(&self, command: &mut Command, dir: &str) {
        command
            .current_dir(self.path(dir))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .stdin(Stdio::null());
        if self.user != 0 {
            command.uid(self.user).gid(self.user);
        }
    }

    pub(super) fn run(&self, args: &[&str]) -> Said {
        Self::said(&mut self.command(args))
    }

    /// Run in a directory of the stage.
    pub(super) fn run_in(&self, dir: &str, args: &[&str]) -> Said {
        let mut command = self.command(args);
        command.current_dir(self.path(dir));
        Self::said(&mut command)
    }

    /// A line as a person pastes it.
    pub(super) fn paste(&self, dir: &str, line: &str) -> Said {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.dress(&mut command, dir);
        Self::said(&mut command)
    }

    fn said(command: &mut Command) -> Said {
        let output = command.output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Copies a program. A process of its own does it: what another test starts meanwhile would hold the file open for writing, and nobody
/// could execute it.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Gives a directory away with all that is in it.
pub(super) fn give_all(path: &Path, owner: u32) {
    lchown(path, Some(owner), Some(owner)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_all(&entry.unwrap().path(), owner);
        }
    }
}
