//! The only list of trainer frameworks: a new one adds its line here.

use crate::adapter::{ExpectedLayout, TrainerAdapter, TrainerNames};
use crate::code::PlainCode;
use crate::declared::{Declaration, DeclaredAdapter, presets};
use crate::read::{ReadInput, ReadOutput};
use crate::{areal, hf, own_loop, plain, verl};
use std::sync::{Arc, Mutex, PoisonError};
use supervise_config::compose::ComposedConfig;
use supervise_config::{ConfigError, ErrorKind};
use supervise_core::spec::seen::TrainerSeen;
use supervise_core::spec::{RunSpec, TrainerKind};

/// Every adapter, in order of precedence; the last one accepts any command.
static ADAPTERS: [&dyn TrainerAdapter; 6] = [
    &areal::ArealAdapter,
    &verl::VerlAdapter { sft: true },
    &verl::VerlAdapter { sft: false },
    &hf::HfAdapter,
    &own_loop::LoopAdapter,
    &plain::PlainAdapter,
];

/// The values of the setting `trainer`, in the order shown to users.
pub const FRAMEWORKS: [&str; 5] = ["verl", "areal", "hf", "loop", "plain"];

/// Every adapter, in order of precedence.
pub fn adapters() -> impl Iterator<Item = &'static dyn TrainerAdapter> {
    ADAPTERS.into_iter()
}

/// The adapters of declarations that this process has met, by the digest of each.
static DECLARED: Mutex<Vec<(String, &'static DeclaredAdapter)>> = Mutex::new(Vec::new());

/// The adapter of a declaration. From now on its kind means this declaration.
pub fn declare(declaration: &Arc<Declaration>) -> &'static dyn TrainerAdapter {
    let digest = declaration.digest();
    let mut known = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = known.iter().position(|(other, _)| *other == digest);
    let entry = match at {
        Some(at) => known.remove(at),
        None => (digest, DeclaredAdapter::new(Arc::clone(declaration))),
    };
    let adapter = entry.1;
    known.push(entry);
    adapter
}

/// The adapter of a trainer; an unknown one is treated as a plain command.
#[must_use]
pub fn adapter(kind: TrainerKind) -> &'static dyn TrainerAdapter {
    let built_in = adapters().find(|a| a.kind() == kind);
    built_in.or_else(|| declared(kind)).unwrap_or(&plain::PlainAdapter)
}

/// The declared trainer of this kind: the declaration met last, else a preset.
fn declared(kind: TrainerKind) -> Option<&'static dyn TrainerAdapter> {
    let met = {
        let known = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().rev().map(|(_, a)| *a).find(|a| a.kind() == kind)
    };
    match met {
        Some(adapter) => Some(adapter),
        None => presets().iter().find(|d| d.kind() == kind).map(declare),
    }
}

/// The adapter of a run: of the declaration in its specification, else of its trainer.
#[must_use]
pub fn adapter_of(spec: &RunSpec) -> &'static dyn TrainerAdapter {
    let Some(recorded) = &spec.declared else {
        return adapter(spec.trainer);
    };
    let met = {
        let known = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .iter()
            .find(|(digest, _)| *digest == recorded.digest)
            .map(|(_, a)| *a)
    };
    let read = || Declaration::parse(&recorded.text, &[]).ok();
    match met {
        Some(adapter) => adapter,
        None => read().map_or_else(|| adapter(spec.trainer), |d| declare(&Arc::new(d))),
    }
}

/// A run's expectations of its checkpoints.
#[must_use]
pub fn expect(spec: &RunSpec) -> ExpectedLayout {
    adapter_of(spec).expect(spec)
}

/// The trainer that the setting `trainer` identifies; `None` for `auto` and for a framework with several trainers.
#[must_use]
pub fn named(framework: &str) -> Option<TrainerKind> {
    let mut of = adapters().filter(|a| a.framework() == framework);
    let first = of.next()?;
    of.next().is_none().then(|| first.kind())
}

/// Names that no declared trainer may have.
#[must_use]
pub fn taken_names() -> Vec<String> {
    let kinds = adapters().map(|a| a.kind().name().to_owned());
    kinds
        .chain(FRAMEWORKS.map(str::to_owned))
        .chain(["auto".to_owned()])
        .collect()
}

/// The trainer of this name that has steps, or a single checkpoint.
#[must_use]
pub fn with_steps(framework: &str) -> Option<&'static dyn TrainerAdapter> {
    adapters().find(|a| a.framework() == framework && a.has_steps())
}

/// How a command selects one of a framework's trainers, if there are several.
pub fn entries(framework: &str) -> impl Iterator<Item = &'static str> {
    let mut of = adapters().filter(move |a| a.framework() == framework);
    of.find_map(TrainerAdapter::entries).into_iter()
}

/// The trainer of a run, by its command or else by its configuration.
#[must_use]
pub fn detect(command: &[String], composed: Option<&ComposedConfig>) -> &'static dyn TrainerAdapter {
    let found = called(command).or_else(|| composed.and_then(meant));
    found.unwrap_or(&plain::PlainAdapter)
}

/// The trainer that this configuration can only belong to.
#[must_use]
pub fn meant(composed: &ComposedConfig) -> Option<&'static dyn TrainerAdapter> {
    adapters().find(|a| a.is_meant(composed))
}

/// The trainer used in examples.
#[must_use]
pub fn usual() -> &'static dyn TrainerAdapter {
    &verl::VerlAdapter { sft: false }
}

/// The entry point used in examples, as `python3 -m` takes it.
#[must_use]
pub fn entry() -> String {
    let (package, name) = usual().words().entry.unwrap_or_default();
    format!("{package}.{name}")
}

