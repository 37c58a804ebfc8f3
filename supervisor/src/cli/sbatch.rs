//! `supervise sbatch`: writes or submits a Slurm batch script for one run.

mod notes;

use super::install;
use super::settings_files::SettingsFiles;
use crate::environment;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::{self, BatchNeeds, PrepareRequest};
use crate::printer;
use crate::render::sbatch::{Batch, BatchError, notice, sbatch};
use crate::render::words::shell_word;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use supervise_config::{redact_text, redact_words};
use supervise_host::slurm;
use supervise_trainers::MachineCount;
use supervise_trainers::one_node::{NodePart, node_part};

pub(super) const EXAMPLES: &str = "  supervise sbatch ppo.yaml                                   print the script
  supervise sbatch ppo.yaml --submit -- --partition=gpu --time=24:00:00
  supervise sbatch ppo.yaml --output ppo.sbatch -- -A project -t 1-0
  supervise sbatch grpo.yaml -- --time=1-0 -- python3 gsm8k_rl.py scheduler.type=local
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The trainer's YAML
    #[arg(value_name = "TRAINER.yaml")]
    config: Option<Utf8PathBuf>,
    /// Override a setting, as for `run`
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    settings: SettingsFiles,
    /// Name of the job [default: the YAML's name]
    #[arg(long)]
    name: Option<String>,
    /// Write the script to this file; - is standard output
    #[arg(long, short, value_name = "FILE", conflicts_with = "submit")]
    output: Option<Utf8PathBuf>,
    /// Overwrite a different file
    #[arg(long, requires = "output")]
    force: bool,
    /// Submit the script with sbatch
    #[arg(long)]
    submit: bool,
    /// Options of sbatch, then `--` and the trainer's command
    ///
    /// These options override those that supervise writes.
    #[arg(last = true, value_name = "SBATCH OPTIONS")]
    rest: Vec<String>,
}

