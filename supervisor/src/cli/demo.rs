//! `supervise demo`: trains a small network twice, undisturbed and broken four ways, and compares the final weights.
//!
//! Everything it does is a command that is printed first. Without `--keep`, no file and no list of runs remembers it.

mod directory;
mod outcome;

use super::install::own_program;
use crate::error::{CliError, ErrorKind};
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::words::{shell_word, shell_words};
use camino::{Utf8Path, Utf8PathBuf};
use directory::DemoDir;
use futures_util::future::{Either, select};
use outcome::{DemoComparison, DemoOutcome};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use supervise_core::event::signal_name;
use supervise_host::process::kill::signal_process;
use supervise_host::process::proc_stat;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};

pub(super) const EXAMPLES: &str = "  supervise demo
  supervise demo --keep demo     keeps both runs, to try the other commands on
";

pub(super) const EXITS: [SuperviseExitCode; 6] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Different,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Interrupted,
    SuperviseExitCode::Terminated,
];

const EXAMPLE: &str = include_str!("../../../examples/configs/demo.yaml");
/// The program in the example's command; the one in PATH may be another.
const PROGRAM: &str = "[supervise,";
const ROOT: &str = "default_local_dir: demo-run/checkpoints";

const UNDISTURBED: [&str; 6] = [
    "run",
    "demo.yaml",
    "--set",
    "demo.faults=[]",
    "--set",
    "trainer.default_local_dir=undisturbed/checkpoints",
];
const FAULTED: [&str; 2] = ["run", "demo.yaml"];
const HISTORY: [&str; 2] = ["history", "demo.yaml"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Create this directory and keep both runs in it
    #[arg(long, value_name = "DIR")]
    keep: Option<Utf8PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let program = own_program()?;
    let dir = match &args.keep {
        Some(path) => DemoDir::kept(path)?,
        None => DemoDir::temporary()?,
    };
    let config = dir.path().join("demo.yaml");
    std::fs::write(&config, config_for(&program, dir.path()))
        .map_err(|e| CliError::environment(format!("{config} cannot be written: {e}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::environment(format!("no event loop: {e}")))?;
    let comparison = runtime.block_on(play(&program, &dir))?;
    printer::out(&format!("\n{}", comparison.text()));
    match &args.keep {
        Some(kept) => printer::out(&format!(
            "\nNow try:\n  supervise explain {0}\n  supervise checkpoints {0}\n  supervise serve\n",
            shell_word(kept.join("demo.yaml").as_str())
        )),
        None => printer::note(&format!(
            "{} is deleted; `supervise demo --keep DIR` keeps both runs, to try other commands on",
            dir.path()
        )),
    }
    Ok(match comparison.complaints().is_empty() {
        true => SuperviseExitCode::Finished.code(),
        false => SuperviseExitCode::Different.code(),
    })
}

/// The example with absolute paths, so that other commands may name it from any directory.
fn config_for(program: &Utf8Path, dir: &Utf8Path) -> String {
    let quoted = |path: &Utf8Path| serde_json::Value::from(path.as_str()).to_string();
    let root = quoted(&dir.join("broken/checkpoints"));
    EXAMPLE
        .replace(PROGRAM, &format!("[{},", quoted(program)))
        .replace(ROOT, &format!("default_local_dir: {root}"))
}

async fn play(program: &Utf8Path, dir: &DemoDir) -> Result<DemoComparison, CliError> {
    let mut signals = signals().map_err(|e| CliError::environment(e.to_string()))?;
    let mut stage = DemoStage {
        program,
        dir,
        signals: &mut signals,
    };
    printer::out(&format!(
        "Train a small network in four processes, undisturbed, for the weights to compare with:\n\n$ cd {}\n",
        shell_word(dir.path().as_str())
    ));
    stage.successful(&UNDISTURBED).await?;
    printer::out(
        "\nThe same training, broken four times: a rank is killed, all ranks are killed during a save, \
         a rank raises an exception, a bit of a saved checkpoint flips:\n\n",
    );
    // If it fails, the history shows why.
    stage.command(&FAULTED).await?;
    printer::out("\nWhat each attempt did, and what its end cost:\n\n");
    stage.successful(&HISTORY).await?;
    Ok(DemoComparison {
        undisturbed: DemoOutcome::read(&dir.path().join("undisturbed")),
        faulted: DemoOutcome::read(&dir.path().join("broken")),
    })
}

struct DemoStage<'a> {
    program: &'a Utf8Path,
    dir: &'a DemoDir,
    signals: &'a mut UnboundedReceiver<SignalKind>,
}

impl DemoStage<'_> {
    async fn successful(&mut self, words: &[&str]) -> Result<(), CliError> {
        match self.command(words).await? {
            status if status.success() => Ok(()),
            status => Err(
                CliError::environment(format!("`supervise {}` failed: {status}", words.join(" ")))
                    .hint("its output above says why; `supervise doctor` checks this machine"),
            ),
        }
    }

    /// Prints a command and runs it.
    async fn command(&mut self, words: &[&str]) -> Result<ExitStatus, CliError> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        printer::out(&format!("$ supervise {}\n", shell_words(&words)));
        let mut command = Command::new(supervise_host::process::own_program(self.program.as_std_path()));
        command
            .args(&words)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            // Failures on purpose are no reason to page anyone.
            .env("SUPERVISE_ON_EVENT__COMMAND", "null")
            .env("SUPERVISE_ON_EVENT__WEBHOOK", "null");
        if !self.dir.is_kept() {
            command.env("XDG_STATE_HOME", self.dir.path().join("state"));
        }
        self.until_exit(command).await
    }

    /// Stops the command on a signal. From a terminal it got a Ctrl-C too, and the second one makes it stop at once.
    async fn until_exit(&mut self, mut command: Command) -> Result<ExitStatus, CliError> {
        let failed = |e: std::io::Error| CliError::environment(format!("running {}: {e}", self.program));
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let ended = pin!(child.wait());
        match select(ended, pin!(self.signals.recv())).await {
            Either::Left((status, _)) => status.map_err(failed),
            Either::Right((kind, ended)) => {
                if let Some(stat) = pid.and_then(proc_stat) {
                    signal_process(stat.proc_ref(), libc::SIGINT).map_err(failed)?;
                }
                ended.await.map_err(failed)?;
                Err(interrupted(kind.map_or(libc::SIGTERM, |kind| kind.as_raw_value())))
            }
        }
    }
}

fn interrupted(signal: i32) -> CliError {
    let kind = match signal {
        libc::SIGINT => ErrorKind::Interrupted,
        _ => ErrorKind::Terminated,
    };
    CliError::new(kind, format!("{} stopped the demo", signal_name(signal)))
}

fn signals() -> std::io::Result<UnboundedReceiver<SignalKind>> {
    let (tell, told) = mpsc::unbounded_channel();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut stream = signal(kind)?;
        let tell = tell.clone();
        tokio::spawn(async move { while stream.recv().await.is_some() && tell.send(kind).is_ok() {} });
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_gets_this_program_and_this_directory_with_any_path() {
        let config = config_for(Utf8Path::new("/opt/a \"b\"/supervise"), Utf8Path::new("/tmp/a: b"));
        for line in [
            r#"command: ["/opt/a \"b\"/supervise", __demo_trainer, --config, "{config}", "{overrides}"]"#,
            r#"default_local_dir: "/tmp/a: b/broken/checkpoints""#,
        ] {
            assert!(config.lines().any(|l| l.trim() == line), "{line} is not in {config}");
        }
    }
}
