//! The script language: one line, one thing. What the property tests generate is text in this language too, so
//! a failing case is its own replay.

use supervise_core::event::rehearsal::RehearsalResult;
use supervise_core::event::{ActErrorKind, ExitStatus, TrackerState};
use supervise_core::id::Step;
use supervise_core::spec::script::ScriptNews;

/// State of a step on the simulated disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    Whole,
    /// Whole without its data order.
    Degraded,
    /// Whole, but of another world size.
    Unfit,
    Torn,
    /// Damaged, but all of it except the optimizer is whole.
    NoOptimizer,
    /// Damaged, but all of it except the dataloader's state is whole.
    NoData,
    Damaged,
    /// Only a proof of every byte sees the damage.
    Rotten,
    Unsafe,
    /// Whole, and it names what torch does not.
    Strange,
    /// Whole, and files of it belong to another user.
    Others,
    Unreadable,
    Husk,
    Unknown,
}

impl Truth {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "whole" => Self::Whole,
            "degraded" => Self::Degraded,
            "unfit" => Self::Unfit,
            "torn" => Self::Torn,
            "no-optimizer" => Self::NoOptimizer,
            "no-data" => Self::NoData,
            "damaged" => Self::Damaged,
            "rotten" => Self::Rotten,
            "unsafe" => Self::Unsafe,
            "strange" => Self::Strange,
            "others" => Self::Others,
            "unreadable" => Self::Unreadable,
            "husk" => Self::Husk,
            "unknown" => Self::Unknown,
            _ => return None,
        })
    }

    /// The bytes are what the trainer wrote.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Whole | Self::Degraded | Self::Unfit | Self::Strange)
    }
}

/// Place where the simulated trainer fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Start,
    /// At the load of this step.
    Load(u64),
    Step(u64),
    Save(u64),
}

/// Act of the simulated trainer there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misdeed {
    /// A rank ends, after a line that the failure table sorts.
    Exit {
        rank: u32,
        status: ExitStatus,
        class: Option<String>,
    },
    /// Nothing more happens; `busy`: it computes on.
    Hang { busy: bool },
    /// All workers end with success.
    Quit,
    /// It starts from scratch, and says so or does not.
    Forget { says: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) what: Misdeed,
    pub(crate) times: u32,
}

/// The guarded act that fails next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failing {
    Launch,
    Arrange,
    Prune,
    Keep,
    Ask,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verb {
    /// Options of the specification, the policy and the trainer.
    Spec(Vec<String>),
    Disk(Vec<(Truth, u64)>),
    Live(Vec<(Truth, u64)>),
    Kept(Vec<(Truth, u64)>),
    /// The same save is written once more: its bytes are the same, its files are not.
    Rewrite,
    Own(Vec<(Truth, u64)>),
    Older(Truth, u64),
    Elsewhere(Truth, u64),
    Remove(u64),
    Tracker(TrackerState),
    Fault(Fault),
    ActFails {
        act: Failing,
        kind: ActErrorKind,
        retryable: bool,
        times: u32,
    },
    Exit {
        rank: u32,
        status: ExitStatus,
    },
    Stop {
        after_save: bool,
    },
    StopNow,
    /// A person asks for a save.
    Save,
    /// A person works on the run from now on, or is done.
    Hold {
        on: bool,
    },
    /// A person lets the run go on after an end that needed one.
    Resume,
    /// A person sends the run back to this step.
    RollBack(u64),
    /// A scheduler's SIGTERM: it kills everything after this.
    StopWithin(u64),
    /// The machine is taken away after this.
    HandBack(u64),
    /// A scheduler's job that ends after this.
    Job(u64),
    Suspend(u64),
    Journal {
        stalls: bool,
    },
    IoWorker {
        hangs: bool,
    },
    LeaseLost,
    LeaseSilent,
    Displaced,
    /// Result of a relaunch that is tried in advance.
    Rehearsal(RehearsalResult),
    /// The script of the present attempt does what it should not.
    Script(ScriptNews),
    /// The trainer says that it brings a part of itself back in place.
    Heals,
    /// One that hangs gets on.
    GetsOn,
    SupervisorDies,
    GuardDies,
    /// SIGKILL is not carried out, and nobody says so.
    GuardHangs,
    /// Nothing dies for so long.
    Unkillable(u64),
    NewTerm(Vec<String>),
    Reboot,
    /// An event of an older attempt arrives.
    Late {
        attempt: u32,
        gone: bool,
    },
    /// So many MiB are free on the disk from now on.
    Free(u64),
    /// So many files can be made on the disk from now on.
    Files(u64),
    /// The disk refuses what is written, or works again.
    Writes {
        refused: bool,
    },
    /// The script ends here.
    Until,
}

/// A script: what happens when, in ms.
pub(crate) type Script = Vec<(u64, Verb)>;

