//! `supervise install`: writes a systemd unit for one run, after checking it.

use super::settings_files::SettingsFiles;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{PrepareRequest, prepare};
use crate::printer;
use crate::render::unit::{SystemdUnit, UnitTexts, unit};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::process::{Command, Stdio};

pub(super) const EXAMPLES: &str =
    "  supervise install --systemd ppo.yaml               this user's own service (as root: the system's)
  supervise install --systemd --print ppo.yaml
  supervise install --systemd --name grpo grpo.yaml -- python3 gsm8k_rl.py scheduler.type=local
";

/// Variables of this shell that decide which Python runs with which libraries.
const KEPT: [&str; 6] = [
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
];

/// Modes of a file that everybody may read, and of one for the owner only.
pub(super) const PUBLIC: u32 = 0o644;
pub(super) const PRIVATE: u32 = 0o600;

/// The hint if a different unit exists.
const HOW: &str = "--force writes over it, --name takes another name, --print shows what would be written";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write a systemd unit
    #[arg(long, required = true)]
    systemd: bool,
    /// The trainer's YAML
    #[arg(value_name = "TRAINER.yaml")]
    config: Utf8PathBuf,
    #[command(flatten)]
    settings: SettingsFiles,
    /// Name of the service: supervise-NAME.service [default: the YAML's name]
    #[arg(long)]
    name: Option<String>,
    /// Write a user service, which needs no root [default: unless run by root]
    #[arg(long, conflicts_with = "system")]
    user: bool,
    /// Write a system service
    #[arg(long)]
    system: bool,
    /// Print the unit instead of writing it
    #[arg(long)]
    print: bool,
    /// Overwrite a different unit of that name
    #[arg(long)]
    force: bool,
    /// The command that starts the trainer, instead of the default
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    debug_assert!(args.systemd);
    // Refuse now what `run` would refuse at the next boot.
    prepare(PrepareRequest {
        config: Some(args.config.clone()),
        command: args.command.clone(),
        settings: args.settings.clone().named(),
        ..PrepareRequest::default()
    })?;
    let user = args.user || !args.system && supervise_host::system::effective_user() != 0;
    let name = name(&args)?;
    let unit = SystemdUnit {
        name: name.clone(),
        user,
        program: own_program()?,
        cwd: absolute(Utf8Path::new("."))?,
        config: absolute(&args.config)?,
        settings: args
            .settings
            .files
            .iter()
            .map(|f| absolute(f))
            .collect::<Result<_, _>>()?,
        command: args.command,
        env: KEPT
            .into_iter()
            .filter_map(|k| Some((k.to_owned(), std::env::var(k).ok()?)))
            .collect(),
        secrets: settings_directory(user)?.join(format!("{name}.secrets.env")),
    };
    let texts = unit_texts(&unit)?;
    if args.print {
        if texts.secrets.is_some() {
            printer::note(&format!(
                "secrets of the command are in no unit: without --print they are written into {}, for nobody else to read",
                unit.secrets
            ));
        }
        // Printed unchanged: it holds no secret.
        super::written(printer::out_bytes(texts.unit.as_bytes()))?;
        return Ok(SuperviseExitCode::Finished.code());
    }
    check(&texts.unit, &name, user)?;
    let path = directory(user)?.join(format!("supervise-{name}.service"));
    is_another(&path, &args.config)?;
    is_another(&unit.secrets, &args.config)?;
    let as_root = |e: CliError| match e.exit_code() == SuperviseExitCode::Environment.code() {
        true => e.hint("as another user than root: --user, or --print and let root write it"),
        false => e,
    };
    if let Some(secrets) = &texts.secrets {
        // Write the files that the unit reads first.
        write(&unit.secrets, secrets, PRIVATE, args.force, HOW).map_err(as_root)?;
    }
    write(&path, &texts.unit, PUBLIC, args.force, HOW).map_err(as_root)?;
    super::print(&told(
        &path,
        texts.secrets.is_some().then_some(&unit.secrets),
        &name,
        user,
    ))?;
    Ok(SuperviseExitCode::Finished.code())
}

