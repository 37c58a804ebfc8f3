//! Parses trainers' JSON files as Python does, always the whole text.
//!
//! A tokenizer's JSON has tens of megabytes: its values are checked and dropped. Whatever is kept of the others is bounded.

mod config;
mod keys;
mod megatron;
mod python;
mod tokenizer;
mod value;

pub(crate) use config::alike;
pub(crate) use value::JsonValue;

use crate::limits::InspectLimits;
use crate::pickle::PickleError;
use crate::source::FileReader;
use python::{JsonError, JsonErrorKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use supervise_core::checkpoint::{Finding, Verdict};

pub(crate) fn bytes(file: &FileReader<'_>, limits: &InspectLimits) -> Result<Vec<u8>, Box<Finding>> {
    let len = file.len();
    if len == 0 {
        return Err(Box::new(Finding::error(
            "empty_file",
            Verdict::Incomplete,
            "the file is empty",
        )));
    }
    match usize::try_from(len).ok().filter(|_| len <= limits.json_bytes) {
        Some(n) if room(n, limits) == 0 => Err(Box::new(too_big(n, limits))),
        Some(n) => Ok(file.bytes(0, n)?),
        None => {
            let detail = format!(
                "the file has {len} bytes, more than are looked at ({})",
                limits.json_bytes
            );
            Err(Box::new(Finding::error("limit_reached", Verdict::Unknown, detail)))
        }
    }
}

/// Returns the bytes of memory left for what is kept of a text of that length.
pub(crate) fn room(text: usize, limits: &InspectLimits) -> usize {
    limits.memory.saturating_sub(limits.held.saturating_add(text))
}

pub(crate) fn too_big(need: usize, limits: &InspectLimits) -> Finding {
    let limit = limits.memory;
    let detail = PickleError::TooBig { need, limit }.to_string();
    Finding::error("limit_reached", Verdict::Unreadable, detail)
}

/// Parses a text. A truncated text is incomplete; zeros or a syntax error are damage.
pub(crate) fn value(text: &[u8], limits: &InspectLimits) -> Result<JsonValue, Box<Finding>> {
    // Python decodes the whole text first.
    utf8(text, limits)?;
    python::read(text, room(text.len(), limits)).map_err(|fault| Box::new(broken(text, fault, limits)))
}

/// Parses a struct, which is an object in the text. As in Python, the last of repeated keys counts.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8], limits: &InspectLimits) -> Result<T, Box<Finding>> {
    T::deserialize(value(text, limits)?).map_err(|e| content(format!("the JSON text says something else: {e}")))
}

/// Checks that the text is one JSON value.
pub(crate) fn any(text: &[u8], limits: &InspectLimits) -> Result<(), Box<Finding>> {
    utf8(text, limits)?;
    python::keys(text, room(text.len(), limits))
        .map(drop)
        .map_err(|fault| Box::new(broken(text, fault, limits)))
}

/// Checks that the text is one JSON object; returns it with its top-level keys only.
pub(crate) fn object(text: &[u8], limits: &InspectLimits) -> Result<JsonValue, Box<Finding>> {
    utf8(text, limits)?;
    let found = python::keys(text, room(text.len(), limits)).map_err(|fault| Box::new(broken(text, fault, limits)))?;
    match found.object() {
        Some(_) => Ok(found),
        None => Err(content(format!(
            "the JSON text is {}, and an object is expected",
            found.kind()
        ))),
    }
}

/// The finding for valid JSON with invalid content.
pub(crate) fn content(detail: String) -> Box<Finding> {
    Box::new(Finding::error("json_content", Verdict::Damaged, detail))
}

fn utf8(text: &[u8], limits: &InspectLimits) -> Result<(), Box<Finding>> {
    let Err(e) = std::str::from_utf8(text) else {
        return Ok(());
    };
    let at = e.valid_up_to();
    let why = match e.error_len() {
        Some(_) => JsonErrorKind::Wrong("UTF-8"),
        None => JsonErrorKind::Ended,
    };
    // An earlier error is reported first.
    let before = python::keys(text.get(..at).unwrap_or_default(), room(text.len(), limits)).err();
    let fault = before.filter(|f| f.at < at).unwrap_or(JsonError { at, why });
    Err(Box::new(broken(text, fault, limits)))
}

fn broken(text: &[u8], fault: JsonError, limits: &InspectLimits) -> Finding {
    let zeros = text.iter().rev().take_while(|b| **b == 0).count();
    if zeros == text.len() {
        let detail = "the file holds only zeros: its blocks were never written";
        return Finding::error("zero_filled", Verdict::Damaged, detail).at(0);
    }
    if zeros > 0 {
        let detail = format!("the last {zeros} bytes are zeros: they were never written");
        return Finding::error("torn_write", Verdict::Damaged, detail).at((text.len() - zeros) as u64);
    }
    let found = match fault.why {
        JsonErrorKind::Ended => {
            let detail = "the JSON text ends in the middle";
            Finding::error("json_truncated", Verdict::Incomplete, detail)
        }
        JsonErrorKind::Wrong(wanted) => {
            let detail = format!("this is no JSON: expected {wanted}");
            Finding::error("json_broken", Verdict::Damaged, detail)
        }
        JsonErrorKind::Deep => {
            let detail = "the JSON text has more lists and objects inside each other than are followed";
            Finding::error("limit_reached", Verdict::Unknown, detail)
        }
        JsonErrorKind::Big => {
            // If the rest is like the part already parsed.
            let (kept, read) = (room(text.len(), limits) as u128, fault.at.max(1) as u128);
            let need = text.len() as u128 * (kept + read) / read;
            too_big(usize::try_from(need).unwrap_or(usize::MAX), limits)
        }
    };
    found.at(fault.at as u64)
}

