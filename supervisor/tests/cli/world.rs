//! A directory with a home of its own, in which the program is run.

use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::process::{Command, Stdio};

/// A world that is gone with the test.
pub(crate) struct World {
    _keep: tempfile::TempDir,
    dir: Utf8PathBuf,
}

/// Output of the program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The exit code is this one and the errors hold all of these.
    #[track_caller]
    pub(crate) fn refuses(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is missing in {self:#?}");
        }
        assert!(!self.err.contains("panicked"), "{self:#?}");
    }

    /// The exit code is this one and the output holds all of these.
    #[track_caller]
    pub(crate) fn tells(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for part in parts {
            assert!(self.out.contains(part), "{part:?} is missing in {self:#?}");
        }
    }

    /// The output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap()).unwrap();
        Self { _keep: keep, dir }
    }

    pub(crate) fn dir(&self) -> &Utf8Path {
        &self.dir
    }

    pub(crate) fn path(&self, name: &str) -> Utf8PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Utf8PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The program in this world, to be given arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_supervise"));
        command
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("TZ", "UTC")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, &[])
    }

    pub(crate) fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Said {
        Self::said(self.command().args(args).envs(env.iter().copied()))
    }

    /// Run in a directory of this world.
    pub(crate) fn run_in(&self, dir: &str, args: &[&str]) -> Said {
        Self::said(self.command().current_dir(self.path(dir)).args(args))
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

/// Copies a checkpoint of the fixtures.
pub(crate) fn copy_fixture(name: &str, to: &Utf8Path) {
    let from = Utf8Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures")
        .join(name);
    copy_dir(&from, to);
}

fn copy_dir(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}