/// Parses a script.
///
/// # Errors
/// The first line that is none.
pub(crate) fn parse(text: &str) -> Result<Script, String> {
    let mut out = Vec::new();
    let mut term = false;
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (at, rest) = match words.as_slice() {
            ["at", time, rest @ ..] => (span(time), rest),
            rest => (Some(0), rest),
        };
        let parsed = at.and_then(|at| verb(rest).map(|v| (at, v)));
        let Some((at, v)) = parsed else {
            return Err(format!("line {}: {line:?} is not understood", n + 1));
        };
        if at > 0 && !term {
            term = true;
        }
        out.push((at, v));
    }
    out.sort_by_key(|(at, _)| *at);
    Ok(out)
}

/// `500ms`, `10s`, `3m`, `2h` in ms.
pub(crate) fn span(word: &str) -> Option<u64> {
    let split = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = word.split_at(split);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()? * factor)
}

fn verb(words: &[&str]) -> Option<Verb> {
    Some(match words {
        ["spec", options @ ..] => Verb::Spec(owned(options)),
        ["disk", rest @ ..] => Verb::Disk(steps(rest)?),
        ["live", rest @ ..] => Verb::Live(steps(rest)?),
        ["kept", rest @ ..] => Verb::Kept(steps(rest)?),
        ["rewrite"] => Verb::Rewrite,
        ["free", mib] => Verb::Free(mib.parse().ok()?),
        ["files", n] => Verb::Files(n.parse().ok()?),
        ["writes", what] => Verb::Writes {
            refused: either(what, "refused", "work")?,
        },
        ["own", rest @ ..] => Verb::Own(steps(rest)?),
        ["older", truth, step] => Verb::Older(Truth::parse(truth)?, step.parse().ok()?),
        ["elsewhere", truth, step] => Verb::Elsewhere(Truth::parse(truth)?, step.parse().ok()?),
        ["zombie_write", "step", n] => Verb::Disk(vec![(Truth::Whole, n.parse().ok()?)]),
        ["remove", n] => Verb::Remove(n.parse().ok()?),
        ["tracker", word] => Verb::Tracker(tracker(word)),
        ["fail" | "hang" | "quit" | "forget", ..] => Verb::Fault(fault(words)?),
        ["launch", "fails", "gpu", "busy", "times", n] => Verb::ActFails {
            act: Failing::Launch,
            kind: ActErrorKind::GpuBusy,
            retryable: true,
            times: n.parse().ok()?,
        },
        ["launch", "fails", "gpu", "unfit"] => Verb::ActFails {
            act: Failing::Launch,
            kind: ActErrorKind::GpuUnfit,
            retryable: false,
            times: 1,
        },
        ["launch", "fails", rest @ ..] => act_fails(Failing::Launch, rest)?,
        ["arrange", "fails", rest @ ..] => act_fails(Failing::Arrange, rest)?,
        ["keep", "fails", rest @ ..] => act_fails(Failing::Keep, rest)?,
        ["prune", "fails", rest @ ..] => act_fails(Failing::Prune, rest)?,
        ["exit", "rank", rank, rest @ ..] => Verb::Exit {
            rank: rank.parse().ok()?,
            status: status(rest)?.0,
        },
        ["stop"] => Verb::Stop { after_save: false },
        ["stop", "after-save"] => Verb::Stop { after_save: true },
        ["stop", "now"] => Verb::StopNow,
        ["save"] => Verb::Save,
        ["ask", "fails", rest @ ..] => act_fails(Failing::Ask, rest)?,
        ["hold"] => Verb::Hold { on: true },
        ["unhold"] => Verb::Hold { on: false },
        ["resume"] => Verb::Resume,
        ["roll", "back", n] => Verb::RollBack(n.parse().ok()?),
        ["stop", "within", time] => Verb::StopWithin(span(time)?),
        ["hand-back", time] => Verb::HandBack(span(time)?),
        ["job", time] => Verb::Job(span(time)?),
        ["suspend", time] => Verb::Suspend(span(time)?),
        ["journal", what] => Verb::Journal {
            stalls: either(what, "stall", "recover")?,
        },
        ["io", what] => Verb::IoWorker {
            hangs: either(what, "hang", "recover")?,
        },
        ["lease", "lost"] => Verb::LeaseLost,
        ["lease", "silent"] => Verb::LeaseSilent,
        ["place", "lost"] => Verb::Displaced,
        ["rehearsal", word, rest @ ..] => Verb::Rehearsal(rehearsed(word, rest)?),
        ["script", "past", "us"] => Verb::Script(ScriptNews::Unmarked {
            what: "python3 -m verl.trainer.main_ppo".to_owned(),
        }),
        ["script", "again"] => Verb::Script(ScriptNews::Again),
        ["script", "refused"] => Verb::Script(ScriptNews::Refused {
            why: "trainer.save_freq was `5`, it is `6` now".to_owned(),
        }),
        ["heals"] => Verb::Heals,
        ["gets", "on"] => Verb::GetsOn,
        ["supervisor", "dies"] => Verb::SupervisorDies,
        ["guard", "dies"] => Verb::GuardDies,
        ["guard", "hangs"] => Verb::GuardHangs,
        ["unkillable", time] => Verb::Unkillable(span(time)?),
        ["new", "term", options @ ..] => Verb::NewTerm(owned(options)),
        ["reboot"] => Verb::Reboot,
        ["late", what, "attempt", n] => Verb::Late {
            attempt: n.parse().ok()?,
            gone: either(what, "gone", "exit")?,
        },
        ["end"] => Verb::Until,
        _ => return None,
    })
}

