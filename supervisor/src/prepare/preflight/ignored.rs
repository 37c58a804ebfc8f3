//! Settings that have no effect for a command without known steps.

use crate::error::CliError;
use crate::prepare::request::PrepareRequest;
use supervise_config::settings::{HardLimitChoice, Settings};
use supervise_core::spec::TrainerKind;
use supervise_trainers::adapter;

/// Sections and settings about steps, checkpoints and progress.
const OF_STEPS: [&str; 16] = [
    "root",
    "trainer_version",
    "step_backs",
    "grace.save",
    "proof",
    "degraded_resume",
    "protect",
    "stall.save",
    "retention",
    "allow_fresh",
    "recovery",
    "scan_interval",
    "rehearse",
    "assist",
    "deadline",
    "multi_host",
];
/// A fraction of this setting is how long a plain command must run to reset its retries.
const LIVED: &str = "stall.minimum";

/// Refuses `--from` if no steps are known.
pub(super) fn check_from(request: &PrepareRequest, kind: TrainerKind) -> Result<(), CliError> {
    match request.from {
        Some(step) if !adapter(kind).has_steps() => Err(CliError::usage(format!(
            "--from {step}: nothing is known of this command's steps, so none can be resumed from"
        ))
        .hint("leave --from out: the command is started as it is written; or name its trainer, if it is one that is known: --set supervisor.trainer=…")),
        _ => Ok(()),
    }
}

pub(super) fn notes(settings: &Settings, kind: TrainerKind) -> Vec<String> {
    if adapter(kind).has_steps() {
        return never(settings);
    }
    let of_user = || {
        let lines = settings.explained().iter();
        lines.filter(|line| line.origin != DEFAULT)
    };
    let is_of = |key: &str, name: &str| {
        key.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let ignored: Vec<String> = of_user()
        .filter(|line| OF_STEPS.iter().any(|name| is_of(&line.key, name)))
        .map(|line| format!("{} ({})", line.key, line.origin))
        .collect();
    let mut out = never(settings);
    if !ignored.is_empty() {
        out.push(format!(
            "ignored: {}: nothing is known of this command's checkpoints, so nothing is proven",
            ignored.join(", ")
        ));
    }
    if of_user().any(|line| line.key == LIVED) {
        out.push(format!(
            "{LIVED} says here, too, how long the command has to live before its retries are counted anew"
        ));
    }
    out
}

/// Limits that the user disabled.
fn never(settings: &Settings) -> Vec<String> {
    let is_off = settings.stall.hard == HardLimitChoice::Never;
    let note = "stall.hard is never: an attempt whose processes compute without getting on may run for ever";
    is_off.then(|| note.to_owned()).into_iter().collect()
}

/// The origin of a value that the user did not set.
const DEFAULT: &str = "default of supervise";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_setting_or_a_section() {
        let defaults = Settings::defaults().unwrap();
        for name in OF_STEPS.into_iter().chain([LIVED]) {
            let below = format!("{name}.");
            let found = defaults
                .explained()
                .iter()
                .find(|l| l.key == name || l.key.starts_with(&below));
            assert_eq!(found.map(|l| l.origin.as_str()), Some(DEFAULT), "{name}");
        }
        assert_eq!(notes(&defaults, supervise_trainers::plain::PLAIN), Vec::<String>::new());
    }
}
