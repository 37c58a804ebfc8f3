//! For a command whose checkpoints are unknown: what is not protected, and a command that would protect it.
//!
//! The command is only proposed if preparing it here finds a known trainer with a checkpoint root.

use super::request::{Learning, PrepareRequest};
use super::{discover, path::absolute};
use crate::path_access;
use crate::render::proposed;
use crate::run_order::PreparedRun;
use camino::Utf8Path;
use supervise_core::checkpoint::Finding;
use supervise_trainers::plain::PLAIN;
use supervise_trainers::registry;
use supervise_trainers::started_file::started_file;

/// The code of the finding.
pub const PLAIN_CODE: &str = "plain_command";
const TRAINER: &str = "supervisor.trainer=";
/// Number of bytes of a script that are read.
const SCRIPT: u64 = 256 << 10;
/// Maximum number of files in a command that are tried.
const FILES: usize = 4;

/// Adds the protecting command to the finding about a plain command.
pub(super) fn tell(request: &PrepareRequest, prepared: &mut PreparedRun) {
    if prepared.order.spec.trainer != PLAIN {
        return;
    }
    let cwd = prepared.order.spec.cwd.clone();
    let found = candidates(request, &cwd).into_iter().find(protects);
    let order = &prepared.order;
    if request.fresh && order.hook(&order.spec, &order.spec.command).is_none() {
        let why = "nothing is known of this command's checkpoints, so none are moved aside";
        prepared.notes.push(format!("ignored: --fresh: {why}"));
    }
    let order = &prepared.order;
    let how = match found {
        Some(request) => format!("to protect it: {}", proposed(&request.again(&["run"], &[]))),
        None if order.hook(&order.spec, &order.spec.command).is_some() => format!(
            "if it trains on {}, that is seen while it runs: from then on its steps are proven, and a restart resumes",
            registry::seen_trainers()
        ),
        None => format!(
            "no command is known that would protect it: that takes {}, a declaration of its trainer (`supervise trainer`), or a loop that calls supervise.saved() (--set supervisor.trainer=loop)",
            registry::frameworks()
        ),
    };
    for finding in prepared.findings.iter_mut().filter(|f| f.code == PLAIN_CODE) {
        let detail = format!("{}; {how}", finding.detail);
        *finding = Finding::warning(PLAIN_CODE, detail);
    }
}

/// The same run with a trainer, in the order of trial.
fn candidates(request: &PrepareRequest, cwd: &Utf8Path) -> Vec<PrepareRequest> {
    let quiet = PrepareRequest {
        learning: Learning::Known,
        asking: false,
        acts: false,
        quiet: true,
        shows_notes: true,
        no_recovery: false,
        set: request
            .set
            .iter()
            .filter(|s| !s.starts_with(TRAINER))
            .cloned()
            .collect(),
        ..request.clone()
    };
    let with = |set: &[String]| {
        let mut other = quiet.clone();
        other.set.extend(set.iter().cloned());
        other
    };
    let auto = with(&[format!("{TRAINER}auto")]);
    let mut out = vec![quiet.clone(), auto];
    if request.config.is_none() {
        let files = yaml_files(&request.command);
        let there = files.filter(|file| path_access::is_file(&absolute(cwd, Utf8Path::new(file))));
        out.extend(there.take(FILES).map(|file| PrepareRequest {
            config: Some(file.into()),
            ..quiet.clone()
        }));
    }
    if let Some(root) = output_dir(&request.command, cwd) {
        out.push(with(&[format!("{TRAINER}hf"), format!("supervisor.root={root}")]));
    }
    out
}

/// Returns true if preparing it finds a known trainer and its checkpoints.
fn protects(request: &PrepareRequest) -> bool {
    let resolved = discover(request.clone()).and_then(|d| d.known()?.resolve()?.check());
    resolved.is_ok_and(|c| c.resolved.out.kind != PLAIN && c.resolved.root.is_some())
}

/// Arguments that may be the trainer's YAML: `x.yaml`, `--config=x.yaml`, `config=x.yaml`.
fn yaml_files(command: &[String]) -> impl Iterator<Item = &str> {
    let words = command.iter().map(|w| w.rsplit('=').next().unwrap_or(w));
    words.filter(|w| w.ends_with(".yaml") || w.ends_with(".yml"))
}

/// The literal output directory in a script of Hugging Face's Trainer, if the script resumes on its own.
fn output_dir(command: &[String], cwd: &Utf8Path) -> Option<String> {
    let script = started_file(command).filter(|f| f.path.ends_with(".py"))?;
    let (text, _) = path_access::read_small(&cwd.join(script.path), SCRIPT).ok()?;
    let trains = ["import transformers", "from transformers", "from trl", "import trl"];
    let is_trainer = trains.iter().any(|words| text.contains(words)) && text.contains("resume_from_checkpoint");
    let literal = text.split("output_dir").skip(1).find_map(|rest| {
        let rest = rest.trim_start().strip_prefix('=')?.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let text = rest.get(1..)?.split(quote).next()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
        (!text.is_empty() && text.chars().all(plain)).then(|| text.to_owned())
    });
    literal.filter(|_| is_trainer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_that_a_command_leads_to_are_found() {
        let command = ["x", "--config=a.yaml", "b.yml", "c.yaml.txt"].map(str::to_owned);
        assert_eq!(yaml_files(&command).collect::<Vec<_>>(), ["a.yaml", "b.yml"]);
        let dir = tempfile::tempdir().unwrap();
        let cwd = Utf8Path::from_path(dir.path()).unwrap();
        let read = |text: &str| {
            std::fs::write(cwd.join("t.py"), text).unwrap();
            output_dir(&["python3".to_owned(), "t.py".to_owned()], cwd)
        };
        let trainer = "from transformers import Trainer\nt.train(resume_from_checkpoint=True)\n";
        assert_eq!(
            read(&format!("{trainer}A(output_dir = 'out/x')")).as_deref(),
            Some("out/x")
        );
        assert_eq!(read(&format!("{trainer}A(output_dir=where)")), None);
        assert_eq!(read("from transformers import Trainer\nA(output_dir='o')"), None);
    }
}
