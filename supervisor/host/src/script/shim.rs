//! Our program under another name, called by a script.

use super::mirror::Mirror;
use super::trainer;
use super::{COMMENT_VARIABLE, SBATCH, ShimEnv, VERSIONS, function, program_names};
use crate::address::connect;
use crate::guard::protocol::{
    CallClaim, FromGuard, FromShim, MESSAGE_LIMIT, ShimCall, ToGuard, WAY_VARIABLE, variables,
};
use crate::process::ATTEMPT_VARIABLE;
use crate::wire;
use camino::{Utf8Path, Utf8PathBuf};
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use supervise_core::event::ExitStatus;
use supervise_core::id::fnv64;
use supervise_core::spec::script::{CallOrder, CallPlace, differs_in_dates};
use supervise_trainers::code::{CalledCode, called_code};
use supervise_trainers::one_node::node_rank;
use supervise_trainers::{registry, script_call};

/// How long a call is held that was recorded or must not be made: its script is killed meanwhile.
const HELD: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(30);
/// How often, and after which pause, the trainer's exit is reported to the guard until it answers.
const REPORTS: u32 = 5;
const REPORT_AGAIN: Duration = Duration::from_millis(500);
const LOOKED_AT: i32 = 1000;
/// Variables in which a script names the node of its call.
const NODE_VARIABLES: [&str; 3] = ["PET_NODE_RANK", "NODE_RANK", "GROUP_RANK"];
/// Variables in which launchers of single ranks (torchrun's own workers, Open MPI, MPICH, Slurm) name the rank of a
/// call.
const RANK_VARIABLES: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
const SETTINGS: u64 = 1 << 20;
const SCRIPT: u64 = 256 << 10;
/// Exit codes: the shell's for a missing program, and ours for a wrong configuration and an obstacle on the machine.
const NOT_FOUND: i32 = 127;
const CONFIG: i32 = 78;
const ENVIRONMENT: i32 = 69;

/// The name that our program was called by, if it is a shim's.
#[must_use]
pub fn name_of(argv0: &OsStr) -> Option<String> {
    let name = Utf8Path::from_path(argv0.as_ref())?.file_name()?;
    let version = |text: &str| text.parse().is_ok_and(|n: u32| VERSIONS.contains(&n));
    let is_one =
        name == SBATCH || program_names().any(|n| n == name) || name.strip_prefix("python3.").is_some_and(version);
    is_one.then(|| name.to_owned())
}

/// Runs the shim; returns only if the real program does not replace us.
#[must_use]
pub fn main(name: &str, args: Vec<OsString>) -> i32 {
    if name == SBATCH {
        return submit(args);
    }
    let way: Option<ShimEnv> = std::env::var(WAY_VARIABLE)
        .ok()
        .and_then(|text| serde_json::from_slice(text.as_bytes()).ok());
    let words: Option<Vec<String>> = args.iter().map(|a| a.to_str().map(str::to_owned)).collect();
    let (Some(way), Some(words)) = (way, words) else {
        return become_real(name, args, None);
    };
    let mut call = vec![name.to_owned()];
    call.extend(words);
    match (&way.order, script_call::is_call(&call)) {
        (None, true) => record(&way, call),
        (None, false) if trains_by_code(&call) => {
            let words = supervise_config::redact_words(&call);
            match tell(&way, FromShim::Trains { words }) {
                Ok(stream) => hold(&stream),
                Err(e) => say(&format!("the call of {name} could not be told: {e}")),
            }
            CONFIG
        }
        (None, false) => {
            // Wait for the guard before the script continues, so that messages arrive in order; without an answer it
            // continues as well.
            if let Ok(stream) = tell(&way, FromShim::Passes { words: cut(&call) }) {
                wait_for_end(&stream, ANSWER);
            }
            become_real(name, args, None)
        }
        (Some(order), true) => start(name, &way, order, &call),
        // What Ray starts now outlives this call, and its workers must not find our shims.
        (Some(_), false) => become_real(name, args, (name == "ray").then_some(&way)),
    }
}

