use camino::Utf8PathBuf;

/// What the command line requests.
#[derive(Debug, Clone, Default)]
pub struct PrepareRequest {
    pub config: Option<Utf8PathBuf>,
    /// `--set`, as written.
    pub set: Vec<String>,
    /// The command after `--`.
    pub command: Vec<String>,
    pub observe: bool,
    pub allow_fresh: bool,
    pub fresh: bool,
    pub from: Option<u64>,
    pub no_recovery: bool,
    /// A changed declaration of the trainer is used though it judges steps otherwise.
    pub accept: bool,
    /// How to find out which trainer a launch script starts.
    pub learning: Learning,
    /// A script that `supervise` never started runs only after confirmation.
    pub asks_first: bool,
    /// The trainer may be asked for its configuration, which runs its code.
    pub asking: bool,
    /// Nothing is launched: machines that only a launch needs may be missing.
    pub planned: bool,
    /// Print nothing meanwhile.
    pub quiet: bool,
    /// Files given with `--settings`; `None`: the command has no such option.
    pub settings: Option<Vec<Utf8PathBuf>>,
    /// The run is launched: programs that a named file names are started, whoever wrote it.
    pub acts: bool,
    /// The command shows the notes of the preparation itself.
    pub shows_notes: bool,
    /// When the scheduler ends the job of this process, in seconds since 1970.
    pub ends: Option<u64>,
}

impl PrepareRequest {
    /// The same request for another command, with these values.
    pub(crate) fn again(&self, command: &[&str], values: &[(&str, u64)]) -> Vec<String> {
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

/// How to find out which trainer a launch script starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Learning {
    /// Use only what its last start found out.
    #[default]
    Known,
    /// Run the script if none of its trainers is running.
    Start,
    /// Run the script in any case.
    Anew,
    /// Read it from standard input; the parent process found it out.
    Given,
}
