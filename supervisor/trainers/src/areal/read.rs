//! AReaL's configuration as the parts of a run's specification.

use crate::read::{ReadInput, ReadOutput};
use supervise_config::{ConfigError, ErrorKind};

/// Reads a configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn read(_input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
    Err(vec![ConfigError::new(
        ErrorKind::BadValue,
        "AReaL's configuration is not read yet",
    )])
}