pub(super) fn run(args: Args) -> Result<u8, CliError> {
    let name = name(&args)?;
    let mut parts = args.rest.splitn(2, |word| word == "--").map(<[String]>::to_vec);
    let (options, trainer) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if args.config.is_none() && trainer.is_empty() {
        return Err(CliError::usage(
            "expected the trainer's YAML, or the command that starts it after a second `--`",
        ));
    }
    let request = PrepareRequest {
        config: args.config.clone(),
        set: args.set.clone(),
        settings: args.settings.clone().named(),
        command: trainer.clone(),
        ..PrepareRequest::default()
    };
    if let Some(part) = node_part(&trainer) {
        return Err(on_one_node(part, &trainer));
    }
    let needs = prepare::batch_needs(request).map_err(|e| after_the_second(e, &args))?;
    let grace = &needs.settings.grace;
    let batch = Batch {
        name,
        machines: needs.machines,
        gang: needs.gang,
        spares: spares(&needs),
        notice: notice(grace.save, grace.stop),
        origin: origin(&args, &options, &trainer),
        command: command(&args, &trainer)?,
        cwd: cwd()?,
        options,
    };
    let text = sbatch(&batch).map_err(|why| match why {
        BatchError::NoOption(_) => CliError::usage(why.to_string()).hint(behind_the_second(&args)),
        BatchError::Word(why) => CliError::usage(why),
    })?;
    if let Some(file) = to_file(&args) {
        may_stand(file, args.config.as_deref())?;
    }
    for note in notes::notes(&batch, needs.settings.gang.spares)
        .into_iter()
        .chain(needs.missing.map(missing))
    {
        printer::last_note(&note);
    }
    if args.submit {
        let job = submit(&text, &batch.cwd)?;
        super::print(&format!(
            "job {job} is submitted\n\n  squeue -j {job}\n  supervise status\n"
        ))?;
    } else if let Some(file) = to_file(&args) {
        install::write(
            file,
            &text,
            mode(&batch),
            args.force,
            "--force writes over it, without --output it is printed",
        )?;
        super::print(&format!(
            "{file} is written\n\n  sbatch {}\n",
            shell_word(file.as_str())
        ))?;
    } else {
        if redact_text(&text) != text {
            printer::note("secrets are hidden in what is printed: --output FILE writes them, --submit submits them");
        }
        super::print(&text)?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The error for a command that would start on the first node and wait there for the others.
fn on_one_node(part: NodePart, trainer: &[String]) -> CliError {
    let what = shell_word(trainer.first().map_or("the command", String::as_str));
    CliError::config(format!(
        "{what} starts the ranks of one node, and the training has {}: the job starts it on the first node only, where it would wait for the others",
        part.nodes
    ))
    .hint(format!(
        "have supervise start the ranks of all nodes: --set supervisor.gang.launcher=gang --set supervisor.gang.nodes={} --set supervisor.gang.workers=GPUS_OF_A_NODE, and the command without its launcher (python3 TRAIN.py …)",
        part.nodes
    ))
    .hint("or put srun before the command, with --ntasks-per-node=1 and a rendezvous that needs no node rank (--rdzv_backend=c10d)")
}

/// The file to write; `-` is standard output.
fn to_file(args: &Args) -> Option<&Utf8Path> {
    args.output.as_deref().filter(|file| *file != "-")
}

/// Refuses a directory that does not exist, and the run's own configuration.
fn may_stand(file: &Utf8Path, config: Option<&Utf8Path>) -> Result<(), CliError> {
    if let Some(dir) = file.parent().filter(|dir| !dir.as_str().is_empty() && !dir.is_dir()) {
        return Err(
            CliError::environment(format!("writing {file}: there is no directory {dir}")).hint(format!(
                "make it (`mkdir -p {}`), or name another file",
                shell_word(dir.as_str())
            )),
        );
    }
    config.map_or(Ok(()), |config| install::is_another(file, config))
}

/// Adapts hints: options of sbatch follow the first `--`, the command follows the second.
fn after_the_second(mut e: CliError, args: &Args) -> CliError {
    if let Some(hint) = e.hints.iter_mut().find(|hint| *hint == prepare::GIVE_A_COMMAND) {
        *hint = format!("{}; or set supervisor.command", behind_the_second(args));
    }
    e
}

fn behind_the_second(args: &Args) -> String {
    let config = args.config.as_deref().unwrap_or(Utf8Path::new("TRAINER.yaml"));
    format!("the command follows a second --: supervise sbatch {config} -- -- COMMAND")
}

fn missing(why: String) -> String {
    format!("{why}; this is looked at here, the nodes of the job may have it")
}

/// The directory that the run's paths are relative to.
fn cwd() -> Result<Utf8PathBuf, CliError> {
    let dir = std::env::current_dir().map_err(|e| CliError::environment(format!("the present directory: {e}")))?;
    Utf8PathBuf::from_path_buf(dir)
        .map_err(|dir| CliError::environment(format!("the present directory {} is not UTF-8", dir.display())))
}

/// A script with secrets in its command is private.
fn mode(batch: &Batch) -> u32 {
    let is_open = |words: &[String]| redact_words(words) == words;
    match is_open(&batch.command) && is_open(&batch.options) {
        true => install::PUBLIC,
        false => install::PRIVATE,
    }
}

/// A job name that is also a valid file name.
fn name(args: &Args) -> Result<String, CliError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let given = args.name.as_deref();
    let name = given.or(args.config.as_deref().map_or(Some("supervise"), Utf8Path::file_stem));
    let name = name.unwrap_or_default();
    match name {
        "" => Err(CliError::usage(
            "--name: expected a name for the job, found an empty word",
        )),
        name if given.is_some() && (!name.chars().all(fits) || name.len() > 200) => Err(CliError::usage(format!(
            "--name {name}: expected up to 200 letters, digits and _ . -"
        ))),
        name => Ok(name.chars().take(200).map(|c| if fits(c) { c } else { '-' }).collect()),
    }
}

/// The job starts this program the way this one was started: by name or by path.
fn command(args: &Args, trainer: &[String]) -> Result<Vec<String>, CliError> {
    let by_name = std::env::args().next().filter(|word| !word.contains('/'));
    let program = match by_name {
        Some(name) => name,
        None => install::own_program()?.into_string(),
    };
    let mut out = vec![program, "run".to_owned()];
    out.extend(said(args));
    if !trainer.is_empty() {
        out.push("--".to_owned());
        out.extend_from_slice(trainer);
    }
    Ok(out)
}

/// The command that writes the script again.
fn origin(args: &Args, options: &[String], trainer: &[String]) -> Vec<String> {
    let mut out = vec!["supervise".to_owned(), "sbatch".to_owned()];
    out.extend(said(args));
    for part in [options, trainer].iter().take(2 - usize::from(trainer.is_empty())) {
        out.push("--".to_owned());
        out.extend_from_slice(part);
    }
    out
}

fn said(args: &Args) -> impl Iterator<Item = String> {
    let sets = args.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
    let config = args.config.iter().map(Utf8PathBuf::to_string);
    config.chain(sets).chain(args.settings.words())
}

/// Only a launch over several nodes by this program can use a spare node.
fn spares(needs: &BatchNeeds) -> u32 {
    match needs.machines {
        Some(MachineCount { nodes: 2.., .. }) if needs.gang => needs.settings.gang.spares,
        _ => 0,
    }
}

fn submit(script: &str, cwd: &Utf8Path) -> Result<u64, CliError> {
    slurm::submit(script, cwd, &environment::with(&BTreeMap::new())).map_err(|why| {
        CliError::environment(format!("the job is not submitted: {why}"))
            .hint("without --submit the script is printed, with --output FILE it is written: `sbatch FILE` submits it")
    })
}