/// `fsdp_config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct FsdpConfig {
    pub world_size: u32,
    /// 1 or 2; 0 for a model that FSDP does not wrap.
    #[serde(rename = "FSDP_version")]
    pub version: u32,
}

/// AReaL's `step_info.json`: the step that was just trained. All numbers begin at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepInfo {
    pub epoch: u64,
    pub epoch_step: u64,
    pub global_step: u64,
    pub steps_per_epoch: u64,
}

/// `trainer_state.json` of Hugging Face's `Trainer`; its logs are parsed and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Steps trained.
    pub global_step: u64,
    /// Steps planned by the run that wrote it; 0: unknown.
    #[serde(default)]
    pub max_steps: u64,
    /// Steps between saves; a resume continues with this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_steps: Option<u64>,
    /// The best step so far, by the metric that the run watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<u64>,
    /// Whether the trainer had decided to stop when it saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// Whether the epoch is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_epoch: bool,
}

/// `trainer_state.json` as written by `TrainerState.save_to_json` of transformers. Fields that do not affect a resume may have any form.
#[derive(Deserialize)]
struct WrittenState {
    global_step: u64,
    #[serde(default)]
    max_steps: u64,
    #[serde(default)]
    save_steps: Option<serde_json::Value>,
    #[serde(default)]
    best_model_checkpoint: Option<serde_json::Value>,
    #[serde(default)]
    best_global_step: Option<serde_json::Value>,
    #[serde(default)]
    stateful_callbacks: Option<serde_json::Value>,
    #[serde(default)]
    epoch: Option<serde_json::Value>,
}

impl WrittenState {
    /// Prefer the directory: the number may be that of an evaluation that was not saved.
    fn best(&self) -> Option<u64> {
        let named = self.best_model_checkpoint.as_ref().and_then(|path| {
            let name = path.as_str()?.trim_end_matches('/').rsplit('/').next()?;
            name.strip_prefix("checkpoint-")?.parse().ok()
        });
        named.or_else(|| self.best_global_step.as_ref()?.as_u64())
    }

    fn ends(&self) -> bool {
        let control = self.stateful_callbacks.as_ref();
        let stops = control.and_then(|c| c.pointer("/TrainerControl/args/should_training_stop"));
        stops.and_then(serde_json::Value::as_bool) == Some(true)
    }
}

/// AReaL's three counters that decide when it acts: by epochs, by steps, by time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frequency {
    epoch: SaveTimer,
    step: SaveTimer,
    time: SaveTimer,
}

/// AReaL itself misspells the first name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaveTimer {
    #[serde(rename = "frequence_seconds")]
    seconds: Option<f64>,
    #[serde(rename = "frequency_steps")]
    every: Option<i64>,
    start_time: f64,
    steps: u64,
    last_time: f64,
    last_steps: u64,
    interval_steps: Option<u64>,
    interval_seconds: Option<f64>,
    #[serde(rename = "initial_value")]
    _initial: bool,
}

/// Plausible clock values in seconds since 1970: from 2001 to 2099.
const CLOCK: std::ops::Range<f64> = 1e9..4.1e9;

impl SaveTimer {
    /// Returns what contradicts the rest of the counter. AReaL counts a step, then records how many it counted since it last acted, then
    /// acts.
    fn wrong(&self) -> Option<&'static str> {
        let since = self.steps.checked_sub(self.last_steps);
        let noted = self
            .interval_steps
            .is_none_or(|n| n <= self.steps && (since == Some(0) || since == Some(n)));
        let clock = CLOCK.contains(&self.start_time) && CLOCK.contains(&self.last_time);
        let every = self.every.is_none_or(|n| (0..1 << 40).contains(&n))
            && self.seconds.is_none_or(|s| (0.0..1e12).contains(&s));
        if since.is_none() || !noted {
            Some("counts more steps since it acted last than in all, or others")
        } else if !clock || self.interval_seconds.is_some_and(|s| s.is_nan() || s.abs() >= 1e12) {
            Some("has a time that no clock shows")
        } else if !every {
            Some("acts as often as nothing can")
        } else {
            None
        }
    }
}

/// How often AReaL saves, exports or evaluates; `None`: never by this measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frequencies {
    /// Every so many epochs (`freq_epochs`).
    pub epochs: Option<i64>,
    /// Every so many steps (`freq_steps`).
    pub steps: Option<i64>,
    /// Every so many seconds (`freq_secs`).
    pub secs: Option<i64>,
}

