//! Names of a trainer and its settings, for messages.

use camino::Utf8Path;

/// Names of a trainer and of its settings.
#[derive(Debug, PartialEq, Eq)]
pub struct TrainerNames {
    /// The framework, as written in a sentence.
    pub name: &'static str,
    /// Package and best-known module of its entry points, for `python3 -m`; `None`: the user's own scripts.
    pub entry: Option<(&'static str, &'static str)>,
    /// Settings that determine the checkpoint root, the one to mention first.
    pub root: &'static [&'static str],
    pub every: Option<&'static str>,
    /// Whether a resume takes the save interval from the step and ignores the setting.
    pub keeps_every: bool,
    pub nodes: Option<&'static str>,
    pub gpus_per_node: Option<&'static str>,
    pub resume_path: Option<&'static str>,
    pub retries: Option<&'static str>,
    /// What determines its only possible checkpoint root, as text; `None`: any root will do.
    pub fixed_root: Option<&'static str>,
}

impl TrainerNames {
    /// Names of a trainer without settings.
    pub const NONE: Self = Self {
        name: "the trainer",
        entry: None,
        root: &[],
        every: None,
        keeps_every: false,
        nodes: None,
        gpus_per_node: None,
        resume_path: None,
        retries: None,
        fixed_root: None,
    };
}

/// A user name inside a checkpoint root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPart {
    pub user: String,
    /// The root with `*` in place of the user.
    pub place: String,
    /// A root where something was saved has at least one of these entries.
    pub saves: &'static [&'static str],
}

impl UserPart {
    /// Returns true if something was saved in a root; `is_there` says whether a path exists.
    #[must_use]
    pub fn is_saved(&self, root: &Utf8Path, is_there: impl Fn(&Utf8Path) -> bool) -> bool {
        self.saves.iter().any(|name| is_there(&root.join(name)))
    }
}
