//! Scripts that start the trainer: our shims replace `python3` and the like.
//!
//! A directory of links to our own program comes first in PATH. Since `activate` puts another directory in front of
//! it, bash also gets functions of the same names, which win over PATH. A link is our program under another name
//! ([`shim`]): it checks its arguments, and for a trainer call it asks the attempt's guard, waits while the trainer
//! runs, and exits as the trainer does. Any other call executes the real program, unchanged. A shim's arguments are
//! data: read with limits, compared, shown, never executed.

mod listen;
mod mirror;
mod shim;
mod steps;
mod trainer;

pub use listen::{Recording, ScriptEvent, record};
pub use shim::{main, name_of};

use crate::disk::own_dir;
use crate::guard::protocol::WAY_VARIABLE;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use supervise_core::id::fnv64;
use supervise_core::spec::script::CallOrder;
use supervise_trainers::script_call;

/// Programs by which scripts start any trainer; also each existing `python3.N`.
const NAMES: [&str; 11] = [
    "python",
    "python3",
    "torchrun",
    "ray",
    "accelerate",
    "deepspeed",
    "uv",
    "nohup",
    "env",
    "timeout",
    "numactl",
];

fn program_names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(script_call::programs())
}

pub(crate) const SBATCH: &str = "sbatch";
/// Variable that holds the comment for submitted jobs.
const COMMENT_VARIABLE: &str = "SUPERVISE_JOB_COMMENT";

/// Names that only get a link in PATH: as a function, they would hide the tool from itself.
const NO_FUNCTIONS: [&str; 1] = ["env"];

/// Tools of the machine that no virtual environment brings: a function for a missing one would make it seem
/// installed.
const TOOLS: [&str; 4] = ["uv", "nohup", "timeout", "numactl"];

/// Minor versions of the interpreter that may have a name of their own.
const VERSIONS: std::ops::Range<u32> = 8..20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimEnv {
    bin: Utf8PathBuf,
    socket: String,
    /// Order for the trainer call; `None`: it is recorded.
    order: Option<CallOrder>,
}

/// The directories of the links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shims {
    /// In PATH: names that exist.
    bin: Utf8PathBuf,
    /// Used by the functions: all names.
    all: Utf8PathBuf,
    names: Vec<String>,
}

impl Shims {
    /// Creates the links below `above`, for programs that are found in `path`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn make(above: &Utf8Path, exe: &Utf8Path, path: &str) -> io::Result<Self> {
        let versions = VERSIONS.map(|n| format!("python3.{n}"));
        let there = |name: &String| is_there(path, name);
        let mut names: Vec<String> = program_names().map(str::to_owned).collect();
        names.retain(|name| !TOOLS.contains(&name.as_str()) || there(name));
        names.extend(versions.filter(there));
        let present: Vec<&String> = names.iter().filter(|n| there(n)).collect();
        // Another program or other names get new directories, so that running scripts are not affected.
        let key = fnv64(format!("{exe}\0{present:?}").as_bytes());
        let dir = above.join(format!("{key:016x}"));
        let shims = Self {
            bin: dir.join("bin"),
            all: dir.join("all"),
            names: names.clone(),
        };
        own_dir(above)?;
        own_dir(&dir)?;
        for (dir, names) in [(&shims.bin, present), (&shims.all, names.iter().collect())] {
            own_dir(dir)?;
            for name in names {
                link(&dir.join(name), exe)?;
            }
        }
        Ok(shims)
    }

    /// Changes an environment so that programs started in it find the links; without an order, the trainer call is
    /// recorded.
    ///
    /// # Errors
    /// The order cannot be encoded (no such case is known).
    pub fn dress(&self, env: &mut BTreeMap<String, String>, socket: &str, order: Option<CallOrder>) -> io::Result<()> {
        let path = env
            .get("PATH")
            .map_or_else(|| self.bin.to_string(), |path| format!("{}:{path}", self.bin));
        env.insert("PATH".to_owned(), path);
        for name in self.names.iter().filter(|n| !NO_FUNCTIONS.contains(&n.as_str())) {
            let file = self.all.join(name);
            env.insert(function(name), format!("() {{  '{}' \"$@\"\n}}", quoted(file.as_str())));
        }
        let way = ShimEnv {
            bin: self.bin.clone(),
            socket: socket.to_owned(),
            order,
        };
        env.insert(WAY_VARIABLE.to_owned(), serde_json::to_string(&way)?);
        Ok(())
    }
}