/// Returns true if the call starts a Python script that would train, which its arguments do not show.
fn trains_by_code(call: &[String]) -> bool {
    let read = |file: &String| {
        let mut text = Vec::new();
        let file = Utf8Path::new(file)
            .is_file()
            .then(|| std::fs::File::open(file).ok())??;
        file.take(SCRIPT).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    match called_code(call) {
        CalledCode::Text(text) => registry::trains_by_code(&text),
        CalledCode::Files(files) => files
            .iter()
            .filter_map(read)
            .any(|text| registry::trains_by_code(&text)),
    }
}

/// Submits a job that shows which run it belongs to. Slurm ends the job, wherever it runs, so our process marks and
/// shims are removed from its environment. A comment in the call's own arguments comes later and wins.
fn submit(mut args: Vec<OsString>) -> i32 {
    if let Ok(comment) = std::env::var(COMMENT_VARIABLE) {
        args.insert(0, format!("--comment={comment}").into());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let Some(real) = find(&path, SBATCH) else {
        say(&format!("{SBATCH}: not found in PATH"));
        return NOT_FOUND;
    };
    let is_ours = |dir: &str| is_own(&Utf8Path::new(dir).join(SBATCH));
    let without: Vec<&str> = path.split(':').filter(|dir| !is_ours(dir)).collect();
    let e = Command::new(&real)
        .args(args)
        .env("PATH", without.join(":"))
        .env_remove(COMMENT_VARIABLE)
        .env_remove(ATTEMPT_VARIABLE)
        .exec();
    say(&format!("{real}: cannot be executed: {e}"));
    NOT_FOUND
}

/// Reports the call to the recorder; the trainer is never started.
fn record(way: &ShimEnv, call: Vec<String>) -> i32 {
    let cwd = std::env::current_dir()
        .ok()
        .and_then(|dir| Utf8PathBuf::from_path_buf(dir).ok());
    let called = ShimCall {
        words: call,
        cwd: cwd.unwrap_or_else(|| "/".into()),
        env: variables(std::env::vars_os()),
        past: false,
    };
    match tell(way, FromShim::Called(Box::new(called))) {
        Ok(stream) => hold(&stream),
        Err(e) => say(&format!("the call of the trainer could not be recorded: {e}")),
    }
    CONFIG
}

/// Starts the trainer with our overrides in its call, if it is the learned call and the first of its attempt, and
/// exits as the trainer does.
fn start(name: &str, way: &ShimEnv, order: &CallOrder, call: &[String]) -> i32 {
    let by_environment = std::env::var_os("PET_MAX_RESTARTS").is_some();
    let claim = claim(call, order);
    let rank = claim.place.rank;
    let (word, filled) = match script_call::fill(call, order, by_environment) {
        Ok(filled) => (FromShim::Starts { rank, claim }, Some(filled)),
        Err(why) => {
            say(&format!("not started: {why}"));
            (FromShim::Refuses { why, claim }, None)
        }
    };
    let mut answers = match tell(way, word) {
        Ok(stream) => Answers::new(stream),
        Err(e) => {
            say(&format!("not started: the guard of this attempt does not answer: {e}"));
            return ENVIRONMENT;
        }
    };
    match (answers.next(ANSWER), filled) {
        (Some(FromGuard::MayStart), Some(filled)) => {
            for note in &filled.notes {
                say(note);
            }
            let args = filled.words.into_iter().skip(1).map(OsString::from).collect();
            match answers.next(ANSWER) {
                Some(FromGuard::Goes { call, output }) => go(name, way, order, args, call, output),
                // A guard of an older release does not ask for the exit status.
                _ => become_real(name, args, Some(way)),
            }
        }
        (Some(FromGuard::HeldBack { why }), _) => {
            say(&format!("not started: {why}"));
            CONFIG
        }
        (_, filled) => {
            if filled.is_some() {
                say("not started: the trainer was started before in this attempt, and relaunches are the supervisor's");
            }
            answers.hold();
            CONFIG
        }
    }
}

/// Starts the trainer as a child, waits for it, and reports its exit to the guard.
fn go(
    name: &str,
    way: &ShimEnv,
    order: &CallOrder,
    args: Vec<OsString>,
    call: usize,
    output: Option<Utf8PathBuf>,
) -> i32 {
    // Later calls of the same training start after the first one has trained, which may have deleted old steps.
    if let Some(step) = order.resume.as_ref().filter(|step| call == 0 && !holds_files(step)) {
        let what = format!("{step}: the script removed it before it called the trainer");
        say(&format!("not started: the step to resume from is gone: {what}"));
        if let Ok(stream) = tell(way, FromShim::Spoilt { what }) {
            wait_for_end(&stream, HELD);
        }
        return CONFIG;
    }
    let command = match real(name, args, Some(way)) {
        Ok(command) => command,
        Err(code) => {
            report(way, call, ExitStatus::Code(code));
            return code;
        }
    };
    let mut mirror = None;
    let started = trainer::HandedSignals::block().and_then(|signals| {
        mirror = output.and_then(|pipe| Mirror::start(&pipe));
        trainer::run(command, &signals)
    });
    let status = match started {
        Ok(status) => status,
        Err(e) => {
            say(&format!("{name}: cannot be started: {e}"));
            ExitStatus::Code(NOT_FOUND)
        }
    };
    if let Some(mirror) = mirror {
        mirror.finish();
    }
    report(way, call, status);
    trainer::end_like(status)
}

fn report(way: &ShimEnv, call: usize, status: ExitStatus) {
    for _ in 0..REPORTS {
        if let Ok(stream) = tell(way, FromShim::Returned { call, status })
            && Answers::new(stream).next(ANSWER).is_some()
        {
            return;
        }
        std::thread::sleep(REPORT_AGAIN);
    }
}

/// Which training, and which part of it, a call would start.
fn claim(call: &[String], order: &CallOrder) -> CallClaim {
    // A script that passes {overrides} on has ours in its call already.
    let is_ours = |word: &&String| order.ours.contains(word) || order.ahead.contains(word);
    let written: Vec<String> = call.iter().filter(|word| !is_ours(word)).cloned().collect();
    // If the script wrote the same words itself, it was learned with them.
    let root = Some(script_call::root(call)).filter(|root| *root == order.root);
    let root = root.unwrap_or_else(|| script_call::root(&written));
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let by_environment = || NODE_VARIABLES.into_iter().find_map(number);
    let is_learnt = root == order.root;
    let other = (!is_learnt && !differs_in_dates(&root, &order.root)).then(|| {
        format!(
            "the script calls another training than the one that was learned: `{root}` instead of `{}`; start one `supervise run` for each",
            order.root
        )
    });
    CallClaim {
        place: CallPlace {
            rank: RANK_VARIABLES.into_iter().find_map(number),
            node: node_rank(call).or_else(by_environment),
        },
        is_learnt,
        other,
        what: shown(call, &root),
        identity: identity(&written),
        root,
    }
}

/// The same for a repeated call: a hash of its words, its directory, and the configuration files that it names.
fn identity(call: &[String]) -> String {
    let mut all = std::env::current_dir().unwrap_or_default().into_os_string().into_vec();
    for word in call {
        all.push(0);
        all.extend_from_slice(word.as_bytes());
        let file = Utf8Path::new(word.rsplit('=').next().unwrap_or(word));
        let holds_settings = matches!(file.extension(), Some("yaml" | "yml" | "json" | "toml"));
        if holds_settings
            && file.is_file()
            && let Ok(file) = std::fs::File::open(file)
        {
            // One that cannot be read counts as empty.
            let _ = file.take(SETTINGS).read_to_end(&mut all);
        }
    }
    format!("{:016x}", fnv64(&all))
}

fn shown(call: &[String], root: &str) -> String {
    let words = cut(call).join(" ");
    let parts: Vec<String> = root.split(' ').map(str::to_owned).collect();
    match root.is_empty() || words.contains(root) {
        true => words,
        false => format!("{words} … {}", cut(&parts).join(" ")),
    }
}

/// Returns true if there is a file anywhere in this directory; one that cannot be read counts, too.
fn holds_files(dir: &Utf8Path) -> bool {
    let mut left = LOOKED_AT;
    let mut open = vec![dir.as_std_path().to_owned()];
    while let Some(dir) = open.pop() {
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return true,
        };
        for entry in entries.flatten() {
            left -= 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && left > 0 => open.push(entry.path()),
                _ => return true,
            }
        }
    }
    false
}

