//! Other users' files: nothing that they name is executed or killed, whether a command acts or only looks.
//!
//! The tests play three users, which takes root. Without it each says so and passes; under `CI=true` it fails.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "trust/looking.rs"]
mod looking;
#[path = "trust/settings.rs"]
mod settings;
#[path = "trust/stage.rs"]
mod stage;
#[path = "trust/stop.rs"]
mod stop;