/// The trainer that a command names.
#[must_use]
pub fn called(command: &[String]) -> Option<&'static dyn TrainerAdapter> {
    adapters().find(|a| a.is_called(command))
}

/// Returns true if a Python script of this text starts a known trainer with all settings in the code.
#[must_use]
pub fn trains_by_code(text: &str) -> bool {
    let code = PlainCode::of(text);
    code.has_loop() || adapters().any(|a| a.trains_by_code(&code))
}

/// Python to run first in an interpreter whose command does not reveal the trainer: it reports the trainer and may
/// pass it a step.
#[must_use]
pub fn hook(spec: &RunSpec) -> Option<&'static str> {
    let own = adapter_of(spec);
    match own.has_steps() {
        true => own.hook(spec),
        false => adapters().find_map(|a| a.hook(spec)),
    }
}

/// Parses the report of that Python. `known`: its report in an earlier attempt.
#[must_use]
pub fn seen(told: &str, known: Option<&TrainerSeen>) -> Option<TrainerSeen> {
    adapters().find_map(|a| a.seen(told, known))
}

/// The exception that kept that Python from seeing a trainer, if there was one.
#[must_use]
pub fn hook_failed(told: &str) -> Option<String> {
    adapters().find_map(|a| a.hook_failed(told))
}

/// The trainers it can identify, as text.
#[must_use]
pub fn seen_trainers() -> String {
    let all = adapters().filter(|a| a.is_seen()).map(|a| a.words().name);
    all.collect::<Vec<_>>().join(", ")
}

/// The frameworks whose calls are known, as text.
#[must_use]
pub fn frameworks() -> String {
    let is_called_by_name = |a: &&dyn TrainerAdapter| !a.words().root.is_empty();
    let of = |name: &&str| adapters().find(|a| a.framework() == *name).filter(is_called_by_name);
    let names = FRAMEWORKS.iter().filter_map(of).map(|a| a.words().name);
    names.collect::<Vec<_>>().join(", ")
}

/// Each framework's setting for the checkpoint root, as text.
#[must_use]
pub fn root_keys() -> String {
    let of = |name: &&str| adapters().find(|a| a.framework() == *name).map(TrainerAdapter::words);
    let named = |words: &TrainerNames| Some(format!("{}: {}", words.name, words.root.first()?));
    let keys = FRAMEWORKS.iter().filter_map(of).filter_map(named);
    keys.collect::<Vec<_>>().join("; ")
}

/// The trainer whose step directories have such a name, and their prefix.
#[must_use]
pub fn of_step_name(name: &str) -> Option<(&'static dyn TrainerAdapter, &'static str)> {
    adapters().find_map(|a| {
        let prefix = a.step_prefix()?;
        let number = name.strip_prefix(prefix)?;
        number.starts_with(|c: char| c.is_ascii_digit()).then_some((a, prefix))
    })
}

/// The trainer that has such a step directory, by its name and entries, and the prefix of its steps.
#[must_use]
pub fn of_step(name: &str, names: &[String]) -> Option<(&'static dyn TrainerAdapter, &'static str)> {
    adapters().find_map(|a| Some((a, a.step_prefix().filter(|_| a.is_step(name, names))?)))
}

/// The trainer that left marks of its steps among these entries.
#[must_use]
pub fn of_marks(names: &[String]) -> Option<&'static dyn TrainerAdapter> {
    adapters().find(|a| names.iter().any(|name| a.is_mark(name)))
}

/// The trainer assumed for a directory of steps if no name in it decides, and the prefix of its steps.
#[must_use]
pub fn first_with_steps() -> (&'static dyn TrainerAdapter, &'static str) {
    let mut with = adapters().filter_map(|a| Some((a, a.step_prefix()?)));
    with.next().unwrap_or((&plain::PlainAdapter, ""))
}

/// Reads a configuration with its trainer's adapter.
///
/// # Errors
/// Everything that is wrong with it, each with its key, its location and a hint.
pub fn read(input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
    if input.composed.is_none() && input.command.is_empty() {
        let nothing = ConfigError::new(ErrorKind::MissingKey, "neither a configuration nor a command is given");
        return Err(vec![
            nothing.with_hint("name the trainer's YAML, or a command after --"),
        ]);
    }
    let kind = input.kind.map(adapter);
    kind.unwrap_or_else(|| detect(input.command, input.composed))
        .read(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_framework_can_be_named_and_every_kind_is_one() {
        let listed: BTreeSet<&str> = FRAMEWORKS.into_iter().collect();
        let there: BTreeSet<&str> = adapters().map(TrainerAdapter::framework).collect();
        assert_eq!(listed, there);
        let kinds: BTreeSet<TrainerKind> = adapters().map(TrainerAdapter::kind).collect();
        assert_eq!(kinds.len(), ADAPTERS.len());
        for found in adapters() {
            let name = found.kind().name().to_owned();
            assert_eq!(TrainerKind::parse(&name), Some(found.kind()), "{name} is cut");
        }
    }

    #[test]
    fn a_trainer_of_another_version_is_known_as_plain() {
        assert_eq!(adapter(TrainerKind::new("later")).kind(), plain::PLAIN);
    }

    #[test]
    fn what_is_listed_to_a_person_keeps_its_order() {
        let keys = "verl: trainer.default_local_dir; AReaL: recover.fileroot; Hugging Face's Trainer: output_dir";
        assert_eq!(root_keys(), keys);
        assert_eq!(frameworks(), "verl, AReaL, Hugging Face's Trainer");
    }

    #[test]
    fn a_framework_with_one_trainer_names_it() {
        assert_eq!(named("areal"), Some(areal::AREAL));
        assert_eq!((named("verl"), named("auto")), (None, None));
    }
}
