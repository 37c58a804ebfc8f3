//! `supervise install`: a systemd unit for one run, checked before it is written.

use crate::error::CliError;
use crate::exit::Exit;
use crate::prepare::{Request, prepare};
use crate::render::unit::{Unit, unit};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};

pub(super) const EXAMPLES: &str =
    "  supervise install --systemd ppo.yaml               this user's own service (as root: the system's)
  supervise install --systemd --print ppo.yaml
  supervise install --systemd --name grpo grpo.yaml -- python3 gsm8k_rl.py scheduler.type=local
";

/// Variables of this shell that decide which Python runs, and with which libraries.
const KEPT: [&str; 6] = [
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
];

/// What to do about a unit that says something else.
const HOW: &str = "--force writes over it, --name takes another name, --print shows what would be written";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write a unit of systemd
    #[arg(long, required = true)]
    systemd: bool,
    /// The trainer's own YAML
    #[arg(value_name = "TRAINER.yaml")]
    config: Utf8PathBuf,
    /// Name of the service: supervise-NAME.service [default: the YAML's name]
    #[arg(long)]
    name: Option<String>,
    /// A service of this user, which needs no root [default: unless run by root]
    #[arg(long, conflicts_with = "system")]
    user: bool,
    /// A service of the system
    #[arg(long)]
    system: bool,
    /// Print the unit; write nothing
    #[arg(long)]
    print: bool,
    /// Write over a unit of that name that says something else
    #[arg(long)]
    force: bool,
    /// The command that starts the trainer, instead of the usual one
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    debug_assert!(args.systemd);
    // What `run` would refuse is refused here, not at the next boot.
    prepare(Request {
        config: Some(args.config.clone()),
        command: args.command.clone(),
        ..Request::default()
    })?;
    let user = args.user || !args.system && supervise_host::system::effective_user() != 0;
    let name = name(&args)?;
    let unit = Unit {
        name: name.clone(),
        user,
        program: own_program()?,
        cwd: absolute(Utf8Path::new("."))?,
        config: absolute(&args.config)?,
        command: args.command,
        env: KEPT
            .into_iter()
            .filter_map(|k| Some((k.to_owned(), std::env::var(k).ok()?)))
            .collect(),
    };
    let text = unit_text(&unit)?;
    if args.print {
        super::print(&text)?;
        return Ok(Exit::Finished.code());
    }
    check(&text, &name, user)?;
    let dir = directory(user)?;
    let path = dir.join(format!("supervise-{name}.service"));
    write(&path, &text, args.force, HOW).map_err(|e| match e.exit_code() == Exit::Environment.code() {
        true => e.hint("as another user than root: --user, or --print and let root write it"),
        false => e,
    })?;
    super::print(&told(&path, &name, user))?;
    Ok(Exit::Finished.code())
}

fn unit_text(u: &Unit) -> Result<String, CliError> {
    unit(u).map_err(|why| CliError::usage(why).hint("systemd reads lines: rename what has a line break in it"))
}

/// The name as systemd may have it.
fn name(args: &Args) -> Result<String, CliError> {
    let name = args.name.as_deref().or(args.config.file_stem()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-:".contains(c);
    match name {
        "" => Err(CliError::usage(
            "--name: expected a name for the service, found an empty word",
        )),
        name if args.name.is_some() && (!name.chars().all(fits) || name.len() > 200) => Err(CliError::usage(format!(
            "--name {name}: expected up to 200 letters, digits and _ . - :"
        ))),
        name => Ok(name.chars().take(200).map(|c| if fits(c) { c } else { '-' }).collect()),
    }
}

pub(super) fn own_program() -> Result<Utf8PathBuf, CliError> {
    let exe =
        std::env::current_exe().map_err(|e| CliError::environment(format!("finding this program's own file: {e}")))?;
    Utf8PathBuf::from_path_buf(exe).map_err(|p| CliError::environment(format!("{} is not UTF-8", p.display())))
}

fn absolute(path: &Utf8Path) -> Result<Utf8PathBuf, CliError> {
    let path = camino::absolute_utf8(path).map_err(|e| CliError::usage(format!("{path}: {e}")))?;
    Ok(path.components().collect())
}

/// Directory of systemd's units of this kind.
fn directory(user: bool) -> Result<Utf8PathBuf, CliError> {
    if !user {
        return Ok("/etc/systemd/system".into());
    }
    let set = |name: &str| std::env::var(name).ok().filter(|v| v.starts_with('/'));
    let config = set("XDG_CONFIG_HOME").map(Utf8PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| Utf8PathBuf::from(home).join(".config")));
    config
        .map(|c| c.join("systemd/user"))
        .ok_or_else(|| CliError::environment("neither XDG_CONFIG_HOME nor HOME says where this user's units stand"))
}

/// Refuses what systemd itself complains of, if it is installed. It ends with 0 also for keys that it does not know.
fn check(text: &str, name: &str, user: bool) -> Result<(), CliError> {
    let failed = |e: io::Error| CliError::environment(format!("checking the unit by systemd-analyze: {e}"));
    let dir = tempfile_dir().map_err(failed)?;
    let file = format!("supervise-{name}.service");
    let said = fs::write(dir.join(&file), text).and_then(|()| {
        let mut command = Command::new("systemd-analyze");
        if user {
            command.arg("--user");
        }
        command
            .args(["verify", "--man=no"])
            .arg(dir.join(&file))
            .stdin(Stdio::null())
            .output()
    });
    let _ = fs::remove_dir_all(&dir);
    let said = match said {
        Ok(said) => said,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    // It tells of every unit that this one is ordered after, too.
    let lines = String::from_utf8_lossy(&said.stderr).into_owned();
    let wrong: Vec<String> = lines.lines().filter(|l| l.contains(&file)).map(str::to_owned).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(
            CliError::config(format!("systemd would not take {file} as it is; nothing was written")).with_lines(wrong),
        ),
    }
}

fn tempfile_dir() -> io::Result<Utf8PathBuf> {
    let base = std::env::temp_dir();
    let base =
        Utf8PathBuf::from_path_buf(base).map_err(|_| io::Error::other("the temporary directory is not UTF-8"))?;
    let dir = base.join(format!("supervise-unit-{}", std::process::id()));
    // As nobody else's: what stands there already is not ours.
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// Writes a file whole or not at all, and over another text only by `force`.
pub(super) fn write(path: &Utf8Path, text: &str, force: bool, how: &str) -> Result<(), CliError> {
    let failed = |e: io::Error| CliError::environment(format!("writing {path}: {e}"));
    match fs::read_to_string(path) {
        Ok(there) if there != text && !force => {
            return Err(
                CliError::usage(format!("{path} is there and says something else; nothing was written")).hint(how),
            );
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let new = Utf8PathBuf::from(format!("{path}.new"));
    let mut file = fs::File::create(&new).map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path))
        .map_err(|e| {
            let _ = fs::remove_file(&new);
            failed(e)
        })
}

/// The next commands.
fn told(path: &Utf8Path, name: &str, user: bool) -> String {
    let systemctl = if user { "systemctl --user" } else { "systemctl" };
    let mut out = format!(
        "{path} is written\n\n  {systemctl} daemon-reload\n  {systemctl} enable --now supervise-{name}\n  {systemctl} status supervise-{name}\n"
    );
    if user {
        out.push_str("  loginctl enable-linger        so that it goes on after a logout and starts at boot\n");
    }
    out
}
