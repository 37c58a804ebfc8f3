//! Settings that are a word or a value.

use super::schema::{SettingKind, SettingType};
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// The time without progress that decides alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLimitChoice {
    /// From the run's own step times.
    Auto,
    /// No limit.
    Never,
    After(Duration),
}

impl SettingType for HardLimitChoice {
    const KIND: SettingKind = SettingKind::Limit;
}

impl<'de> Deserialize<'de> for HardLimitChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The schema lets two words and durations through; the layer writes durations as milliseconds.
        match String::deserialize(deserializer)?.as_str() {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            text => text
                .parse()
                .map(|ms| Self::After(Duration::from_millis(ms)))
                .map_err(serde::de::Error::custom),
        }
    }
}

/// The workers' devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuChoice {
    Auto,
    None,
    List(Vec<u32>),
}

impl SettingType for GpuChoice {
    const KIND: SettingKind = SettingKind::Gpus;
}

impl<'de> Deserialize<'de> for GpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The schema lets `auto`, `none` and lists through; the layer writes the words as one-element lists of text.
        let items = Vec::<String>::deserialize(deserializer)?;
        match items.first().map(String::as_str) {
            Some("auto") => Ok(Self::Auto),
            Some("none") => Ok(Self::None),
            _ => items
                .iter()
                .map(|item| item.parse().map_err(serde::de::Error::custom))
                .collect::<Result<_, _>>()
                .map(Self::List),
        }
    }
}
