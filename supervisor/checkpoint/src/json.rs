//! JSON files, checked without keeping them.
//!
//! A tokenizer's JSON has tens of megabytes; its values are parsed and dropped, only the outermost keys are counted.

use crate::limits::Limits;
use crate::source::Reader;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use supervise_core::checkpoint::{Finding, Verdict};
use supervise_core::spec::Frequencies;

/// The whole text of a JSON file.
pub(crate) fn bytes(file: &Reader<'_>, limits: &Limits) -> Result<Vec<u8>, Box<Finding>> {
    let len = file.len();
    if len == 0 {
        return Err(Box::new(Finding::error(
            "empty_file",
            Verdict::Incomplete,
            "the file is empty",
        )));
    }
    match usize::try_from(len).ok().filter(|_| len <= limits.json_bytes) {
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

/// Parses, or says why not: ended early is incomplete, all zeros or wrong is damaged.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], base: u64) -> Result<T, Box<Finding>> {
    let parsed = serde_json::from_slice(bytes)
        .map_err(|e| Box::new(broken(bytes, &e).at(base.saturating_add(place(bytes, &e)))))?;
    // Values that are dropped are not decoded by the parser; Python decodes the whole text first.
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(parsed),
        Err(e) => {
            let detail = "this is no JSON: the text is not UTF-8";
            let at = base.saturating_add(e.valid_up_to() as u64);
            Err(Box::new(Finding::error("json_broken", Verdict::Damaged, detail).at(at)))
        }
    }
}

/// The same for a struct, which must be an object in the text (serde would take a list as well).
pub(crate) fn parse_object<T: DeserializeOwned>(bytes: &[u8], base: u64) -> Result<T, Box<Finding>> {
    parse::<Keys>(bytes, base)?;
    parse(bytes, base)
}

fn broken(bytes: &[u8], e: &serde_json::Error) -> Finding {
    if bytes.iter().all(|b| *b == 0) {
        return Finding::error(
            "zero_filled",
            Verdict::Damaged,
            "the file holds only zeros: its blocks were never written",
        );
    }
    let zeros = bytes.iter().rev().take_while(|b| **b == 0).count();
    if zeros > 0 {
        return Finding::error(
            "torn_write",
            Verdict::Damaged,
            format!("the last {zeros} bytes are zeros: they were never written"),
        );
    }
    match e.classify() {
        serde_json::error::Category::Eof => Finding::error(
            "json_truncated",
            Verdict::Incomplete,
            format!("the JSON text ends in the middle: {e}"),
        ),
        serde_json::error::Category::Data => Finding::error(
            "json_content",
            Verdict::Damaged,
            format!("the JSON text says something else: {e}"),
        ),
        _ => Finding::error("json_broken", Verdict::Damaged, format!("this is no JSON: {e}")),
    }
}

/// The byte offset of an error that has a line and a column.
fn place(bytes: &[u8], e: &serde_json::Error) -> u64 {
    let line = e.line().saturating_sub(1);
    let start = if line == 0 {
        0
    } else {
        memchr::memchr_iter(b'\n', bytes).nth(line - 1).map_or(0, |at| at + 1)
    };
    (start + e.column().saturating_sub(1)).min(bytes.len()) as u64
}

/// Checks that the file is one JSON object.
pub(crate) fn object(text: &[u8]) -> Result<u64, Box<Finding>> {
    parse::<Keys>(text, 0).map(|keys| keys.0)
}

/// The number of keys of an object, whose values are dropped.
struct Keys(u64);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(Count)
    }
}

struct Count;

impl<'de> Visitor<'de> for Count {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut n = 0;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            n += 1;
        }
        Ok(Keys(n))
    }
}

/// What `fsdp_config.json` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct FsdpConfig {
    /// Ranks that wrote the checkpoint.
    pub world_size: u32,
    /// 1 or 2.
    #[serde(rename = "FSDP_version", default)]
    pub version: Option<u32>,
}

/// What `step_info.json` of AReaL says: the step that was just trained. All numbers begin at 0.
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

/// Three counters of AReaL that say when it acts: by epochs, by steps, by time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frequency {
    epoch: Counter,
    step: Counter,
    time: Counter,
}

/// One of them; the first name is misspelt by AReaL itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    #[serde(rename = "frequence_seconds")]
    seconds: Option<f64>,
    #[serde(rename = "frequency_steps")]
    every: Option<i64>,
    #[serde(rename = "start_time")]
    _start: f64,
    steps: u64,
    #[serde(rename = "last_time")]
    _last: f64,
    #[serde(rename = "last_steps")]
    _last_steps: u64,
    #[serde(rename = "interval_steps")]
    _interval_steps: Option<u64>,
    #[serde(rename = "interval_seconds")]
    _interval_seconds: Option<f64>,
    #[serde(rename = "initial_value")]
    _initial: bool,
}

/// Reads `checkpoint_info.json` of AReaL or one of its relatives: how often it was asked whether to act, which is once a step,
/// and how often it acts.
pub(crate) fn checks(file: &Reader<'_>, limits: &Limits) -> Result<(u64, Frequencies), Box<Finding>> {
    let f: Frequency = parse_object(&bytes(file, limits)?, 0)?;
    let frequencies = Frequencies {
        epochs: f.epoch.every,
        steps: f.step.every,
        secs: f.time.seconds.map(|s| s as i64),
    };
    Ok((f.step.steps.max(f.time.steps).max(f.epoch.steps), frequencies))
}

/// What `stats_logger_info.json` of AReaL says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatsInfo {
    #[serde(rename = "last_commit_step")]
    _committed: i64,
}

/// Reads `stats_logger_info.json` of AReaL.
pub(crate) fn stats_info(file: &Reader<'_>, limits: &Limits) -> Result<(), Box<Finding>> {
    parse_object::<StatsInfo>(&bytes(file, limits)?, 0).map(|_| ())
}

/// Reads `step_info.json` of AReaL, whose numbers follow from each other.
pub(crate) fn step_info(file: &Reader<'_>, limits: &Limits) -> Result<StepInfo, Box<Finding>> {
    let info: StepInfo = parse_object(&bytes(file, limits)?, 0)?;
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
pub(crate) fn fsdp_config(file: &Reader<'_>, limits: &Limits) -> Result<FsdpConfig, Box<Finding>> {
    let config: FsdpConfig = parse_object(&bytes(file, limits)?, 0)?;
    if config.world_size == 0 {
        return Err(Box::new(Finding::error(
            "json_content",
            Verdict::Damaged,
            "world_size is 0",
        )));
    }
    Ok(config)
}
