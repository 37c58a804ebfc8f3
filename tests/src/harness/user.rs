//! A scene that plays for another user than the one who runs the tests: without privileges, nothing of root's helps.

use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

use super::{Refusal, Scene};

/// Any user but root.
const USER: u32 = 1000;

impl Scene {
    /// From now on `supervise` runs without privileges, on a scene that belongs to its user.
    ///
    /// # Errors
    /// Only root can give away what it has.
    pub fn without_privileges(&mut self) -> Result<(), Refusal> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Refusal::new("it needs root to become somebody else"));
        }
        // The programs may lie where nobody else can go.
        let programs = self.path("programs");
        let copied = fs::create_dir(&programs).and_then(|()| {
            ["supervise", "demo_trainer"]
                .iter()
                .try_for_each(|name| fs::copy(self.program(name), programs.join(name)).map(|_| ()))
        });
        copied.map_err(|e| Refusal::new(&format!("the programs cannot be copied: {e}")))?;
        self.programs = programs;
        self.user = Some(USER);
        give(&self.path("")).map_err(|e| Refusal::new(&format!("the scene cannot be given away: {e}")))
    }
}

/// Gives a folder away with all that is in it.
fn give(path: &Path) -> io::Result<()> {
    lchown(path, Some(USER), Some(USER))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path())?;
        }
    }
    Ok(())
}
