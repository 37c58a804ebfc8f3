//! Where a trainer finds its newest step, and the words of a resume.

use super::compile::pattern;
use super::schema::{DeclaredResume, DeclaredTracker, TrackerFallback};
use super::source::{Problems, SpannedValue, TableReader};

/// Words that resume arguments may use.
const RESUME_WORDS: &[&str] = &["root", "dir", "path", "step"];
/// Words that the arguments of a fresh start may use: it has no step.
const FRESH_WORDS: &[&str] = &["root"];

/// Keys that would change nothing.
const UNUSED: [(&str, &str); 3] = [
    ("aside", "a resume always moves newer steps aside"),
    ("aside_fresh", "a fresh start always moves all steps aside"),
    ("tracker", "the file of [tracker] is always written before a resume"),
];

pub(super) fn tracker(top: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> Option<DeclaredTracker> {
    let mut t = top.table("tracker", p);
    if !t.is_there() {
        return None;
    }
    t.later(&["ahead", "retention"], p);
    let file = t.text("file", p);
    if file.as_ref().is_none_or(|f| {
        f.value.is_empty()
            || f.value.contains(['/', '{', '*'])
            || f.value.starts_with(".supervise")
            || [".", ".."].contains(&f.value.as_str())
    }) {
        let at = file.as_ref().map_or(t.at, |f| f.at);
        t.wrong(
            p,
            at,
            "file",
            "no file name",
            "name the file in the root, without placeholders",
        );
    }
    let text = t.text("text", p);
    if text.is_none() {
        t.wrong(
            p,
            t.at,
            "text",
            "missing",
            "write text = \"{step}\" if the file holds the number alone",
        );
    }
    let text = text.and_then(|text| {
        if !text.value.contains("{step") {
            t.wrong(p, text.at, "text", "it does not name the step", "use {step}");
        }
        pattern(&t, "text", &text, &["step"], p)
    });
    let also = t.texts("also", p).unwrap_or_default();
    let missing = fallback(&mut t, "missing", p);
    let garbage = fallback(&mut t, "garbage", p);
    t.end(p);
    Some(DeclaredTracker {
        file: Box::leak(file?.value.into_boxed_str()),
        text: text?,
        also: also.into_iter().map(|a| a.value).collect(),
        missing: missing?,
        garbage: garbage.unwrap_or(TrackerFallback::Crash),
    })
}

fn fallback(t: &mut TableReader<'_, '_>, key: &'static str, p: &mut Problems<'_>) -> Option<TrackerFallback> {
    let Some(word) = t.text(key, p) else {
        if key == "missing" {
            t.wrong(
                p,
                t.at,
                key,
                "missing",
                "say what the trainer does without the file: fresh, crash, exit0 or highest",
            );
        }
        return None;
    };
    Some(match word.value.as_str() {
        "fresh" => TrackerFallback::Fresh,
        "crash" => TrackerFallback::Crash,
        "exit0" => TrackerFallback::ExitsZero,
        "highest" => TrackerFallback::Highest,
        other => match other.strip_prefix("fresh_from:").filter(|k| !k.is_empty()) {
            Some(from) => TrackerFallback::FreshFrom(from.to_owned()),
            None => {
                let what = format!("`{other}` is not known");
                t.wrong(
                    p,
                    word.at,
                    key,
                    what,
                    "use fresh, fresh_from:KEY, crash, exit0 or highest",
                );
                return None;
            }
        },
    })
}

pub(super) fn resume(top: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> DeclaredResume {
    let mut t = top.table("resume", p);
    let words = |t: &mut TableReader<'_, '_>, key: &'static str, p: &mut Problems<'_>| -> Vec<String> {
        let list = t.texts(key, p).unwrap_or_default();
        let known = if key == "fresh" { FRESH_WORDS } else { RESUME_WORDS };
        for word in &list {
            placeholders(t, key, word, known, p);
        }
        list.into_iter().map(|w| w.value).collect()
    };
    let at = words(&mut t, "at", p);
    let fresh = words(&mut t, "fresh", p);
    let strip = words(&mut t, "strip", p);
    let strip_fresh = words(&mut t, "strip_fresh", p);
    let guard = words(&mut t, "guard", p);
    let confirmed = t.choice("confirmed_by", &[("first_step", ())], p);
    let script = t.text("script", p);
    if let Some(script) = &script {
        placeholders(&t, "script", script, RESUME_WORDS, p);
        let named = script.value.strip_prefix("env:").and_then(|s| s.split_once('='));
        let ours = |name: &str| {
            name.bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        if named.is_none_or(|(name, _)| !name.starts_with("SUPERVISE_") || !ours(name)) {
            let what = format!("`{}` sets no variable of supervise", script.value);
            t.wrong(p, script.at, "script", what, "write env:SUPERVISE_RESUME_FROM={path}");
        }
    }
    for (key, what) in UNUSED {
        t.unused(key, what, p);
    }
    t.renamed("outside", "store = \"outside\" in [settings]", p);
    t.end(p);
    let variable = |text: &str| {
        let (name, value) = text.strip_prefix("env:")?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    DeclaredResume {
        at,
        fresh,
        strip,
        strip_fresh,
        guard,
        script: script.and_then(|s| variable(&s.value)),
        first_step_confirms: confirmed.is_some(),
    }
}

fn placeholders(t: &TableReader<'_, '_>, key: &str, word: &SpannedValue<String>, known: &[&str], p: &mut Problems<'_>) {
    let mut rest = word.value.as_str();
    while let Some((_, after)) = rest.split_once('{') {
        let (inside, left) = after.split_once('}').unwrap_or((after, ""));
        if !known.contains(&inside) {
            let what = format!("{{{inside}}} is no placeholder here");
            let names: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
            t.wrong(p, word.at, key, what, format!("use {}", names.join(", ")));
        }
        rest = left;
    }
}
