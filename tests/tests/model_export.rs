//! What is made of a checkpoint, and of a model that lies beside it: links in either are followed as far as the user named, the same bytes
//! get the same verdict from every command, and what Python does not load is not called whole.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "model_export/links.rs"]
mod links;
#[path = "model_export/loads.rs"]
mod loads;
#[path = "model_export/verdicts.rs"]
mod verdicts;

use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::process::{Command, Stdio};

/// A directory with a home of its own, in which the program is run.
struct World {
    _keep: tempfile::TempDir,
    dir: Utf8PathBuf,
}

/// Output of the program.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl World {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap()).unwrap();
        Self { _keep: keep, dir }
    }

    /// With a step that FSDP2's two ranks saved in `ppo`.
    fn with_step() -> Self {
        let world = Self::new();
        copy_fixture("verl_ppo_fsdp2_w2", &world.path("ppo"));
        world
    }

    fn path(&self, name: &str) -> Utf8PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Utf8PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn run(&self, args: &[&str]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_supervise"))
            .args(args)
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    #[track_caller]
    fn is(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }

    #[track_caller]
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

fn copy_fixture(name: &str, to: &Utf8Path) {
    copy_dir(
        &Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name),
        to,
    );
}

fn copy_dir(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(entry.path(), &target),
            false => drop(fs::copy(entry.path(), &target).unwrap()),
        }
    }
}

/// Says that a test proves nothing here; under `CI=true` that fails.
fn skipped(why: &str) {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "this cannot be tested here: {why}"
    );
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {why}\n"));
}
