//! The configuration files that come with a request.

use serde_json::Value as Json;
use std::collections::BTreeMap;
use supervise_config::ConfigError;
use supervise_config::compose::{Found, Loader};

/// By name; of a file that is not among them this is known.
pub(crate) struct Files {
    texts: BTreeMap<String, String>,
    absent: Found,
}

impl Files {
    pub(crate) fn of(request: &Json, absent: Found) -> Self {
        Self {
            texts: serde_json::from_value(request["files"].clone()).unwrap_or_default(),
            absent,
        }
    }

    pub(crate) fn is_group(&self, group: &str) -> bool {
        !group.is_empty() && self.texts.keys().any(|file| file.starts_with(&format!("{group}/")))
    }
}

impl Loader for Files {
    fn load(&self, config: &str) -> Result<Found, ConfigError> {
        let file = format!("{config}.yaml");
        Ok(match self.texts.get(&file) {
            Some(text) => Found::Text {
                text: text.clone(),
                file,
            },
            None => self.absent.clone(),
        })
    }
}
