//! Chaos: seeded attacks on the real program with the demo trainer, round after round.
//!
//!     make chaos ROUNDS=20 [SEED=7] [ONLY=kills]
//!
//! Each kind of attack is a file beside this one and says what must hold afterwards. A round that fails prints what
//! broke and the numbers that repeat it; the other rounds go on. Exit code 0 means that every round held.
#![expect(clippy::unwrap_used, reason = "a round that breaks is caught and counted")]

mod copies;
mod damage;
mod journal;
mod kills;
mod stops;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::panic;
use std::process::ExitCode;
use std::time::Instant;

/// Rounds of each kind where none are asked for: what a pipeline can afford.
const ROUNDS: u64 = 2;

/// One kind of attack.
struct Attack {
    name: &'static str,
    claim: &'static str,
    round: fn(&mut Round),
}

const ATTACKS: [Attack; 5] = [
    Attack {
        name: "kills",
        claim: "SIGKILL to supervisor, guard, I/O workers, log writer, workers: the digest of a run that nothing interrupted",
        round: kills::round,
    },
    Attack {
        name: "stops",
        claim: "a stop at any moment, on a full disk and without helpers too: an exit with its code, no process left",
        round: stops::round,
    },
    Attack {
        name: "journal",
        claim: "journal, snapshot and newest step damaged: no resume from a damaged step, no second trainer",
        round: journal::round,
    },
    Attack {
        name: "damage",
        claim: "one change of a saved file's bytes: `verify` does not call the step whole",
        round: damage::round,
    },
    Attack {
        name: "copies",
        claim: "a copy of a whole step (cp, other times, other order): `verify` calls it whole",
        round: copies::round,
    },
];

/// One round: its random numbers, and what it counts.
pub(crate) struct Round {
    state: u64,
    supervise: String,
    counts: BTreeMap<&'static str, u64>,
}

impl Round {
    /// The next number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit.max(1)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let n = self.below(list.len() as u64);
        list.get(usize::try_from(n).unwrap_or(0))
    }

    /// Sleeps for less than so many milliseconds.
    pub(crate) fn pause(&mut self, limit: u64) {
        std::thread::sleep(std::time::Duration::from_millis(self.below(limit)));
    }

    /// Counts something for the table.
    pub(crate) fn count(&mut self, what: &'static str, n: u64) {
        *self.counts.entry(what).or_default() += n;
    }

    /// The program under attack.
    pub(crate) fn supervise(&self) -> &str {
        &self.supervise
    }
}

struct Wish {
    rounds: u64,
    seed: u64,
    only: Option<String>,
}

fn wish() -> Result<Wish, String> {
    let mut wish = Wish {
        rounds: ROUNDS,
        seed: 1,
        only: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(format!("{flag} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{flag} {value}: {e}"));
        match flag.as_str() {
            "--rounds" => wish.rounds = number()?,
            "--seed" => wish.seed = number()?,
            "--only" if ATTACKS.iter().any(|a| a.name == value) => wish.only = Some(value),
            _ => {
                return Err(format!(
                    "{flag} {value}: expected --rounds N, --seed N or --only kills|stops|journal|damage|copies"
                ));
            }
        }
    }
    Ok(wish)
}

/// Plays one round; `Err`: what broke.
fn play(attack: &Attack, seed: u64) -> (BTreeMap<&'static str, u64>, Result<(), String>) {
    let beside = std::env::current_exe().unwrap().with_file_name("supervise");
    let mut round = Round {
        // A state of zero would stay zero.
        state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        supervise: beside.display().to_string(),
        counts: BTreeMap::new(),
    };
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| (attack.round)(&mut round)));
    let said = result.map_err(|e| match e.downcast::<String>() {
        Ok(text) => *text,
        Err(e) => e
            .downcast_ref::<&str>()
            .map_or_else(|| "a panic".to_owned(), |s| (*s).to_owned()),
    });
    (round.counts, said)
}

fn main() -> ExitCode {
    let wish = match wish() {
        Ok(wish) => wish,
        Err(why) => {
            let _ = writeln!(io::stderr(), "chaos: {why}");
            return ExitCode::from(64);
        }
    };
    let mut out = io::stdout();
    let (mut held, mut failed) = (0, 0);
    for attack in ATTACKS
        .iter()
        .filter(|a| wish.only.as_ref().is_none_or(|o| o == a.name))
    {
        let began = Instant::now();
        let (mut counts, mut broken) = (BTreeMap::<&'static str, u64>::new(), 0);
        for seed in wish.seed..wish.seed + wish.rounds {
            let (found, result) = play(attack, seed);
            found.into_iter().for_each(|(k, n)| *counts.entry(k).or_default() += n);
            if let Err(why) = result {
                broken += 1;
                let _ = writeln!(
                    out,
                    "BROKEN: chaos --only {} --seed {seed} --rounds 1\n{why}",
                    attack.name
                );
            }
        }
        held += wish.rounds - broken;
        failed += broken;
        let numbers: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let _ = writeln!(
            out,
            "{:<8} {} of {} rounds held ({}), {} s: {}",
            attack.name,
            wish.rounds - broken,
            wish.rounds,
            numbers.join(", "),
            began.elapsed().as_secs(),
            attack.claim
        );
    }
    let _ = writeln!(out, "chaos: {held} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