/// A link that shadows `sbatch`, so that each submitted job shows which run it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitter {
    bin: Utf8PathBuf,
}

impl Submitter {
    /// Creates the link below `above`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn make(above: &Utf8Path, exe: &Utf8Path) -> io::Result<Self> {
        let bin = above.join(format!("{:016x}-{SBATCH}", fnv64(exe.as_str().as_bytes())));
        own_dir(above)?;
        own_dir(&bin)?;
        link(&bin.join(SBATCH), exe)?;
        Ok(Self { bin })
    }

    /// Changes an environment so that jobs submitted in it carry this comment.
    pub fn dress(&self, env: &mut BTreeMap<String, String>, comment: String) {
        let path = env.get("PATH").map_or_else(String::new, |path| format!(":{path}"));
        env.insert("PATH".to_owned(), format!("{}{path}", self.bin));
        env.insert(COMMENT_VARIABLE.to_owned(), comment);
    }
}

fn function(name: &str) -> String {
    format!("BASH_FUNC_{name}%%")
}

fn quoted(text: &str) -> String {
    text.replace('\'', r"'\''")
}

pub(crate) fn is_there(path: &str, name: &str) -> bool {
    path.split(':')
        .filter(|dir| !dir.is_empty())
        .any(|dir| shim::is_program(&Utf8Path::new(dir).join(name)))
}

/// Creates or corrects a link atomically, since other processes may be using it.
fn link(at: &Utf8Path, exe: &Utf8Path) -> io::Result<()> {
    if fs::read_link(at).is_ok_and(|target| target == exe.as_std_path()) {
        return Ok(());
    }
    let new = at.with_file_name(format!(
        ".{}-{}",
        at.file_name().unwrap_or_default(),
        std::process::id()
    ));
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    symlink(exe, &new)?;
    fs::rename(&new, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_for_what_is_there_and_functions_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let exe = Utf8Path::new("/bin/true");
        let shims = Shims::make(dir, exe, "/bin:/usr/bin").unwrap();
        assert_eq!(Shims::make(dir, exe, "/bin:/usr/bin").unwrap(), shims);
        assert!(shims.bin.join("env").is_symlink());
        assert!(!shims.bin.join("accelerate").exists());
        assert!(shims.all.join("accelerate").is_symlink());
        // A missing tool of the machine must not seem installed.
        let bare = Shims::make(dir, exe, "/nowhere").unwrap();
        for tool in TOOLS {
            assert!(!bare.names.iter().any(|name| name == tool), "{tool}");
        }
        assert!(bare.names.iter().any(|name| name == "python3"));
        let mut env = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        shims.dress(&mut env, "name", None).unwrap();
        assert_eq!(env["PATH"], format!("{}:/bin", shims.bin));
        assert!(env["BASH_FUNC_python3%%"].starts_with("() {"));
        assert!(!env.contains_key("BASH_FUNC_env%%"));
        let way: ShimEnv = serde_json::from_str(&env[WAY_VARIABLE]).unwrap();
        assert_eq!((way.socket.as_str(), way.order), ("name", None));
    }

    #[test]
    fn one_link_stands_in_the_way_of_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let submitter = Submitter::make(dir, Utf8Path::new("/bin/true")).unwrap();
        assert_eq!(fs::read_dir(&submitter.bin).unwrap().count(), 1);
        let mut env = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        submitter.dress(&mut env, "ours".to_owned());
        assert_eq!(env["PATH"], format!("{}:/bin", submitter.bin));
        assert_eq!(env[COMMENT_VARIABLE], "ours");
    }
}
