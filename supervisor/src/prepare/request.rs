//! Request of the command line.

use camino::Utf8PathBuf;

/// Request of the command line.
#[derive(Debug, Clone, Default)]
pub struct PrepareRequest {
    /// The trainer's YAML.
    pub config: Option<Utf8PathBuf>,
    /// `--set`, as written.
    pub set: Vec<String>,
    /// The command after `--`.
    pub command: Vec<String>,
    /// `--observe`.
    pub observe: bool,
    /// `--allow-fresh`.
    pub allow_fresh: bool,
    /// `--fresh`.
    pub fresh: bool,
    /// `--from N`.
    pub from: Option<u64>,
    /// `--no-recovery`.
    pub no_recovery: bool,
    /// True if a script may be run to learn what it starts.
    pub learning: Learning,
    /// A script that was never started by us runs only after a yes.
    pub asks_first: bool,
    /// The trainer may be asked for what only it can say: its own code runs then.
    pub asking: bool,
    /// Nothing is launched: machines that only a launch needs may be missing here.
    pub planned: bool,
    /// Nothing is said on the way.
    pub quiet: bool,
    /// Files that `--settings` names, as written; `None`: the command has no such option.
    pub settings: Option<Vec<Utf8PathBuf>>,
    /// What is prepared is launched: the programs that a named file names are started, whoever wrote it.
    pub acts: bool,
    /// The notes of the preparation are shown by the command itself.
    pub shows_notes: bool,
    /// When the scheduler ends the job that this is a part of, in seconds since 1970.
    pub ends: Option<u64>,
}

impl PrepareRequest {
    /// The same request as another command, with these values.
    pub(super) fn again(&self, command: &[&str], values: &[(&str, u64)]) -> Vec<String> {
        let mut words: Vec<String> = ["supervise"].iter().chain(command).map(ToString::to_string).collect();
        words.extend(self.config.iter().map(ToString::to_string));
        words.extend(self.no_recovery.then(|| "--no-recovery".to_owned()));
        let is_said = |text: &str| {
            values
                .iter()
                .any(|(key, _)| text.trim_start_matches('+').starts_with(key))
        };
        let others = self.set.iter().filter(|text| !is_said(text)).cloned();
        for text in others.chain(values.iter().map(|(key, value)| format!("{key}={value}"))) {
            words.extend(["--set".to_owned(), text]);
        }
        for file in self.settings.iter().flatten() {
            words.extend(["--settings".to_owned(), file.to_string()]);
        }
        if !self.command.is_empty() {
            words.push("--".to_owned());
            words.extend(self.command.iter().cloned());
        }
        words
    }
}

/// True if a script may be run to learn what it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Learning {
    /// No: only what its last start has learnt counts.
    #[default]
    Known,
    /// If no trainer of it lives.
    Start,
    /// In any case.
    Anew,
    /// It was learnt by the process that started this one, and stands on standard input.
    Given,
}
