//! The environment that the workers get: ours, and what is added to it.

use std::collections::BTreeMap;

/// Our own variables. One that is not UTF-8 is left out: no trainer reads one.
#[must_use]
pub(crate) fn own() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect()
}

/// Our own variables, with these set or set otherwise.
#[must_use]
pub(crate) fn with<'a>(more: impl IntoIterator<Item = (&'a String, &'a String)>) -> BTreeMap<String, String> {
    let mut env = own();
    env.extend(more.into_iter().map(|(k, v)| (k.clone(), v.clone())));
    env
}
