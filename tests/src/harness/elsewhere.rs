//! The same files seen from elsewhere: another pid and network namespace, another mount.
//!
//! All of it needs root. What is made goes with the process, or with the value, that it was made for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::disk::{Refusal, need_root};
use super::{Scene, Supervisor};

/// Namespaces of their own for mounts, processes and the network, as a container has them; the host name is the same.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    /// The boot id that is seen in it; `None`: that of this kernel.
    pub boot: Option<&'a str>,
}

/// Brings the loopback up and shows another boot id, then runs what is named.
const ENTER: &str = r#"
ip link set lo up || exit 99
if [ -n "$1" ]; then mount --bind "$1" /proc/sys/kernel/random/boot_id || exit 99; fi
shift
"$@" &
wait $!
"#;

impl Container<'_> {
    /// Returns true if this machine lets us.
    ///
    /// # Errors
    /// Why not.
    pub fn can_be_made() -> Result<(), Refusal> {
        need_root()?;
        let tried = unshare()
            .args(["ip", "link", "set", "lo", "up"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match tried.is_ok_and(|s| s.success()) {
            true => Ok(()),
            false => Err(Refusal::new("namespaces, or a network in them, cannot be made here")),
        }
    }
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child=SIGKILL",
        "--mount-proc",
        "--",
    ]);
    command
}

impl Scene {
    /// Starts `supervise run` in a container.
    #[must_use]
    pub fn start_in(&self, container: &Container<'_>, more: &[&str]) -> Supervisor {
        let boot = container.boot.map(|text| {
            let file = self.path("boot_id");
            fs::write(&file, format!("{text}\n")).unwrap();
            file
        });
        let config = self.write_config();
        let mut command = unshare();
        command
            .args(["sh", "-c", ENTER, "sh"])
            .arg(boot.unwrap_or_default())
            .arg(self.program("supervise"))
            .arg("run")
            .arg(config)
            .args(more);
        self.start_command(command)
    }
}

/// A second mount of what is there already; unmounted when it goes.
#[derive(Debug)]
pub struct Overlay {
    /// Place where it is seen.
    pub point: PathBuf,
}

impl Overlay {
    /// The folder under another path and with another device number; what is written there is not seen below.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub fn over(scene: &Scene, name: &str, lower: &Path) -> Result<Self, Refusal> {
        need_root()?;
        // An overlay cannot stand on every file system: its upper part gets a tmpfs.
        let part = |what: &str| scene.path(&format!("{name}.{what}"));
        let point = scene.path(name);
        for dir in [&point, &part("tmpfs")] {
            fs::create_dir(dir).unwrap();
        }
        mount(&["-t", "tmpfs", "tmpfs"], &part("tmpfs"))?;
        let (upper, work) = (part("tmpfs").join("upper"), part("tmpfs").join("work"));
        fs::create_dir(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let overlay = Self { point };
        let mounted = mount(&["-t", "overlay", "-o", &options, "overlay"], &overlay.point);
        // It stays for as long as the overlay needs it.
        unmount(&part("tmpfs"));
        mounted.map(|()| overlay)
    }

    /// The folder under another path.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub fn bind(scene: &Scene, name: &str, folder: &Path) -> Result<Self, Refusal> {
        need_root()?;
        let point = scene.path(name);
        fs::create_dir(&point).unwrap();
        mount(&["--bind", folder.to_str().unwrap()], &point)?;
        Ok(Self { point })
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        unmount(&self.point);
    }
}

fn mount(how: &[&str], point: &Path) -> Result<(), Refusal> {
    let done = Command::new("mount")
        .args(how)
        .arg(point)
        .stderr(Stdio::null())
        .status();
    match done.is_ok_and(|s| s.success()) {
        true => Ok(()),
        false => Err(Refusal::new("it cannot be mounted here")),
    }
}

fn unmount(point: &Path) {
    let _ = Command::new("umount")
        .arg("-l")
        .arg(point)
        .stderr(Stdio::null())
        .status();
}
