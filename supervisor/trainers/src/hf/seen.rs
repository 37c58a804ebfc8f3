//! A training as reported by its own process (`hook.py`): untrusted bytes, read with limits.

use super::HF;
use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use supervise_core::id::Step;
use supervise_core::spec::seen::TrainerSeen;

/// Runs in the trainer's interpreter.
pub(crate) const HOOK: &str = include_str!("hook.py");
/// The step that the hook may pass to the trainer.
pub(crate) const STEP_VARIABLE: &str = "SUPERVISE_STEP";
const LINES: usize = 64;
const LONGEST: usize = 4096;

/// One line; values of the wrong type are rejected.
#[derive(Debug, Deserialize)]
struct HookReport {
    root: Utf8PathBuf,
    strategy: String,
    save_steps: serde_json::Value,
    keep: Option<u32>,
    max_steps: i64,
    count: u32,
    asks: bool,
    given: Option<Utf8PathBuf>,
    steps: u64,
    took: bool,
}

#[derive(Debug, Deserialize)]
struct HookFailure {
    failed: String,
}

/// The name of the exception with which the hook failed, if it therefore saw no training.
pub(crate) fn failed(text: &str) -> Option<String> {
    let is_name = |name: &String| !name.is_empty() && name.len() <= 64 && name.chars().all(char::is_alphanumeric);
    let mut lines = text.lines().take(LINES);
    let found = lines.find_map(|line| serde_json::from_str::<HookFailure>(line).ok())?;
    (seen(text, None).is_none() && is_name(&found.failed)).then_some(found.failed)
}

/// The training that started first, and why it is only observed; `None`: there was none. `known`: what an earlier
/// attempt reported.
pub(crate) fn seen(text: &str, known: Option<&TrainerSeen>) -> Option<TrainerSeen> {
    let told = |line: &str| serde_json::from_str::<HookReport>(line).ok();
    let all: Vec<HookReport> = text.lines().take(LINES).filter_map(told).collect();
    let first = all.iter().find(|t| t.count == 1 && is_place(&t.root))?;
    let again = all.iter().find(|t| t.count > 1);
    let every = (first.strategy == "steps").then(|| first.save_steps.as_u64()).flatten();
    Some(TrainerSeen {
        trainer: HF,
        root: first.root.clone(),
        every: every.filter(|n| *n > 0),
        keep: first.keep,
        last_step: u64::try_from(first.max_steps).ok().filter(|n| *n > 0).map(Step),
        asks: first.asks,
        watched: known
            .and_then(|k| k.watched.clone())
            .or_else(|| unfit(first, again, known)),
    })
}

/// Why steps of this training may not belong to this run, or would not be loaded.
fn unfit(first: &HookReport, again: Option<&HookReport>, known: Option<&TrainerSeen>) -> Option<String> {
    let inside = |path: &Utf8PathBuf| path.parent() == Some(first.root.as_path());
    if let Some(again) = again {
        return Some(match again.root == first.root {
            true => "it trains into this directory more than once, and which step is of which training is not known"
                .to_owned(),
            false => format!(
                "it trains a second time, into {}, and the steps of one say nothing of the other; one script for each is protected",
                again.root
            ),
        });
    }
    if known.is_some_and(|k| k.root != first.root) {
        return Some("each start saves into another directory".to_owned());
    }
    match &first.given {
        Some(path) if !inside(path) => Some(format!("it begins at {path} at each start")),
        _ if known.is_none() && !first.asks && !first.took && first.steps > 0 => Some(format!(
            "{} steps were there when it began anew, and which step is of which training is not known; save into an empty directory, or pass resume_from_checkpoint to train()",
            first.steps
        )),
        _ => None,
    }
}

/// Returns true if a run may own this directory.
fn is_place(root: &Utf8Path) -> bool {
    let plain = |c: Utf8Component<'_>| matches!(c, Utf8Component::RootDir | Utf8Component::Normal(_));
    root.is_absolute() && root.parent().is_some() && root.as_str().len() <= LONGEST && root.components().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(more: &str) -> String {
        let all = r#""strategy":"steps","save_steps":2,"keep":null,"max_steps":6,"given":null,"steps":0,"took":false"#;
        format!("{{\"root\":\"/o\",\"count\":1,\"asks\":false,{all}{more}}}\n")
    }

    #[test]
    fn a_training_is_understood_or_watched_only() {
        let found = seen(&line(""), None).unwrap();
        assert_eq!(
            (found.every, found.last_step, found.watched.is_none()),
            (Some(2), Some(Step(6)), true)
        );
        let had = line("").replace("\"steps\":0", "\"steps\":3");
        assert!(
            seen(&had, None)
                .unwrap()
                .watched
                .unwrap()
                .contains("3 steps were there")
        );
        assert_eq!(
            seen(&had, Some(&found)).unwrap().watched,
            None,
            "they are this run's own by then"
        );
        let asks = had.replace("\"asks\":false", "\"asks\":true");
        assert_eq!(seen(&asks, None).unwrap().watched, None);
        let base = asks.replace("\"given\":null", "\"given\":\"/base/checkpoint-9\"");
        assert!(
            seen(&base, None)
                .unwrap()
                .watched
                .unwrap()
                .contains("/base/checkpoint-9")
        );
        let twice = line("") + &line("").replace("\"count\":1", "\"count\":2");
        assert!(seen(&twice, None).unwrap().watched.unwrap().contains("more than once"));
        let other = line("")
            + &line("")
                .replace("\"count\":1", "\"count\":2")
                .replace("\"/o\"", "\"/p\"");
        assert!(
            seen(&other, None)
                .unwrap()
                .watched
                .unwrap()
                .contains("a second time, into /p")
        );
        let moved = line("").replace("\"/o\"", "\"/p\"");
        assert!(
            seen(&moved, Some(&found))
                .unwrap()
                .watched
                .unwrap()
                .contains("another directory")
        );
    }

    #[test]
    fn what_is_told_is_not_believed_beyond_its_bounds() {
        for root in ["/", "o", "/a/../b", "", &format!("/{}", "a".repeat(5000))] {
            let text = line("").replace("\"/o\"", &format!("\"{root}\""));
            assert_eq!(seen(&text, None), None, "{root}");
        }
        let text = "{\"failed\":\"KeyError\"}\nnothing\n\u{0}";
        assert_eq!((seen(text, None), failed(text).as_deref()), (None, Some("KeyError")));
        assert_eq!(
            failed(&(text.to_owned() + "\n" + &line(""))),
            None,
            "a training was seen all the same"
        );
        for odd in ["true", "\"\"", "\"a\\u001bb\"", &format!("\"{}\"", "a".repeat(65))] {
            assert_eq!(failed(&format!("{{\"failed\":{odd}}}")), None, "{odd}");
        }
        let odd = line("").replace("\"save_steps\":2", "\"save_steps\":0.25");
        assert_eq!(seen(&odd, None).unwrap().every, None);
    }
}
