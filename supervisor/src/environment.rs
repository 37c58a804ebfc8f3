//! The environment of the workers (ours plus additions), and the wall clock.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use supervise_core::id::WallMs;
use supervise_host::service_manager::OWN_VARIABLES;

/// The wall clock in ms since 1970.
#[must_use]
pub(crate) fn wall() -> WallMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallMs(since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
}

/// Our own variables, except the service manager's. A value that is not UTF-8 is left out: no trainer reads one.
#[must_use]
pub(crate) fn own() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .filter(|(k, _)| !OWN_VARIABLES.contains(&k.as_str()))
        .collect()
}

/// Hides the values of variables with secret names from now on.
pub(crate) fn know_secrets() {
    for (name, value) in own() {
        supervise_config::know_secret(&name, &value);
    }
}

#[must_use]
pub(crate) fn user() -> String {
    supervise_host::process::user_name()
}

/// The user, for a request made on a page of `supervise serve`.
#[must_use]
pub(crate) fn user_on_a_page() -> String {
    format!("{} on a page", user())
}

/// Our own variables with these added or replaced.
#[must_use]
pub(crate) fn with<'a>(more: impl IntoIterator<Item = (&'a String, &'a String)>) -> BTreeMap<String, String> {
    let mut env = own();
    env.extend(more.into_iter().map(|(k, v)| (k.clone(), v.clone())));
    env
}
