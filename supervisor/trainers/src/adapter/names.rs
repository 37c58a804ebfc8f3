//! Names by which a person knows a trainer and its settings: what is said about it uses them.

use camino::Utf8Path;

/// Names of a trainer and of its settings.
#[derive(Debug, PartialEq, Eq)]
pub struct TrainerNames {
    /// The framework, as it is written in a sentence.
    pub name: &'static str,
    /// The package of its entry points and the best known of them, as `python3 -m` takes them; `None`: scripts of the user's own.
    pub entry: Option<(&'static str, &'static str)>,
    /// Settings from which the checkpoint root follows, the one to name first.
    pub root: &'static [&'static str],
    /// Steps from save to save.
    pub every: Option<&'static str>,
    /// Machines that it runs on.
    pub nodes: Option<&'static str>,
    /// GPUs of each machine.
    pub gpus_per_node: Option<&'static str>,
    /// The step to resume from.
    pub resume_path: Option<&'static str>,
    /// How often its own launcher begins again.
    pub retries: Option<&'static str>,
    /// Its only possible checkpoint root follows from these, in words; `None`: any root will do.
    pub fixed_root: Option<&'static str>,
}

impl TrainerNames {
    /// Words of a trainer that has no settings.
    pub const NONE: Self = Self {
        name: "the trainer",
        entry: None,
        root: &[],
        every: None,
        nodes: None,
        gpus_per_node: None,
        resume_path: None,
        retries: None,
        fixed_root: None,
    };
}

/// The name of a user as a part of a checkpoint root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPart {
    /// The user.
    pub user: String,
    /// The root with `*` in the place of the user.
    pub place: String,
    /// Entries of which one at least is in a root where something was saved.
    pub saves: &'static [&'static str],
}

impl UserPart {
    /// Returns true if something was saved in a root, by what `is_there` says of a path.
    #[must_use]
    pub fn is_saved(&self, root: &Utf8Path, is_there: impl Fn(&Utf8Path) -> bool) -> bool {
        self.saves.iter().any(|name| is_there(&root.join(name)))
    }
}
