//! Tries a relaunch in advance: does this trainer release accept the overrides of a resume?
//!
//! `plan --rehearse` tries it while the user waits. A run tries it at low priority once its workers run. Both use a separate helper
//! process, as does everything that asks the trainer for its configuration.

mod helper;
mod question;

pub use helper::{RehearsalJob, command, helper};
pub(crate) use question::{InterpreterProbe, ProbeFailure};

use crate::environment;
use crate::render::{one_line, shown_word};
use crate::run_order::RunOrder;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use supervise_config::{ConfigValue, python_str, redact, redact_words};
use supervise_core::checkpoint::{CkptId, Finding, PinsHash};
use supervise_core::event::ExitStatus;
use supervise_core::event::rehearsal::RehearsalResult;
use supervise_core::id::{AttemptNo, Step};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_host::interpreter;
use supervise_host::process::capture::{CaptureCommand, capture};
use supervise_trainers::registry::adapters;
use supervise_trainers::rehearsal::{calls, differences, last_complaint, refused_key, sets};
use supervise_trainers::{HostFacts, LaunchPlan, adapter, hydra};

/// Importing the trainer takes ten seconds, or minutes at low priority.
const PATIENCE: Duration = Duration::from_secs(300);
/// Timeout for the trainer's configuration while the user waits. A command that takes longer is probably training.
pub(crate) const ASKED: Duration = Duration::from_secs(120);
/// Longest output, in bytes; a configuration has some tens of kilobytes.
const OUTPUT: usize = 4 << 20;
/// Longest error output, in bytes, from its end.
const ERRORS: usize = 64 << 10;
/// Longest quoted message, in characters.
const SAID: usize = 300;
/// Shorter values are not hidden: they may occur in any word.
const SHORTEST: usize = 4;
/// Variables that hide devices: a rehearsal must not use any.
const DEVICES: [&str; 4] = [
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
];

/// The rehearsal to make. It contains the environment, so it is sent only through a pipe.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsalTrial {
    /// The command of the relaunch.
    argv: Vec<String>,
    /// The command as the user wrote it.
    plain: Vec<String>,
    /// Overrides that the relaunch adds.
    overrides: Vec<String>,
    env: Vec<(String, String)>,
    cwd: Utf8PathBuf,
}

/// The output of an interpreter.
#[derive(Serialize, Deserialize)]
struct RehearsalOutput {
    status: ExitStatus,
    output: String,
    errors: String,
}

/// Lets the trainer compose the configuration of a resume, and reports what it rejects.
#[must_use]
pub fn rehearse(p: &RunOrder) -> Vec<Finding> {
    let result = match trial(p) {
        Ok(trial) => helper::done(&RehearsalJob::Try(trial)).unwrap_or_else(|why| RehearsalResult::Unknown { why }),
        Err(why) => RehearsalResult::Unknown { why },
    };
    match result {
        RehearsalResult::Taken => Vec::new(),
        RehearsalResult::Refused { what } => what
            .into_iter()
            .map(|w| Finding::warning("override_unknown", w))
            .collect(),
        RehearsalResult::Unknown { why } => vec![not_rehearsed(&why)],
    }
}

/// The finding for a relaunch that was not tried.
#[must_use]
pub fn not_rehearsed(why: &str) -> Finding {
    Finding::note("not_rehearsed", format!("a relaunch was not rehearsed: {why}"))
}

/// The trial of the launch that would follow a failure after the first save.
///
/// # Errors
/// Why there is nothing to try.
pub fn trial(p: &RunOrder) -> Result<RehearsalTrial, String> {
    let plan = resume(p)?;
    let (argv, plain) = calls(&p.spec, &plan)?;
    let mut env = environment::with(&p.spec.env);
    let learnt = p.spec.learnt.as_ref();
    env.extend(learnt.iter().flat_map(|l| l.env.clone()));
    Ok(RehearsalTrial {
        argv,
        plain,
        overrides: plan.overrides,
        env: env.into_iter().collect(),
        cwd: learnt.map_or(&p.spec.cwd, |l| &l.cwd).clone(),
    })
}

/// The launch that would follow a failure after the first save.
fn resume(p: &RunOrder) -> Result<LaunchPlan, String> {
    let order = LaunchOrder {
        attempt: AttemptNo(2),
        from: StartPoint::Step {
            ckpt: CkptId("global_step_1".into()),
            step: Step(1),
            pins: PinsHash(0),
            load: ["model", "optimizer", "extra"].map(str::to_owned).to_vec(),
            roles: BTreeMap::new(),
        },
        lost: Vec::new(),
        nodes: 1,
    };
    let host = HostFacts {
        env: environment::own(),
        trainer: p.facts.clone(),
        began: 1,
    };
    // A program that trains instead of composing must find nothing to resume from and nowhere to save.
    let mut spec = p.spec.clone();
    spec.root = spec.root.map(|root| format!("/dev/null{root}").into());
    adapter(spec.trainer).arrange(&spec, &order, &host).map_err(|r| r.text)
}

