//! AReaL's adapter, over configurations and commands as users write them.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod case;
mod dialect;
mod launch;
mod own;
mod ray;
mod reading;
mod rules;
