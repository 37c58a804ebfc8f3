//! Packages of the interpreter that will run the trainer: it is queried once, with a deadline.
//!
//! Neither the trainer nor torch is imported. Versions come from package metadata, but the location that the trainer
//! would be imported from, and the version file there, take precedence: a source checkout in the working directory or
//! in PYTHONPATH wins over an installed package, and has no metadata. User code runs only if it runs at every start
//! of this interpreter: `sitecustomize`, `usercustomize` and `.pth` files.

use crate::process::capture::{CaptureCommand, CaptureError, CapturedOutput, capture};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::time::Duration;
use supervise_trainers::TrainerAdapter;
use supervise_trainers::python_command::{PythonArgv, PythonCommand, SHEBANG_LIMIT, python_command, shebang};
use supervise_trainers::registry::adapters;

/// Time limit: a cold start from a network file system takes seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest output: an answer is a kilobyte, but the interpreter's startup may print something before it.
const OUTPUT: usize = 256 << 10;
/// Bytes of its standard error that are shown, the last ones.
const ERRORS: usize = 4 << 10;
const PATH_LIMIT: usize = 256;
/// Directories that are searched for programs if the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const TEXT: usize = 1024;
const MARK: &str = "supervise-interpreter:";

const BESIDE: [&str; 5] = ["ray", "torch", "megatron-core", "hydra-core", "omegaconf"];

/// The query. Its own imports skip the working directory, where a file may have any name.
const ASK: &str = r#"
import sys
path = sys.path[:]
if len(sys.argv) > 1 and path: path[0] = sys.argv[1]
sys.path = path[1:]
import importlib.metadata as metadata, importlib.util as util, json, os
sys.path = path
def version(name):
    try: return str(metadata.version(name))
    except Exception: return None
def source(name):
    try:
        spec = util.find_spec(name)
        places = list(spec.submodule_search_locations or [])
        at = os.path.abspath(places[0] if places else os.path.dirname(spec.origin))
    except Exception: return None
    try:
        with open(os.path.join(at, "version", "version"), "rb") as file: text = file.read(64).decode("ascii").strip()
    except Exception: text = None
    return {"at": at, "version": text}
def absent(name):
    try: return util.find_spec(name) is None
    except Exception: return False
package, *names = "@names@".split()
found = {name: version(name) for name in names}
print("\nsupervise-interpreter:" + json.dumps({"program": sys.executable, "python": sys.version.split()[0],
    "packages": {name: at for name, at in found.items() if at}, package: source(package), "absent": absent(package)}), flush=True)
"#;

/// Answer of an interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonInfo {
    pub program: String,
    pub python: String,
    pub packages: BTreeMap<String, String>,
    #[serde(skip)]
    pub package: String,
    /// Where each trainer's package would be imported from; `None`: it cannot be imported.
    #[serde(flatten)]
    pub sources: BTreeMap<String, Option<PackageSource>>,
    /// The trainer is certainly not installed for this interpreter, so calling it fails.
    #[serde(default)]
    pub absent: bool,
}

/// A package as it would be imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSource {
    pub at: String,
    /// Content of its own version file.
    pub version: Option<String>,
}

impl PythonInfo {
    /// Where the trainer's package would be imported from; `None`: it cannot be imported.
    #[must_use]
    pub fn source(&self) -> Option<&PackageSource> {
        self.sources.get(&self.package)?.as_ref()
    }

    /// The version of the trainer that would run; `None` if it cannot be imported or has no version.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        let source = self.source()?;
        let own = source.version.as_deref().filter(|v| !v.is_empty());
        own.or_else(|| self.packages.get(&self.package).map(String::as_str))
    }
}

/// Queries the interpreter that a command starts, in the directory and environment of the launch. `package`: the
/// trainer's.
///
/// # Errors
/// Why it is unknown, for the operator.
pub fn ask(
    command: &[String],
    cwd: &Utf8Path,
    env: &BTreeMap<String, String>,
    package: &str,
) -> Result<PythonInfo, String> {
    let python = find(command, cwd, env)?;
    let mut all = env.clone();
    all.extend(python.env.iter().cloned());
    // Do not write bytecode beside the user's files for this.
    all.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    let env: Vec<(String, String)> = all.into_iter().collect();
    let mut argv = python.words.clone();
    argv.extend(python.flags.iter().cloned());
    argv.extend(["-c".to_owned(), question(package)]);
    if let Some(script) = &python.script {
        let dir = cwd.join(script);
        argv.push(dir.parent().unwrap_or(cwd).to_string());
    }
    let errand = CaptureCommand {
        input: &[],
        argv: &argv,
        env: &env,
        cwd: cwd.as_str(),
        limit: PATIENCE,
        output: OUTPUT,
        errors: ERRORS,
        stop: None,
    };
    let name = python.words.join(" ");
    let said = capture(&errand).map_err(|e| told(&name, &e))?;
    let mut said = understand(&said, package).map_err(|why| format!("`{name}` {why}"))?;
    // `uv run` and the like may prepare the environment at the real call, which ours told them not to. A single word,
    // such as a script of pyenv, chooses by directory and environment, which are those of the launch.
    said.absent &= python.words.len() == 1;
    Ok(said)
}

