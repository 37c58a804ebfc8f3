//! An invalid value of a setting.

use crate::tree::ConfigValue;

pub(super) struct SettingError {
    pub(super) wrong_type: bool,
    pub(super) message: String,
    pub(super) hint: String,
}

pub(super) fn wrong(message: impl Into<String>, hint: impl Into<String>) -> SettingError {
    SettingError {
        wrong_type: false,
        message: message.into(),
        hint: hint.into(),
    }
}

pub(super) fn wrong_type(value: &ConfigValue, wanted: &str, hint: impl Into<String>) -> SettingError {
    SettingError {
        wrong_type: true,
        message: format!("it is {}, it has to be {wanted}", value.type_name()),
        hint: hint.into(),
    }
}
