//! One test for each thing that verl does and that can hurt its users: what `supervise` makes of it.
//!
//! Each test says in its comment which hazard it shows, what verl does and what `supervise` does about it. `page` makes
//! `docs/verl-hazards.md` of these comments, and fails where a hazard has no test.
//!
//! `supervise` is the real program. What it looks at are genuine checkpoints and logs of verl, damaged where the hazard
//! is damage, and a trainer in miniature where something has to run. What verl itself does in each case is shown by
//! `tests/real/verl_hazards.py`.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod bench;
mod page;
mod verl;

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");