/// Parses AReaL's `checkpoint_info.json` or a file like it: how often AReaL checked whether to act, which is once a step, and how often
/// it acts.
pub(crate) fn checks(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(u64, Frequencies), Box<Finding>> {
    let f: Frequency = parse(&bytes(file, limits)?, limits)?;
    for (name, counter) in [("epoch", &f.epoch), ("step", &f.step), ("time", &f.time)] {
        if let Some(wrong) = counter.wrong() {
            return Err(content(format!("the counter `{name}` {wrong}")));
        }
    }
    // AReaL checks all three in each step; only one of them counts epochs.
    if f.step.steps != f.time.steps || f.epoch.steps > f.step.steps {
        return Err(content(format!(
            "it was asked in {} steps, {} times and {} epochs, and it is asked once in each step",
            f.step.steps, f.time.steps, f.epoch.steps
        )));
    }
    let frequencies = Frequencies {
        epochs: f.epoch.every,
        steps: f.step.every,
        secs: f.time.seconds.map(|s| s as i64),
    };
    Ok((f.step.steps.max(f.time.steps).max(f.epoch.steps), frequencies))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatsInfo {
    #[serde(rename = "last_commit_step")]
    committed: i64,
}

pub(crate) fn stats_info(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(), Box<Finding>> {
    let info: StatsInfo = parse(&bytes(file, limits)?, limits)?;
    if (-1..1 << 40).contains(&info.committed) {
        return Ok(());
    }
    Err(content(format!(
        "last_commit_step is {}, which is no step",
        info.committed
    )))
}

pub(crate) fn trainer_state(file: &FileReader<'_>, limits: &InspectLimits) -> Result<TrainerState, Box<Finding>> {
    let state: WrittenState = parse(&bytes(file, limits)?, limits)?;
    Ok(TrainerState {
        global_step: state.global_step,
        max_steps: state.max_steps,
        save_steps: state
            .save_steps
            .as_ref()
            .and_then(serde_json::Value::as_u64)
            .filter(|n| *n > 0),
        best: state.best(),
        ends: state.ends(),
        lacks_epoch: state.epoch.is_none(),
    })
}

/// Parses AReaL's `step_info.json`, whose numbers depend on each other.
pub(crate) fn step_info(file: &FileReader<'_>, limits: &InspectLimits) -> Result<StepInfo, Box<Finding>> {
    let info: StepInfo = parse(&bytes(file, limits)?, limits)?;
    let before = info.epoch.checked_mul(info.steps_per_epoch);
    let step = before.and_then(|n| n.checked_add(info.epoch_step));
    if step == Some(info.global_step) && info.epoch_step < info.steps_per_epoch {
        return Ok(info);
    }
    let detail = format!(
        "step {} is not step {} of epoch {} with {} steps each",
        info.global_step, info.epoch_step, info.epoch, info.steps_per_epoch
    );
    Err(Box::new(Finding::error("json_content", Verdict::Damaged, detail)))
}

pub(crate) fn fsdp_config(file: &FileReader<'_>, limits: &InspectLimits) -> Result<FsdpConfig, Box<Finding>> {
    let config: FsdpConfig = parse(&bytes(file, limits)?, limits)?;
    if config.world_size == 0 {
        return Err(content("world_size is 0".to_owned()));
    }
    if config.version > 2 {
        return Err(content(format!(
            "FSDP_version is {}, and 1 and 2 are known",
            config.version
        )));
    }
    Ok(config)
}

/// Checks the configuration of a model and returns its text.
pub(crate) fn model_config(file: &FileReader<'_>, limits: &InspectLimits) -> Result<Vec<u8>, Box<Finding>> {
    let text = bytes(file, limits)?;
    config::model(&map(&text, limits)?)?;
    Ok(text)
}

pub(crate) fn manifest_keys(text: &[u8], limits: &InspectLimits) -> Result<(), Box<Finding>> {
    config::manifest(&map(text, limits)?)
}

pub(crate) fn settings(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(), Box<Finding>> {
    config::settings(&map(&bytes(file, limits)?, limits)?)
}

/// Checks `tokenizer.json`; keeps only what is needed to compare its parts.
pub(crate) fn tokenizer(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(), Box<Finding>> {
    let text = bytes(file, limits)?;
    object(&text, limits)?;
    match tokenizer::look(&text, room(text.len(), limits)) {
        Ok(wrong) => wrong.map_or(Ok(()), |wrong| Err(content(wrong))),
        Err(fault) => Err(Box::new(broken(&text, fault, limits))),
    }
}

fn map(text: &[u8], limits: &InspectLimits) -> Result<std::collections::BTreeMap<String, JsonValue>, Box<Finding>> {
    match value(text, limits)? {
        JsonValue::Object(map) => Ok(map),
        other => Err(content(format!(
            "the JSON text is {}, and an object is expected",
            other.kind()
        ))),
    }
}
