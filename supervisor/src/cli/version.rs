//! `supervise --version --json`: identifies the build.

use crate::error::CliError;
use serde::Serialize;

/// The build of this program. Fields are only ever added.
#[derive(Debug, Serialize)]
struct VersionView {
    name: &'static str,
    version: &'static str,
    /// The commit, with `-dirty` if the tree had changes; `null`: not built by the Makefile of a clone.
    commit: Option<&'static str>,
    build: Build,
    /// Optional parts that were compiled in.
    features: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Build {
    target: &'static str,
    profile: &'static str,
    rustc: &'static str,
}

pub(super) fn print() -> Result<(), CliError> {
    super::print_json(&VersionView {
        name: "supervise",
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("BUILD_OF_COMMIT").filter(|c| !c.is_empty()),
        build: Build {
            target: env!("BUILD_OF_TARGET"),
            profile: env!("BUILD_OF_PROFILE"),
            rustc: env!("BUILD_OF_RUSTC"),
        },
        features: env!("BUILD_OF_FEATURES").split(',').filter(|f| !f.is_empty()).collect(),
    })
}
