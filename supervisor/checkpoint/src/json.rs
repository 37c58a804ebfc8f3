//! JSON files of trainers, read as Python reads them, the whole text each.
//!
//! A tokenizer's JSON has tens of megabytes: its values are looked at and dropped. What is kept of the others is bounded.

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

/// The whole text of a JSON file.
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

/// Bytes of memory for what is kept of a text of so many bytes.
pub(crate) fn room(text: usize, limits: &InspectLimits) -> usize {
    limits.memory.saturating_sub(limits.held.saturating_add(text))
}

pub(crate) fn too_big(need: usize, limits: &InspectLimits) -> Finding {
    let limit = limits.memory;
    let detail = PickleError::TooBig { need, limit }.to_string();
    Finding::error("limit_reached", Verdict::Unreadable, detail)
}

/// Content of a text, or why not: ended early is incomplete, all zeros or wrong is damaged.
pub(crate) fn value(text: &[u8], limits: &InspectLimits) -> Result<JsonValue, Box<Finding>> {
    // Python decodes the whole text first.
    utf8(text, limits)?;
    python::read(text, room(text.len(), limits)).map_err(|fault| Box::new(broken(text, fault, limits)))
}

/// Reads a struct, which is an object in the text. As in Python, the last of repeated keys counts.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8], limits: &InspectLimits) -> Result<T, Box<Finding>> {
    T::deserialize(value(text, limits)?).map_err(|e| content(format!("the JSON text says something else: {e}")))
}

/// Checks that the text is one JSON object and gives it with its outermost keys only.
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

/// The finding for a text that is JSON and says what it cannot.
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
    // What is wrong before it is told first.
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
            // If the rest is like what was read.
            let (kept, read) = (room(text.len(), limits) as u128, fault.at.max(1) as u128);
            let need = text.len() as u128 * (kept + read) / read;
            too_big(usize::try_from(need).unwrap_or(usize::MAX), limits)
        }
    };
    found.at(fault.at as u64)
}

/// Content of `fsdp_config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct FsdpConfig {
    /// Ranks that wrote the checkpoint.
    pub world_size: u32,
    /// 1 or 2; 0 for a model that FSDP does not wrap.
    #[serde(rename = "FSDP_version")]
    pub version: u32,
}

/// Content of `step_info.json` of AReaL: the step that was just trained. All numbers begin at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepInfo {
    /// The epoch.
    pub epoch: u64,
    /// The step within the epoch.
    pub epoch_step: u64,
    /// The step of the run.
    pub global_step: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
}

/// Content of `trainer_state.json` of Hugging Face's `Trainer`; its logs are read and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Steps that were trained.
    pub global_step: u64,
    /// Steps that the run it was written by had planned; 0: not known.
    #[serde(default)]
    pub max_steps: u64,
    /// Steps between saves: a resume goes on with this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_steps: Option<u64>,
    /// The best step so far, by the metric that the run watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<u64>,
    /// The trainer had decided to end the training when it saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// It names no epoch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_epoch: bool,
}

/// `trainer_state.json` as `TrainerState.save_to_json` of transformers writes it. What does not bear on a resume may have any form.
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
    /// The directory counts: the number may be that of an evaluation that was not saved.
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

/// Three counters of AReaL that say when it acts: by epochs, by steps, by time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frequency {
    epoch: SaveTimer,
    step: SaveTimer,
    time: SaveTimer,
}

/// One of them; the first name is misspelt by AReaL itself.
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

/// Seconds since 1970 that a clock can show: from 2001 to 2099.
const CLOCK: std::ops::Range<f64> = 1e9..4.1e9;

impl SaveTimer {
    /// A counter that contradicts the rest. It counts a step, then notes how many were counted since it acted last, then acts.
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

/// Reads `checkpoint_info.json` of AReaL or one of its relatives: how often it was asked whether to act, which is once a step,
/// and how often it acts.
pub(crate) fn checks(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(u64, Frequencies), Box<Finding>> {
    let f: Frequency = parse(&bytes(file, limits)?, limits)?;
    for (name, counter) in [("epoch", &f.epoch), ("step", &f.step), ("time", &f.time)] {
        if let Some(wrong) = counter.wrong() {
            return Err(content(format!("the counter `{name}` {wrong}")));
        }
    }
    // All three are asked in each step; only one of them counts epochs.
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

/// Content of `stats_logger_info.json` of AReaL.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatsInfo {
    #[serde(rename = "last_commit_step")]
    committed: i64,
}

/// Reads `stats_logger_info.json` of AReaL.
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

/// Reads `trainer_state.json`.
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

/// Reads `step_info.json` of AReaL, whose numbers follow from each other.
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

/// Reads `fsdp_config.json`.
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

/// Reads the configuration of a model and gives its text.
pub(crate) fn model_config(file: &FileReader<'_>, limits: &InspectLimits) -> Result<Vec<u8>, Box<Finding>> {
    let text = bytes(file, limits)?;
    config::model(&map(&text, limits)?)?;
    Ok(text)
}

/// Checks the keys of verl's manifest.
pub(crate) fn manifest_keys(text: &[u8], limits: &InspectLimits) -> Result<(), Box<Finding>> {
    config::manifest(&map(text, limits)?)
}

/// Reads any other configuration that is written with weights.
pub(crate) fn settings(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(), Box<Finding>> {
    config::settings(&map(&bytes(file, limits)?, limits)?)
}

/// Reads `tokenizer.json`, of which only what its parts are compared by is kept.
pub(crate) fn tokenizer(file: &FileReader<'_>, limits: &InspectLimits) -> Result<(), Box<Finding>> {
    let text = bytes(file, limits)?;
    object(&text, limits)?;
    match tokenizer::look(&text, room(text.len(), limits)) {
        Ok(wrong) => wrong.map_or(Ok(()), |wrong| Err(content(wrong))),
        Err(fault) => Err(Box::new(broken(&text, fault, limits))),
    }
}

/// Content of the outermost object.
fn map(text: &[u8], limits: &InspectLimits) -> Result<std::collections::BTreeMap<String, JsonValue>, Box<Finding>> {
    match value(text, limits)? {
        JsonValue::Object(map) => Ok(map),
        other => Err(content(format!(
            "the JSON text is {}, and an object is expected",
            other.kind()
        ))),
    }
}
