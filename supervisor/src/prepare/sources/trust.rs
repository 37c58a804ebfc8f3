//! Whether a file may be acted on: a settings file that was not named counts only if it is ours, and a read-only command starts no
//! program that another user's file names.

use crate::error::CliError;
use crate::path_access;
use crate::prepare::path::{absolute, cwd};
use crate::prepare::request::PrepareRequest;
use crate::printer;
use crate::render::{proposed, shown_command};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use supervise_host::ownership::{DistrustReason, PathDistrust, PathTrust};
use supervise_host::system::effective_user;

/// The owners of the files that were read.
#[derive(Debug, Clone, Default)]
pub struct FileTrust {
    /// Settings files that were read, lowest priority first.
    pub settings: Vec<Utf8PathBuf>,
    /// Notes about them for the user.
    pub notes: Vec<String>,
    /// The first file that another user wrote or could have written.
    pub distrusted: Option<String>,
}

impl FileTrust {
    /// Records a file that the user named. A command that launches follows it; a read-only command need not.
    pub(super) fn named(&mut self, path: &Utf8Path, trust: std::io::Result<PathTrust>) {
        let why = match trust {
            Ok(trust) => trust.refusal().map(|refused| refused.to_string()),
            Err(e) => Some(format!("whose {path} is cannot be told ({e})")),
        };
        if let Some(why) = why.filter(|_| self.distrusted.is_none()) {
            self.distrusted = Some(why);
        }
    }

    /// Accepts a settings file that was not named.
    ///
    /// # Errors
    /// Another user wrote it, or could have.
    pub(super) fn unnamed(&mut self, path: &Utf8Path, trust: PathTrust, takes_flag: bool) -> Result<(), CliError> {
        match trust {
            PathTrust::Trusted => {}
            PathTrust::GroupWritable(entry) if effective_user() == 0 => {
                let why = DistrustReason::GroupWritable;
                return Err(refused(path, &PathDistrust { entry, why }, takes_flag));
            }
            PathTrust::GroupWritable(entry) => self.notes.push(format!(
                "the group of {path} may write it (mode {:03o}), and so choose what this run executes; to end that: {}",
                entry.mode,
                command(&["chmod", "g-w", path.as_str()])
            )),
            PathTrust::Refused(why) => return Err(refused(path, &why, takes_flag)),
        }
        self.settings.push(path.to_owned());
        Ok(())
    }

    /// The files that were read, in one line.
    #[must_use]
    pub fn listed(&self) -> Option<String> {
        let names: Vec<&str> = self.settings.iter().map(|path| path.as_str()).collect();
        (!names.is_empty()).then(|| format!("settings are read from {}", names.join(", ")))
    }

    /// Prints the notes at once, unless the command shows them itself.
    pub(super) fn tell(&self, request: &PrepareRequest) {
        if !request.shows_notes {
            self.notes.iter().for_each(|note| tell_once(note));
        }
    }
}

/// Why a read-only command starts no program; reported once.
pub(super) fn left_out(trust: &FileTrust, request: &PrepareRequest) -> Option<String> {
    let why = trust.distrusted.as_ref().filter(|_| !request.acts)?;
    let text = format!(
        "{why}: who only looks starts no program that such a file names, so what the trainer and its interpreter would say is left out"
    );
    if !request.shows_notes {
        tell_once(&text);
    }
    Some(text)
}

/// A warning about running what another user wrote.
pub(super) fn warning(trust: &FileTrust, request: &PrepareRequest) -> Option<String> {
    let why = trust.distrusted.as_ref().filter(|_| request.acts)?;
    Some(format!(
        "{why}: it was named on the command line, so the programs that it names are started"
    ))
}

/// The script of a command, if another user wrote it or could have, as text.
pub(super) fn distrusted_script(words: &[String], cwd: &Utf8Path) -> Option<String> {
    let mut files = words
        .iter()
        .map(|word| cwd.join(word))
        .filter(|path| path_access::is_file(path));
    files.find_map(|path| match path_access::trust(&path) {
        Ok(trust) => trust.refusal().map(|refused| refused.to_string()),
        Err(e) => Some(format!("whose {path} is cannot be told ({e})")),
    })
}

/// The `--settings` paths in comparable form; a directory may have several names.
pub(super) fn named_files(request: &PrepareRequest) -> Result<Vec<Utf8PathBuf>, CliError> {
    let cwd = cwd()?;
    let named = request.settings.iter().flatten();
    Ok(named.map(|path| absolute(&cwd, path)).collect())
}

fn refused(path: &Utf8Path, why: &PathDistrust, takes_flag: bool) -> CliError {
    let e = CliError::config(format!(
        "{why}: a settings file that nobody named counts only if it is this user's or root's, and nobody else may write it"
    ));
    let e = match takes_flag {
        true => e.hint(format!("to accept it: {}", proposed(&accepting(path)))),
        false => e,
    };
    match why.why {
        DistrustReason::OtherOwner => e.hint(format!(
            "if it is yours: {}; if it is not, look who put it there, and remove it",
            command(&["chown", &effective_user().to_string(), path.as_str()])
        )),
        DistrustReason::WorldWritable | DistrustReason::GroupWritable => e.hint(format!(
            "if what it says is yours: {}",
            command(&["chmod", "go-w", path.as_str()])
        )),
    }
}

fn command(words: &[&str]) -> String {
    shown_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

/// The given command, with `--settings`.
fn accepting(path: &Utf8Path) -> Vec<String> {
    let given = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    with_settings(given.collect(), path)
}

fn with_settings(mut words: Vec<String>, path: &Utf8Path) -> Vec<String> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, ["--settings".to_owned(), path.to_string()]);
    words
}

fn tell_once(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = SAID
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(text.to_owned());
    if is_new {
        printer::note(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accepting_command_is_the_given_one_with_the_file() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (given, wanted) in [
            ("supervise run a.yaml", "supervise run a.yaml --settings /x y.yaml"),
            ("supervise run -- true", "supervise run --settings /x y.yaml -- true"),
        ] {
            let mut made = with_settings(words(given), Utf8Path::new("/x y.yaml"));
            assert_eq!(made.join(" "), wanted);
            assert!(shown_command(&made).contains("--settings '/x y.yaml'"));
            made.retain(|word| !word.contains("settings") && !word.contains("y.yaml"));
        }
    }

    #[test]
    fn the_first_foreign_file_is_the_reason() {
        let mut trust = FileTrust::default();
        let path = Utf8Path::new("/x");
        trust.named(path, Ok(PathTrust::Trusted));
        assert_eq!(trust.distrusted, None);
        trust.named(path, Err(std::io::ErrorKind::NotFound.into()));
        let first = trust.distrusted.clone();
        assert!(first.as_ref().is_some_and(|why| why.contains("/x")), "{first:?}");
        trust.named(Utf8Path::new("/y"), Err(std::io::ErrorKind::NotFound.into()));
        assert_eq!(trust.distrusted, first);
        // A command that launches has named the file.
        let acts = PrepareRequest {
            acts: true,
            shows_notes: true,
            ..PrepareRequest::default()
        };
        assert!(left_out(&trust, &acts).is_none() && warning(&trust, &acts).is_some());
        let looks = PrepareRequest {
            shows_notes: true,
            ..PrepareRequest::default()
        };
        assert!(left_out(&trust, &looks).is_some() && warning(&trust, &looks).is_none());
    }
}