/// Runs the trial. Blocks while the trainer is imported, so not for an event loop.
#[must_use]
fn carry_out(trial: &RehearsalTrial, stop: Option<BorrowedFd<'_>>) -> RehearsalResult {
    judged(trial, stop).unwrap_or_else(|why| RehearsalResult::Unknown {
        why: one_line(&why, SAID),
    })
}

fn judged(t: &RehearsalTrial, stop: Option<BorrowedFd<'_>>) -> Result<RehearsalResult, String> {
    let said = composed(t, &t.argv, stop)?;
    if said.status.is_success() {
        let told = differences(&t.overrides, &said.output).ok_or_else(|| "no configuration was printed".to_owned())?;
        let words = |told: String| {
            format!(
                "a relaunch would not get what it is given: {}",
                without_secrets(t, &told)
            )
        };
        return Ok(match told.is_empty() {
            true => RehearsalResult::Taken,
            false => refused(told.into_iter().map(words).collect()),
        });
    }
    if let Some(key) = refused_key(&said.errors) {
        let whose = if sets(&t.overrides, key) {
            "a relaunch would fail: this release does not take an override of"
        } else {
            "every launch would fail: this release does not take the command's own override of"
        };
        return Ok(refused(vec![format!("{whose} {}", one_line(key, SAID))]));
    }
    // The error names no override: find out whose fault it is.
    let last = last_line(t, &said.errors);
    let plain = composed(t, &t.plain, stop)?;
    if !plain.status.is_success() {
        return Err(format!(
            "the trainer's configuration is not composed, not even as it is written ({}): {}",
            plain.status,
            last_line(t, &plain.errors)
        ));
    }
    let ours: Vec<String> = t.overrides.iter().map(|o| shown_word(o)).collect();
    Ok(refused(vec![format!(
        "a relaunch would fail: the configuration is composed as it is written, and not with {}: {last}",
        ours.join(" ")
    )]))
}

fn refused(what: Vec<String>) -> RehearsalResult {
    RehearsalResult::Refused { what }
}

fn composed(t: &RehearsalTrial, argv: &[String], stop: Option<BorrowedFd<'_>>) -> Result<RehearsalOutput, String> {
    let words = adapters()
        .find_map(|a| a.rehearsed(argv))
        .ok_or_else(|| "the command names no entry point that can be tried".to_owned())?;
    printed(t, argv, &words, PATIENCE, stop)
}

/// The interpreter of a command with other arguments, and its environment: no devices, and no bytecode files next to the user's.
fn call(
    t: &RehearsalTrial,
    argv: &[String],
    words: &[String],
) -> Result<(Vec<String>, BTreeMap<String, String>), String> {
    let mut env: BTreeMap<String, String> = t.env.iter().cloned().collect();
    let python = interpreter::find(argv, &t.cwd, &env)?;
    env.extend(python.env);
    env.extend(DEVICES.map(|name| (name.to_owned(), String::new())));
    env.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    let own = python.words.into_iter().chain(python.flags);
    Ok((own.chain(words.iter().cloned()).collect(), env))
}

/// The output of the command's interpreter for these arguments.
fn printed(
    t: &RehearsalTrial,
    argv: &[String],
    words: &[String],
    limit: Duration,
    stop: Option<BorrowedFd<'_>>,
) -> Result<RehearsalOutput, String> {
    let (argv, env) = call(t, argv, words)?;
    let env: Vec<(String, String)> = env.into_iter().collect();
    let errand = CaptureCommand {
        input: &[],
        argv: &argv,
        env: &env,
        cwd: t.cwd.as_str(),
        limit,
        output: OUTPUT,
        errors: ERRORS,
        stop,
    };
    let said = capture(&errand).map_err(|e| e.to_string())?;
    Ok(RehearsalOutput {
        status: said.status,
        output: String::from_utf8_lossy(&said.output).into_owned(),
        errors: String::from_utf8_lossy(&said.errors).into_owned(),
    })
}

/// The last error message, without values that may be secrets.
fn last_line(t: &RehearsalTrial, errors: &str) -> String {
    one_line(&without_secrets(t, last_complaint(errors)), SAID)
}

/// A text without the secrets of the command and its environment, quoted or not.
fn without_secrets(t: &RehearsalTrial, text: &str) -> String {
    let mut secrets: Vec<String> = Vec::new();
    for words in [&t.argv, &t.plain] {
        for (word, _) in words
            .iter()
            .zip(redact_words(words))
            .filter(|(word, shown)| *word != shown)
        {
            secrets.push(
                word.split_once('=')
                    .map_or(word.as_str(), |(_, value)| value)
                    .to_owned(),
            );
            let value = hydra::parse(word).ok().and_then(|change| change.value);
            secrets.extend(value.iter().flat_map(texts));
        }
    }
    let hidden = t.env.iter().filter(|(name, value)| redact(name, value) != *value);
    secrets.extend(hidden.flat_map(|(_, value)| value.lines().map(str::to_owned)));
    secrets.retain(|secret| secret.len() >= SHORTEST);
    // Longest first: one may be part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
        .iter()
        .fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
}

