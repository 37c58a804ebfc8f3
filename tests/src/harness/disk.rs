//! File systems that misbehave: a FUSE pass-through with switchable faults, a tiny tmpfs.
//!
//! Both need root, and the first one FUSE. Where they cannot be had a test says so and passes; under `CI=true`
//! it fails, so that a pipeline that should prove them cannot lose them in silence.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Scene, until};

/// Why a file system cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Refusal {
    /// For this reason.
    #[must_use]
    pub fn new(why: &str) -> Self {
        Self(why.to_owned())
    }

    /// Says that a test proves nothing here.
    ///
    /// # Panics
    /// Under `CI=true`.
    pub fn tell(&self, test: &str) {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "{test} cannot run: {self}"
        );
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {self}");
    }
}

/// A mounted file system; unmounted when it goes.
#[derive(Debug)]
pub struct Mount {
    /// Place where it is seen.
    pub point: PathBuf,
    /// Place where its files lie really (the same place for a tmpfs).
    pub backing: PathBuf,
    control: PathBuf,
    server: Option<Child>,
}

impl Mount {
    /// A pass-through to a folder of the scene, with faults by [`Mount::faults`].
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub fn faulty(scene: &Scene, name: &str) -> Result<Mount, Refusal> {
        need_root()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/faultfs.py");
        let has_binding = Command::new("/usr/bin/python3")
            .args(["-c", "import fusepy"])
            .stderr(Stdio::null())
            .status();
        if !has_binding.is_ok_and(|s| s.success()) || !Path::new("/dev/fuse").exists() {
            return Err(Refusal(
                "FUSE or its Python binding is missing (tests/testbed/install.sh)".to_owned(),
            ));
        }
        let mut mount = Mount {
            point: scene.path(name),
            backing: scene.path(&format!("{name}.backing")),
            control: scene.path(&format!("{name}.control")),
            server: None,
        };
        for folder in [&mount.point, &mount.backing] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(&mount.control, "").unwrap();
        let log = fs::File::create(scene.path(&format!("{name}.log"))).unwrap();
        let serve = Command::new("/usr/bin/python3")
            .arg(script)
            .args([&mount.backing, &mount.point, &mount.control])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        mount.server = Some(serve.unwrap());
        mount.await_mounted()?;
        Ok(mount)
    }

    /// A tmpfs of so many bytes.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub fn tiny(scene: &Scene, name: &str, bytes: u64) -> Result<Mount, Refusal> {
        Self::memory(scene, name, &format!("size={bytes}"))
    }

    /// A tmpfs of so many files and directories, its own among them.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub fn few_files(scene: &Scene, name: &str, files: u64) -> Result<Mount, Refusal> {
        Self::memory(scene, name, &format!("size=1g,nr_inodes={files}"))
    }

    fn memory(scene: &Scene, name: &str, size: &str) -> Result<Mount, Refusal> {
        need_root()?;
        let point = scene.path(name);
        fs::create_dir(&point).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tmpfs"])
            .arg(&point)
            .stderr(Stdio::null())
            .status();
        if !done.is_ok_and(|s| s.success()) {
            return Err(Refusal("a tmpfs cannot be mounted here".to_owned()));
        }
        Ok(Mount {
            backing: point.clone(),
            control: point.clone(),
            point,
            server: None,
        })
    }

    /// Fills a [`Mount::tiny`] to its last byte, also where the journal of this run kept something back; the file that does it.
    ///
    /// Nothing is given back meanwhile: who waits for room would take it.
    #[must_use]
    pub fn fill(&self, run_dir: &Path) -> PathBuf {
        let ballast = self.point.join("ballast");
        let mut file = fs::File::create(&ballast).unwrap();
        let block = [0; 4096];
        while file.write_all(&block).is_ok() {}
        while fs::File::create(run_dir.join("journal.reserve")).is_ok() && file.write_all(&block).is_ok() {}
        ballast
    }

    /// Makes files in a [`Mount::few_files`] until no more can be made.
    #[must_use]
    pub fn use_up_files(&self) -> Vec<PathBuf> {
        let names = (0..).map(|n| self.point.join(format!("ballast-{n}")));
        names.take_while(|path| fs::File::create(path).is_ok()).collect()
    }

    fn await_mounted(&mut self) -> Result<(), Refusal> {
        let server = self.server.as_mut().unwrap();
        let point = self.point.display().to_string();
        until(Duration::from_secs(60), || {
            if server.try_wait().unwrap().is_some() {
                return Ok(false);
            }
            let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
            let there = mounts.lines().any(|l| l.split(' ').nth(1) == Some(&point));
            there.then_some(true).ok_or(())
        })
        .ok()
        .filter(|there| *there)
        .map(|_| ())
        .ok_or_else(|| Refusal("FUSE cannot mount here".to_owned()))
    }

    /// From now on these faults and no others, one per line: `OP ACTION [PART OF A PATH]`.
    pub fn faults(&self, lines: &str) {
        let draft = self.control.with_extension("draft");
        fs::write(&draft, lines).unwrap();
        fs::rename(draft, &self.control).unwrap();
    }
}

pub(super) fn need_root() -> Result<(), Refusal> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Refusal("mounting needs root".to_owned())),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = fs::write(&self.control, "");
        }
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.point)
            .stderr(Stdio::null())
            .status();
        if let Some(server) = &mut self.server {
            // It ends with its mount; a request that hangs could keep it.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