/// The query about a package, and about all others that matter.
fn question(package: &str) -> String {
    let trainers = adapters().filter_map(TrainerAdapter::package);
    let names: Vec<&str> = trainers.chain(BESIDE).collect();
    ASK.replace("@names@", &format!("{package} {}", names.join(" ")))
}

fn told(name: &str, e: &CaptureError) -> String {
    format!("`{name}` was asked for the versions of its packages: {e}")
}

/// The interpreter of a command, if its first words or its program's first line show it.
///
/// # Errors
/// Why it is unknown, for the operator.
pub fn find(command: &[String], cwd: &Utf8Path, env: &BTreeMap<String, String>) -> Result<PythonArgv, String> {
    let (program, set, script) = match python_command(command) {
        PythonCommand::Python(python) => return Ok(python),
        PythonCommand::Unknown(why) => return Err(why),
        PythonCommand::Script { program, env, script } => (program, env, script),
    };
    let mut with = env.clone();
    with.extend(set.iter().cloned());
    let path = which(&program, cwd, &with).ok_or_else(|| format!("`{program}` is not found"))?;
    let mut start = Vec::new();
    // Opening anything other than a regular file could block.
    let plain = path.is_file();
    let file = plain.then(|| File::open(&path)).and_then(Result::ok);
    if let Some(file) = file {
        let limit = u64::try_from(SHEBANG_LIMIT).unwrap_or(u64::MAX);
        // A file that cannot be read is not a script.
        let _ = file.take(limit).read_to_end(&mut start);
    }
    let line = shebang(&start).ok_or_else(|| format!("`{program}` is not a Python script"))?;
    match python_command(&line) {
        PythonCommand::Python(mut python) => {
            python.env.splice(0..0, set);
            python.script = script.map(|s| if s == program { path.into_string() } else { s });
            Ok(python)
        }
        _ => Err(format!(
            "`{program}` is a script of `{}`, and starts what it likes",
            line.join(" ")
        )),
    }
}

fn which(program: &str, cwd: &Utf8Path, env: &BTreeMap<String, String>) -> Option<Utf8PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program));
    }
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let mut tried = path.split(':').take(PATH_LIMIT).map(|dir| cwd.join(dir).join(program));
    let runs = |p: &Utf8PathBuf| nix::unistd::access(p.as_std_path(), nix::unistd::AccessFlags::X_OK).is_ok();
    tried.find(|p| p.is_file() && runs(p))
}

/// Parses the answer. The interpreter's startup may print something before it.
fn understand(said: &CapturedOutput, package: &str) -> Result<PythonInfo, String> {
    if !said.status.is_success() {
        let errors = String::from_utf8_lossy(&said.errors);
        let last = errors
            .lines()
            .rev()
            .find(|l| !l.trim().is_empty())
            .unwrap_or("without a word");
        let how = said.status;
        return Err(format!(
            "ended with {how} when it was asked for the versions of its packages: {}",
            last.trim()
        ));
    }
    let output = String::from_utf8_lossy(&said.output);
    let answer = output.lines().rev().find_map(|l| l.strip_prefix(MARK));
    let read = answer.and_then(|text| serde_json::from_slice::<PythonInfo>(text.as_bytes()).ok());
    read.map(|said| PythonInfo {
        package: package.to_owned(),
        ..said
    })
    .filter(is_bounded)
    .ok_or_else(|| "did not answer when it was asked for the versions of its packages".to_owned())
}

fn is_bounded(said: &PythonInfo) -> bool {
    let plain = |text: &str| text.len() <= TEXT && !text.chars().any(char::is_control);
    let source = said.sources.values().flatten();
    plain(&said.program)
        && plain(&said.python)
        && said
            .packages
            .iter()
            .all(|(name, version)| plain(name) && plain(version))
        && source
            .clone()
            .all(|s| plain(&s.at) && s.version.as_deref().is_none_or(plain))
}
