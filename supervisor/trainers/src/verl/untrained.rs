//! verl's programs that train nothing: generation and evaluation. Their configurations look like the SFT trainer's.

use crate::read::ReadInput;
use crate::shell;
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ErrorKind};

struct Program {
    work: &'static str,
    module: &'static str,
    /// Keys that it needs and no trainer has.
    keys: [&'static str; 2],
}

const PROGRAMS: [Program; 2] = [
    Program {
        work: "generation",
        module: "verl.trainer.main_generation",
        keys: ["data.output_path", "data.n_samples"],
    },
    Program {
        work: "evaluation",
        module: "verl.trainer.main_eval",
        keys: ["data.response_key", "data.reward_model_key"],
    },
];

pub(super) fn is_meant(composed: &ComposedConfig) -> bool {
    program(composed).is_some()
}

fn program(composed: &ComposedConfig) -> Option<&'static Program> {
    let has = |key: &str| composed.tree.get(key).is_some();
    let trains = ["actor_rollout_ref", "algorithm", "optim", "data.train_files"]
        .into_iter()
        .any(has);
    PROGRAMS.iter().find(|p| !trains && p.keys.into_iter().all(has))
}

/// Refuses it, with the command that supervises it as it is.
pub(super) fn refused(input: &ReadInput<'_>) -> Option<ConfigError> {
    let is_started = |p: &&Program| input.command.windows(2).any(|words| words == ["-m", p.module]);
    if let Some(found) = PROGRAMS.iter().find(is_started) {
        let message = format!(
            "{} is verl's {}: it trains nothing and saves no step, so there is nothing to resume",
            found.module, found.work
        );
        let command: Vec<String> = input.command.iter().map(|word| shell::quote(word)).collect();
        return Some(ConfigError::new(ErrorKind::BadValue, message).with_hint(format!(
            "to have it started again after a failure: supervise run --set supervisor.trainer=plain -- {}",
            command.join(" ")
        )));
    }
    let composed = input.composed?;
    let found = program(composed)?;
    let key = found.keys[0];
    let message = format!(
        "{key} is a key of verl's {}: it trains nothing and saves no step, so there is nothing to resume",
        found.work
    );
    let (folder, name) = match input.config_file {
        Some(file) => (
            file.parent().map_or(".", |p| p.as_str()),
            file.file_stem().unwrap_or_default(),
        ),
        None => (".", "NAME"),
    };
    let origin = composed.tree.get(key).map(|node| node.origin.clone());
    let error = ConfigError::new(ErrorKind::BadValue, message);
    let error = origin.iter().fold(error, |error, origin| error.from_origin(origin));
    Some(error.with_hint(format!(
        "to have it started again after a failure: supervise run --set supervisor.trainer=plain -- python3 -m {} --config-path {} --config-name {}",
        found.module,
        shell::quote(folder),
        shell::quote(name)
    )))
}
