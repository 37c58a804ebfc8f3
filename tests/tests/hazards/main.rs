//! One test for each thing that verl or AReaL does and that can hurt its users: what `supervise` makes of it.
//!
//! Each test says in its comment which hazard it shows, what the trainer does and what `supervise` does about it. `page` makes
//! `docs/hazards/verl.md` and `docs/hazards/areal.md` of these comments, and fails where a hazard has no test.
//!
//! `docs/hazards/hf.md` is written by hand; `page_hf` checks that the tests it names are there.
//!
//! `supervise` is the real program. What it looks at are genuine checkpoints and logs, damaged where the hazard is damage, and
//! a trainer in miniature where something has to run. What the trainer itself does in each case is shown by
//! `tests/real/verl_hazards.py` and `tests/real/areal_alone.py`.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod areal;
mod areal_bench;
mod areal_run;
mod bench;
mod page;
mod page_areal;
mod page_hf;
#[path = "../single_checkpoint/stage.rs"]
mod stage;
mod verl;

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");