fn texts(value: &ConfigValue) -> Vec<String> {
    match value {
        ConfigValue::Map(map) => map.iter().flat_map(|(_, node)| texts(&node.value)).collect(),
        ConfigValue::List(items) => items.iter().flat_map(|node| texts(&node.value)).collect(),
        value => vec![python_str(value)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A stand-in for an interpreter: a shell script named `python3`, so that it counts as one.
    fn trial_of(script: &str) -> (tempfile::TempDir, RehearsalTrial) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let python = dir.path().join("python3");
        std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let words = |more: &[&str]| -> Vec<String> {
            let call = [python.to_str().unwrap(), "-m", "verl.trainer.main_ppo", "trainer.a=1"];
            call.iter().chain(more).map(|w| (*w).to_owned()).collect()
        };
        let trial = RehearsalTrial {
            argv: words(&["trainer.n=5"]),
            plain: words(&[]),
            overrides: vec!["trainer.n=5".to_owned()],
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            cwd: "/".into(),
        };
        (dir, trial)
    }

    fn result(script: &str) -> RehearsalResult {
        let (_dir, trial) = trial_of(script);
        carry_out(&trial, None)
    }

    fn told(script: &str) -> String {
        match result(script) {
            RehearsalResult::Refused { what } => what.join("; "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_composed_is_compared() {
        assert_eq!(result("printf 'trainer:\\n  n: 5\\n'"), RehearsalResult::Taken);
        assert!(told("printf 'trainer:\\n  n: 6\\n'").contains("has 6"));
        let nothing = result("echo hello");
        assert!(matches!(nothing, RehearsalResult::Unknown { .. }), "{nothing:?}");
    }

    #[test]
    fn an_override_that_is_not_known_is_named_with_whose_it_is() {
        let ours = told("echo \"Could not override 'trainer.n'.\" >&2; exit 1");
        assert!(
            ours.contains("relaunch would fail") && ours.ends_with("trainer.n"),
            "{ours}"
        );
        let theirs = told("echo \"Could not override 'trainer.a'.\" >&2; exit 1");
        assert!(theirs.contains("the command's own override of trainer.a"), "{theirs}");
    }

    #[test]
    fn without_a_name_the_configuration_as_written_tells_whose_fault_it_is() {
        let ours = told("case \"$*\" in *n=5*) echo 'ValueError: why' >&2; exit 1;; esac; echo trainer: {}");
        assert!(
            ours.contains("not with trainer.n=5") && ours.contains("ValueError: why"),
            "{ours}"
        );
        let nobody = result("echo 'ModuleNotFoundError: no verl' >&2; exit 1");
        let RehearsalResult::Unknown { why } = nobody else {
            panic!("{nobody:?}")
        };
        assert!(
            why.contains("not even as it is written") && why.contains("no verl"),
            "{why}"
        );
    }

    #[test]
    fn a_value_that_may_be_a_secret_is_told_nowhere() {
        let (_dir, mut trial) =
            trial_of("case \"$*\" in *n=5*) echo 'ValueError: abc123' >&2; exit 1;; esac; echo trainer: {}");
        trial.argv.push("trainer.api_key=abc123".to_owned());
        trial.overrides.push("trainer.api_key=abc123".to_owned());
        let text = format!("{:?}", carry_out(&trial, None));
        assert!(text.contains("ValueError: ***") && !text.contains("abc123"), "{text}");
    }

    #[test]
    fn no_spelling_of_a_secret_is_told() {
        let (_dir, mut trial) = trial_of("");
        trial.argv.push("+env={api_key: 'a b\\'c', n: 1}".to_owned());
        trial
            .plain
            .extend(["--token", "hush", "trainer.api_key='long one'"].map(str::to_owned));
        trial.env.push(("MY_TOKEN".to_owned(), "first\nsecond".to_owned()));
        for (said, told) in [
            ("E: a b'c at 1", "E: *** at 1"),
            ("E: 'long one' and long one", "E: *** and ***"),
            ("hush first, second", "*** ***, ***"),
            ("api_key=abcdef12345", "api_key=***"),
            ("verl.trainer.main_ppo", "verl.trainer.main_ppo"),
        ] {
            assert_eq!(last_line(&trial, said), told, "{said}");
        }
        let long = "x".repeat(SAID - 6) + "long one";
        assert!(!last_line(&trial, &long).contains("lo"));
    }

    #[test]
    fn nobody_who_waits_ends_it() {
        let (_dir, trial) = trial_of("exec sleep 1000");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let result = carry_out(&trial, Some(reader.as_fd()));
        assert!(matches!(result, RehearsalResult::Unknown { .. }), "{result:?}");
    }
}