struct Answers {
    reader: BufReader<io::Take<UnixStream>>,
}

impl Answers {
    fn new(stream: UnixStream) -> Self {
        let limit = u64::try_from(MESSAGE_LIMIT).unwrap_or(u64::MAX);
        Self {
            reader: BufReader::new(stream.take(limit)),
        }
    }

    fn next(&mut self, within: Duration) -> Option<FromGuard> {
        let mut line = Vec::new();
        self.reader.get_ref().get_ref().set_read_timeout(Some(within)).ok()?;
        self.reader.read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(&line).ok()
    }

    /// Waits to be killed with the script: what follows the trainer in it must not run.
    fn hold(&self) {
        wait_for_end(self.reader.get_ref().get_ref(), HELD);
    }
}

fn tell(way: &ShimEnv, word: FromShim) -> io::Result<UnixStream> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let mut stream = connect(&way.socket)?.ok_or_else(gone)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(ANSWER))?;
    let line = wire::encode(&ToGuard::Shim(word))?;
    if line.len() >= MESSAGE_LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the call is too long"));
    }
    stream.write_all(&line)?;
    Ok(stream)
}

/// Waits to be killed with the script: what follows the trainer in it must not run.
fn hold(stream: &UnixStream) {
    wait_for_end(stream, HELD);
}

