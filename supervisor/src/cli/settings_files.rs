//! `--settings FILE`, shared by all commands that read settings for a run.

use camino::Utf8PathBuf;

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct SettingsFiles {
    /// Read settings from this file instead of `supervise.yaml`
    ///
    /// Replaces the `supervise.yaml` next to the trainer's YAML, and, unlike it, is read even if another user owns it. May be given several times; later files
    /// win.
    #[arg(long = "settings", value_name = "FILE")]
    pub(super) files: Vec<Utf8PathBuf>,
}

impl SettingsFiles {
    /// For a request.
    pub(super) fn named(self) -> Option<Vec<Utf8PathBuf>> {
        Some(self.files)
    }

    pub(super) fn words(&self) -> impl Iterator<Item = String> {
        self.files
            .iter()
            .flat_map(|file| ["--settings".to_owned(), file.to_string()])
    }
}