/// `taken`, `refused KEY`, `unknown`.
fn rehearsed(word: &str, rest: &[&str]) -> Option<RehearsalResult> {
    Some(match word {
        "taken" => RehearsalResult::Taken,
        "refused" => RehearsalResult::Refused { what: owned(rest) },
        "unknown" => RehearsalResult::Unknown {
            why: "verl cannot be imported".to_owned(),
        },
        _ => return None,
    })
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn either(word: &str, yes: &str, no: &str) -> Option<bool> {
    if word == yes {
        Some(true)
    } else if word == no {
        Some(false)
    } else {
        None
    }
}

fn steps(words: &[&str]) -> Option<Vec<(Truth, u64)>> {
    let mut out = Vec::new();
    let mut truth = Truth::Whole;
    for w in words {
        match Truth::parse(w) {
            Some(t) => truth = t,
            None => out.push((truth, w.parse().ok()?)),
        }
    }
    Some(out)
}

fn tracker(word: &str) -> TrackerState {
    match (word, word.parse()) {
        ("missing", _) => TrackerState::Missing,
        ("empty", _) => TrackerState::Empty,
        ("unused", _) => TrackerState::Unused,
        ("link", _) => TrackerState::NotAFile("a symbolic link".to_owned()),
        (_, Ok(n)) => TrackerState::Step(Step(n)),
        (text, _) => TrackerState::Garbage(text.to_owned()),
    }
}

/// `signal KILL …` or `code 3 …`, and the rest.
fn status<'a>(words: &'a [&'a str]) -> Option<(ExitStatus, &'a [&'a str])> {
    Some(match words {
        ["signal", name, rest @ ..] => (ExitStatus::Signal(signal(name)?), rest),
        ["code", n, rest @ ..] => (ExitStatus::Code(n.parse().ok()?), rest),
        _ => return None,
    })
}

fn signal(name: &str) -> Option<i32> {
    Some(match name {
        "KILL" => 9,
        "TERM" => 15,
        "SEGV" => 11,
        "BUS" => 7,
        "ABRT" => 6,
        other => other.parse().ok()?,
    })
}

/// `fail step 5 rank 1 signal KILL [class mem.cuda_oom] [times 2]`, `hang step 5 [busy]`, `quit step 4`,
/// `forget start [silent]`.
fn fault(words: &[&str]) -> Option<Fault> {
    let (word, rest) = words.split_first()?;
    let (place, mut rest) = match rest {
        ["start", rest @ ..] => (Place::Start, rest),
        ["load", n, rest @ ..] => (Place::Load(n.parse().ok()?), rest),
        ["step", n, rest @ ..] => (Place::Step(n.parse().ok()?), rest),
        ["save", n, rest @ ..] => (Place::Save(n.parse().ok()?), rest),
        _ => return None,
    };
    let mut rank = 0;
    if let ["rank", n, more @ ..] = rest {
        rank = n.parse().ok()?;
        rest = more;
    }
    let what = match *word {
        "fail" => {
            let (status, more) = status(rest)?;
            rest = more;
            let mut class = None;
            if let ["class", c, more @ ..] = rest {
                class = Some((*c).to_owned());
                rest = more;
            }
            Misdeed::Exit { rank, status, class }
        }
        "hang" => Misdeed::Hang {
            busy: flag(&mut rest, "busy"),
        },
        "quit" => Misdeed::Quit,
        _ => Misdeed::Forget {
            says: !flag(&mut rest, "silent"),
        },
    };
    let times = match rest {
        [] => 1,
        ["always"] => u32::MAX,
        ["times", n] => n.parse().ok()?,
        _ => return None,
    };
    Some(Fault { place, what, times })
}

fn flag(rest: &mut &[&str], word: &str) -> bool {
    if rest.first() == Some(&word) {
        *rest = &rest[1..];
        return true;
    }
    false
}

fn act_fails(act: Failing, words: &[&str]) -> Option<Verb> {
    let (word, rest) = words.split_first()?;
    let (kind, retryable) = match *word {
        "command" => (ActErrorKind::Command, false),
        "pins" => (ActErrorKind::PinsChanged, true),
        "disk" => (ActErrorKind::Disk, true),
        "disk-for-good" => (ActErrorKind::Disk, false),
        "other" => (ActErrorKind::Other, true),
        "held" => (ActErrorKind::Held, true),
        "voided" => (ActErrorKind::Voided, true),
        "no-room" => (ActErrorKind::NoRoom, true),
        "not-cut" => (ActErrorKind::NotCut, false),
        "not-whole" => (ActErrorKind::NotWhole, false),
        _ => return None,
    };
    let times = match rest {
        [] => 1,
        ["times", n] => n.parse().ok()?,
        _ => return None,
    };
    Some(Verb::ActFails {
        act,
        kind,
        retryable,
        times,
    })
}
