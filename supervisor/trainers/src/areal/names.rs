//! Names of AReaL's files of a run, and of their copies.

use supervise_checkpoint::latest_file::generation_step;
use supervise_core::id::Step;

/// Directory of step, counters and dataloader position.
pub(super) const INFO: &str = "recover_info";
/// Directory of an engine's state, below the engine's name.
pub(super) const STATE: &str = "recover_checkpoint";
/// The engine that always exists: the actor, whatever is trained.
pub(super) const DEFAULT: &str = "default";

/// [`INFO`] in a generation written by a newer AReaL.
pub(super) const MANIFEST: &str = "manifest";
/// Directory in such a generation with a directory of state for each engine.
pub(super) const PAYLOADS: &str = "payloads";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetPath<'a> {
    Info(&'a str),
    State(&'a str, &'a str),
    /// Anything else: exports, weights on their way to the rollout, directories created by path helpers.
    Other,
}

pub(super) fn part(path: &str) -> SetPath<'_> {
    let Some((head, rest)) = path.split_once('/') else {
        return SetPath::Other;
    };
    if head == INFO {
        return if rest.contains('/') {
            SetPath::Other
        } else {
            SetPath::Info(rest)
        };
    }
    match rest.split_once('/') {
        Some((STATE, file)) if !file.contains('/') => SetPath::State(head, file),
        _ => SetPath::Other,
    }
}

/// Returns true if a path can be a directory of a set: `recover_info`, an engine, its state.
pub(super) fn is_place(path: &str) -> bool {
    !path.is_empty() && path.split_once('/').is_none_or(|(_, rest)| rest == STATE)
}

pub(super) fn state_dir(engine: &str) -> String {
    format!("{engine}/{STATE}")
}

/// Returns true if a file of an engine's state is a shard. Megatron writes state common to all ranks, including the
/// learning-rate schedule, to a file before all shards.
pub(super) fn is_shard(file: &str) -> bool {
    file.ends_with(".distcp") || file == "common.pt"
}

/// The step of a set, by its directory name: our copy, or AReaL's own generation.
pub(super) fn step(name: &str) -> Option<Step> {
    generation(name).or_else(|| generation_step(name))
}

/// Maps a path of AReaL's own generation to its path in a live set.
#[must_use]
pub fn as_live(path: &str) -> Option<String> {
    let (head, rest) = path.split_once('/').unwrap_or((path, ""));
    let below = |dir: String, rest: &str| if rest.is_empty() { dir } else { format!("{dir}/{rest}") };
    match head {
        MANIFEST => Some(below(INFO.to_owned(), rest)),
        PAYLOADS if !rest.is_empty() => {
            let (engine, file) = rest.split_once('/').unwrap_or((rest, ""));
            Some(below(state_dir(engine), file))
        }
        _ => None,
    }
}

/// Maps a path of a live set to its path in AReaL's own generation.
#[must_use]
pub fn as_own(path: &str) -> String {
    match path.split_once('/') {
        _ if path == INFO => MANIFEST.to_owned(),
        Some((INFO, file)) => format!("{MANIFEST}/{file}"),
        Some((engine, rest)) => match rest.strip_prefix(STATE) {
            Some(file) => format!("{PAYLOADS}/{engine}{file}"),
            None => path.to_owned(),
        },
        None => path.to_owned(),
    }
}

/// The step of a generation, by its directory name: `step_N.SAVE`.
pub(super) fn generation(name: &str) -> Option<Step> {
    let (number, save) = name.strip_prefix("step_")?.split_once('.')?;
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let save = save.len() == 8 && save.bytes().all(|b| b.is_ascii_hexdigit());
    number.parse().ok().filter(|_| plain && save).map(Step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_set_are_sorted() {
        for (path, what) in [
            ("recover_info/step_info.json", SetPath::Info("step_info.json")),
            (
                "default/recover_checkpoint/.metadata",
                SetPath::State("default", ".metadata"),
            ),
            (
                "critic/recover_checkpoint/__0_0.distcp",
                SetPath::State("critic", "__0_0.distcp"),
            ),
            // check_if_auto_recover creates this one, empty.
            ("recover_info/recover_checkpoint", SetPath::Info("recover_checkpoint")),
            ("recover_info/recover_checkpoint/x", SetPath::Other),
            ("default/epoch0epochstep1globalstep1/config.json", SetPath::Other),
            ("default/weight_update_v3/model.safetensors", SetPath::Other),
            ("recover_info", SetPath::Other),
        ] {
            assert_eq!(part(path), what, "{path}");
        }
    }

    #[test]
    fn both_layouts_have_the_same_parts() {
        for (own, live) in [
            ("manifest", "recover_info"),
            ("manifest/step_info.json", "recover_info/step_info.json"),
            ("payloads/default", "default/recover_checkpoint"),
            ("payloads/critic/.metadata", "critic/recover_checkpoint/.metadata"),
        ] {
            assert_eq!(as_live(own).as_deref(), Some(live));
            assert_eq!(as_own(live), own);
        }
        for nothing in ["payloads", "recover_info/step_info.json", "x", "x/y"] {
            assert_eq!(as_live(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn generations_have_a_step_and_a_save() {
        assert_eq!(generation("step_12.0a1b2c3d"), Some(Step(12)));
        for other in [
            "step_12",
            "step_.0a1b2c3d",
            "step_1.xyz",
            "step_+1.0a1b2c3d",
            "live.0a1b2c3d",
            "step_1.0a1b2c3d4",
        ] {
            assert_eq!(generation(other), None, "{other}");
        }
    }
}
