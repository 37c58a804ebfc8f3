//! When a run saves, by its settings.

use super::arguments::TrainingArguments;
use supervise_core::checkpoint::Finding;

const SAVE_STEPS: u64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saving {
    Steps(u64),
    Epochs,
    /// Only when its metric is the best so far.
    Best,
    Never,
    Unknown,
}

impl Saving {
    /// Reads the keys of `TrainingArguments`. `told`: the settings come from the command or its YAML, so that
    /// defaults apply.
    pub(super) fn of(said: &TrainingArguments, told: bool) -> Self {
        let by_steps = || match said.number("save_steps") {
            Some(n) => Self::Steps(n),
            None if said.text("save_steps").is_none() => Self::Steps(SAVE_STEPS),
            // A fraction of all steps.
            None => Self::Unknown,
        };
        match said.text("save_strategy") {
            None if !told && said.number("save_steps").is_none() => Self::Unknown,
            Some("steps") | None => by_steps(),
            Some(strategy) => Self::by_name(strategy),
        }
    }

    /// axolotl has another default and its own number of saves per epoch, and a number of steps overrides the
    /// strategy.
    pub(super) fn of_axolotl(said: &TrainingArguments) -> Self {
        let steps = said
            .number("save_steps")
            .filter(|_| said.text("saves_per_epoch").is_none());
        match (steps, said.text("save_strategy")) {
            (Some(n), _) => Self::Steps(n),
            // A fraction of all steps.
            _ if said.text("saves_per_epoch").is_some() || said.text("save_steps").is_some() => Self::Unknown,
            (None, Some("steps")) => Self::Steps(SAVE_STEPS),
            (None, Some(strategy)) => Self::by_name(strategy),
            (None, None) => Self::Epochs,
        }
    }

    fn by_name(strategy: &str) -> Self {
        match strategy {
            // An unquoted `no` in YAML is false.
            "no" | "false" => Self::Never,
            "epoch" => Self::Epochs,
            "best" => Self::Best,
            _ => Self::Unknown,
        }
    }

    pub(super) fn every(self) -> Option<u64> {
        match self {
            Self::Steps(n) => Some(n),
            _ => None,
        }
    }

    /// What a crash costs, if no step interval is known.
    pub(super) fn words(self) -> Option<Finding> {
        let when = match self {
            // TrainingArguments reports it as a warning.
            Self::Never => return None,
            Self::Epochs => "it saves after each epoch",
            Self::Best => "it saves only if its metric is better than before",
            Self::Steps(_) | Self::Unknown => "when it saves is not known here",
        };
        Some(Finding::note(
            "cadence",
            format!("{when}: a crash costs what was trained since"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_run_saves_is_read_as_its_program_reads_it() {
        let said = |text: &str| {
            let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
            TrainingArguments(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
        };
        for (text, plain, axolotl) in [
            ("", Saving::Steps(500), Saving::Epochs),
            ("save_steps=7", Saving::Steps(7), Saving::Steps(7)),
            ("save_steps=0.1", Saving::Unknown, Saving::Unknown),
            ("save_strategy=epoch", Saving::Epochs, Saving::Epochs),
            ("save_strategy=epoch save_steps=7", Saving::Epochs, Saving::Steps(7)),
            ("save_strategy=steps", Saving::Steps(500), Saving::Steps(500)),
            ("save_strategy=no", Saving::Never, Saving::Never),
            ("save_strategy=false", Saving::Never, Saving::Never),
            ("save_strategy=best", Saving::Best, Saving::Best),
            ("saves_per_epoch=2", Saving::Steps(500), Saving::Unknown),
            ("saves_per_epoch=2 save_steps=7", Saving::Steps(7), Saving::Unknown),
        ] {
            assert_eq!(Saving::of(&said(text), true), plain, "{text}");
            assert_eq!(Saving::of_axolotl(&said(text)), axolotl, "{text}");
        }
        assert_eq!(Saving::of(&said(""), false), Saving::Unknown);
        assert_eq!(Saving::of(&said("save_steps=7"), false), Saving::Steps(7));
    }
}