/// Waits until the other end closes the connection.
fn wait_for_end(mut stream: &UnixStream, limit: Duration) {
    // An error here does not change what follows.
    let _ = stream.set_read_timeout(Some(limit));
    let _ = stream.read(&mut [0; 64]);
}

fn say(what: &str) {
    // There may be no reader.
    let _ = writeln!(io::stderr(), "supervise: {what}");
}

/// The first words of a command, for messages: few, short, without secrets.
fn cut(words: &[String]) -> Vec<String> {
    // Redact before shortening: half a token is still a secret.
    let few: Vec<String> = words.iter().take(7).cloned().collect();
    let safe = supervise_config::redact_words(&few).into_iter().take(6);
    safe.map(|w| w.chars().take(120).collect()).collect()
}

/// Executes the program that PATH would have found without us. `leave`: remove everything of ours from its
/// environment.
fn become_real(name: &str, args: Vec<OsString>, leave: Option<&ShimEnv>) -> i32 {
    let mut command = match real(name, args, leave) {
        Ok(command) => command,
        Err(code) => return code,
    };
    let e = command.exec();
    say(&format!("{}: cannot be executed: {e}", command.get_program().display()));
    NOT_FOUND
}

/// The program that PATH would have found without us, or the exit code if there is none.
fn real(name: &str, args: Vec<OsString>, leave: Option<&ShimEnv>) -> Result<Command, i32> {
    let path = std::env::var("PATH").unwrap_or_default();
    let Some(real) = find(&path, name) else {
        say(&format!("{name}: not found in PATH"));
        return Err(NOT_FOUND);
    };
    let mut command = Command::new(&real);
    // Under its own path, so that an interpreter finds its virtual environment.
    command.arg0(&real).args(args);
    if let Some(way) = leave {
        let without: Vec<&str> = path.split(':').filter(|dir| *dir != way.bin).collect();
        command.env("PATH", without.join(":")).env_remove(WAY_VARIABLE);
        for (name, _) in std::env::vars_os() {
            if program_names().any(|n| name == function(n).as_str()) || is_version(&name) {
                command.env_remove(name);
            }
        }
    }
    Ok(command)
}

fn is_version(variable: &OsStr) -> bool {
    VERSIONS
        .map(|n| function(&format!("python3.{n}")))
        .any(|v| variable == v.as_str())
}

fn find(path: &str, name: &str) -> Option<Utf8PathBuf> {
    path.split(':')
        .map(|dir| Utf8Path::new(if dir.is_empty() { "." } else { dir }).join(name))
        .find(|file| is_program(file) && !is_own(file))
}

fn is_own(file: &Utf8Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let own = std::fs::metadata("/proc/self/exe").map(id).ok();
    own.is_some() && std::fs::metadata(file).map(id).ok() == own
}

pub(super) fn is_program(file: &Utf8Path) -> bool {
    file.is_file() && access(file.as_std_path(), AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_shims() {
        for (argv0, name) in [
            ("/x/python3", Some("python3")),
            ("torchrun", Some("torchrun")),
            ("python3.11", Some("python3.11")),
            ("/x/trl", Some("trl")),
            ("/x/sbatch", Some("sbatch")),
            ("python3.x", None),
            ("/bin/supervise", None),
            ("", None),
        ] {
            assert_eq!(name_of(OsStr::new(argv0)).as_deref(), name, "{argv0}");
        }
    }

    #[test]
    fn the_program_behind_ours_is_found() {
        assert_eq!(find("/nowhere:/bin", "sh").unwrap(), "/bin/sh");
        assert_eq!(find("/nowhere", "sh"), None);
    }
}
