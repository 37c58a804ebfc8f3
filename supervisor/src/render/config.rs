//! Every configuration value and where it came from, as a table and as stable JSON. Secrets are hidden.

use super::table;
use serde::{Deserialize, Serialize};
use supervise_config::settings::Settings;
use supervise_config::{ConfigNode, ConfigTree, is_default_origin, python_str, redact, redact_text, redact_words};

const HIDDEN: &str = "***";

/// One configuration value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRow {
    pub key: String,
    pub value: String,
    pub origin: String,
}

impl ConfigRow {
    fn new(key: String, value: &str, origin: &str) -> Self {
        let shown = redact(&key, value);
        // An override is its own origin.
        let origin = match origin.split_once('=') {
            Some((name, _)) if shown != value || value == HIDDEN => format!("{name}=***"),
            _ => redact_text(origin),
        };
        Self {
            key,
            value: shown,
            origin,
        }
    }

    /// Returns true if nobody set it for this run.
    #[must_use]
    pub fn is_default(&self) -> bool {
        is_default_origin(&self.origin)
    }
}

/// All configuration values, as stable JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigView {
    pub version: u32,
    pub settings: Vec<ConfigRow>,
    pub trainer: Vec<ConfigRow>,
    /// The command line that started the run; `null` if nothing was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<StartCommand>,
}

/// The command line that started a run, without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    /// The trainer's YAML as given.
    pub config: Option<String>,
    pub set: Vec<String>,
    pub command: Vec<String>,
    pub cwd: String,
    /// Something was hidden: these words alone cannot start the run again.
    pub hidden: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
}

impl StartCommand {
    /// Hides the secrets of a command line.
    #[must_use]
    pub fn new(config: Option<&str>, set: &[String], command: &[String], cwd: &str) -> Self {
        let (shown_set, shown_command) = (redact_words(set), redact_words(command));
        Self {
            config: config.map(str::to_owned),
            hidden: shown_set != set || shown_command != command,
            set: shown_set,
            command: shown_command,
            cwd: cwd.to_owned(),
            settings: Vec::new(),
        }
    }

    /// Arguments with which a `supervise` command refers to this run.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut out: Vec<String> = self.set.iter().map(|set| format!("--set={set}")).collect();
        out.extend(self.settings.iter().map(|file| format!("--settings={file}")));
        // A name may begin with a dash.
        out.extend(self.config.iter().map(|name| match name.starts_with('-') {
            true => format!("./{name}"),
            false => name.clone(),
        }));
        if !self.command.is_empty() {
            out.push("--".to_owned());
            out.extend(self.command.iter().cloned());
        }
        out
    }
}

impl ConfigView {
    /// The view of the settings and, if known, the trainer's configuration.
    #[must_use]
    pub fn of(settings: &Settings, trainer: Option<&ConfigTree>) -> Self {
        let settings = settings.explained().iter();
        let settings = settings.map(|e| ConfigRow::new(e.key.clone(), &e.value, &e.origin));
        Self {
            version: 1,
            settings: settings.collect(),
            trainer: trainer.map(lines).unwrap_or_default(),
            started: None,
        }
    }

    /// Both configurations as tables.
    #[must_use]
    pub fn text(&self) -> String {
        let rows = |lines: &[ConfigRow]| -> Vec<Vec<String>> {
            lines
                .iter()
                .map(|l| vec![l.key.clone(), l.value.clone(), l.origin.clone()])
                .collect()
        };
        let mut out = table(&["SETTING", "VALUE", "FROM"], &rows(&self.settings));
        if !self.trainer.is_empty() {
            out.push('\n');
            out.push_str(&table(&["TRAINER'S KEY", "VALUE", "FROM"], &rows(&self.trainer)));
        }
        out
    }
}

fn lines(tree: &ConfigTree) -> Vec<ConfigRow> {
    let shown =
        |(path, node): (String, &ConfigNode)| ConfigRow::new(path, &python_str(&node.value), &node.origin.to_string());
    tree.leaves()
        .into_iter()
        .filter(|(path, _)| !path.is_empty())
        .map(shown)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_that_holds_a_secret_is_hidden_in_what_it_is_the_origin_of() {
        let line = |key: &str, value: &str, origin: &str| {
            let line = ConfigRow::new(key.to_owned(), value, origin);
            (line.value, line.origin)
        };
        let hidden = line("trainer.wandb_api_key", "a b", "--set trainer.wandb_api_key='a b'");
        assert_eq!(hidden, ("***".to_owned(), "--set trainer.wandb_api_key=***".to_owned()));
        // Settings come with their values hidden.
        let hidden = line("env.API_KEY", "***", "--set supervisor.env.API_KEY=hush");
        assert!(!hidden.1.contains("hush"), "{hidden:?}");
        let plain = line("trainer.note", "x", "--set trainer.note=x");
        assert_eq!(plain, ("x".to_owned(), "--set trainer.note=x".to_owned()));
    }

    #[test]
    fn the_words_of_a_start_are_arguments_again_unless_a_secret_was_left_out() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let started = StartCommand::new(
            Some("-x.yaml"),
            &words(&["a=1"]),
            &words(&["python3", "t.py", "--b"]),
            "/w",
        );
        assert_eq!(
            started.arguments(),
            words(&["--set=a=1", "./-x.yaml", "--", "python3", "t.py", "--b"])
        );
        assert!(!started.hidden);
        assert!(StartCommand::new(None, &words(&["trainer.api_key=hush"]), &[], "/w").hidden);
    }
}
