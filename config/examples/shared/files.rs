//! The configuration files that come with a request.

use serde_json::Value as Json;
use std::collections::BTreeMap;
use supervise_config::ConfigError;
use supervise_config::compose::{ConfigLoader, LoadResult};

/// By name; of a file that is not among them this is known.
pub(crate) struct ExampleFiles {
    texts: BTreeMap<String, String>,
    absent: LoadResult,
}

impl ExampleFiles {
    pub(crate) fn of(request: &Json, absent: LoadResult) -> Self {
        Self {
            texts: serde_json::from_value(request["files"].clone()).unwrap_or_default(),
            absent,
        }
    }

    pub(crate) fn is_group(&self, group: &str) -> bool {
        !group.is_empty() && self.texts.keys().any(|file| file.starts_with(&format!("{group}/")))
    }
}

impl ConfigLoader for ExampleFiles {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        let file = format!("{config}.yaml");
        Ok(match self.texts.get(&file) {
            Some(text) => LoadResult::Text {
                text: text.clone(),
                file,
            },
            None => self.absent.clone(),
        })
    }
}