fn unit_texts(u: &SystemdUnit) -> Result<UnitTexts, CliError> {
    unit(u).map_err(|why| CliError::usage(why).hint("systemd reads lines: rename what has a line break in it"))
}

/// The name in the form that systemd accepts.
fn name(args: &Args) -> Result<String, CliError> {
    let name = args.name.as_deref().or(args.config.file_stem()).unwrap_or_default();
    // As systemctl shows it.
    let name = name.strip_suffix(".service").unwrap_or(name);
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

/// Directory of systemd units of this kind.
fn directory(user: bool) -> Result<Utf8PathBuf, CliError> {
    if !user {
        return Ok("/etc/systemd/system".into());
    }
    Ok(config_home()?.join("systemd/user"))
}

/// Directory of the settings of this user or of the machine.
fn settings_directory(user: bool) -> Result<Utf8PathBuf, CliError> {
    match user {
        false => Ok("/etc/supervise".into()),
        true => Ok(config_home()?.join("supervise")),
    }
}

fn config_home() -> Result<Utf8PathBuf, CliError> {
    let set = |name: &str| std::env::var(name).ok().filter(|v| v.starts_with('/'));
    let config = set("XDG_CONFIG_HOME").map(Utf8PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| Utf8PathBuf::from(home).join(".config")));
    config.ok_or_else(|| CliError::environment("neither XDG_CONFIG_HOME nor HOME says where this user's units are"))
}

/// Refuses what systemd itself warns about, if it is installed. systemd-analyze exits with 0 even for unknown keys.
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
    // It also warns about units that this one is ordered after.
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
    // Fails if the directory exists, because then it is not ours.
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// Refuses to overwrite the configuration itself under any name.
pub(super) fn is_another(path: &Utf8Path, config: &Utf8Path) -> Result<(), CliError> {
    let file = |path: &Utf8Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    match file(path) {
        Some(there) if Some(there) == file(config) => Err(CliError::usage(format!(
            "{path} is the trainer's YAML {config} itself; nothing was written"
        ))
        .hint("name another file")),
        _ => Ok(()),
    }
}

/// Returns true if a regular file exists with different content. Reads no more of it than necessary.
fn says_something_else(path: &Utf8Path, text: &str) -> Result<bool, CliError> {
    let failed = |e: io::Error| CliError::environment(format!("reading {path}: {e}"));
    let kind = match fs::metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(failed(e)),
    };
    let other = match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    };
    if let Some(other) = other {
        return Err(
            CliError::usage(format!("{path} is {other}, no regular file; nothing was written"))
                .hint("name a file; without one the text can be printed"),
        );
    }
    let mut there = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(text.len() as u64 + 1).read_to_end(&mut there))
        .map_err(failed)?;
    Ok(there != text.as_bytes())
}

/// Writes a file with this mode atomically, and replaces different content only with `force`.
pub(super) fn write(path: &Utf8Path, text: &str, mode: u32, force: bool, how: &str) -> Result<(), CliError> {
    let failed = |e: io::Error| CliError::environment(format!("writing {path}: {e}"));
    if says_something_else(path, text)? && !force {
        return Err(CliError::usage(format!("{path} is there and says something else; nothing was written")).hint(how));
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let new = Utf8PathBuf::from(format!("{path}.new"));
    // A file from an earlier try has its own mode.
    let _ = fs::remove_file(&new);
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)
        .map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path))
        .map_err(|e| {
            let _ = fs::remove_file(&new);
            failed(e)
        })
}

fn told(path: &Utf8Path, secrets: Option<&Utf8PathBuf>, name: &str, user: bool) -> String {
    let systemctl = if user { "systemctl --user" } else { "systemctl" };
    let beside = secrets.map_or_else(String::new, |file| format!(", its secrets into {file}"));
    let mut out = format!(
        "{path} is written{beside}\n\n  {systemctl} daemon-reload\n  {systemctl} enable --now supervise-{name}\n  {systemctl} status supervise-{name}\n"
    );
    if user {
        out.push_str("  loginctl enable-linger        so that it goes on after a logout and starts at boot\n");
    }
    out
}
