//! The settings of a run that a declaration reads.

use super::schema::{DeclaredSettings, SettingRule, SettingSource};
use super::source::{Problems, TableReader};

pub(super) fn settings(top: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> DeclaredSettings {
    let mut t = top.table("settings", p);
    t.later(&["keep_every"], p);
    let out = DeclaredSettings {
        root: sources(&mut t, "root", SettingKind::Path, p),
        every: sources(&mut t, "every", SettingKind::Number, p),
        last: sources(&mut t, "last", SettingKind::Number, p),
        keep: sources(&mut t, "keep", SettingKind::Number, p),
        world: sources(&mut t, "world", SettingKind::Number, p),
        same_as_root: t
            .texts("same_as_root", p)
            .into_iter()
            .flatten()
            .map(|k| k.value)
            .collect(),
        must: rules(&mut t, "must", "is", p),
        refuse: rules(&mut t, "refuse", "when", p),
        store_outside: t.choice("store", &[("outside", ())], p).is_some(),
    };
    t.end(p);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SettingKind {
    Path,
    Number,
}

fn sources(
    t: &mut TableReader<'_, '_>,
    name: &'static str,
    kind: SettingKind,
    p: &mut Problems<'_>,
) -> Vec<SettingSource> {
    let mut out = Vec::new();
    for mut entry in t.tables(name, p) {
        let key = entry.text("key", p).map(|key| key.value);
        let join = entry.texts("join", p).into_iter().flatten().map(|key| key.value);
        let keys: Vec<String> = key.into_iter().chain(join).collect();
        let env = entry.text("env", p).map(|env| env.value);
        // `supervisor.root` counts before all others anyway.
        let from = entry.choice("from", &[("supervisor.root", ())], p);
        if keys.is_empty() && env.is_none() && from.is_none() {
            entry.wrong(p, entry.at, "key", "missing", "name a key, or use join, env or from");
        }
        let defaults = match kind {
            SettingKind::Path => entry
                .texts("default", p)
                .into_iter()
                .flatten()
                .map(|d| d.value)
                .collect(),
            SettingKind::Number => entry.numbers("default", p),
        };
        let (then, add) = (entry.text("then", p), entry.integer("add", p));
        if let Some(then) = then.as_ref().filter(|_| kind == SettingKind::Number) {
            entry.wrong(p, then.at, "then", format!("{name} is a number"), "leave it out");
        }
        if let Some(add) = add.as_ref().filter(|_| kind == SettingKind::Path) {
            entry.wrong(
                p,
                add.at,
                "add",
                format!("{name} is a path"),
                "use then to append to it",
            );
        }
        let source = SettingSource {
            keys,
            defaults,
            then: then.map(|then| then.value),
            env,
            add: add.map_or(0, |add| add.value),
        };
        entry.end(p);
        if from.is_none() {
            out.push(source);
        }
    }
    out
}

fn rules(
    t: &mut TableReader<'_, '_>,
    name: &'static str,
    word: &'static str,
    p: &mut Problems<'_>,
) -> Vec<SettingRule> {
    let mut out = Vec::new();
    for mut entry in t.tables(name, p) {
        let mut needed = |key: &'static str, p: &mut Problems<'_>| {
            let text = entry.text(key, p).map(|text| text.value);
            if text.is_none() {
                entry.wrong(p, entry.at, key, "missing", "say which value is meant, and why");
            }
            text
        };
        let said = (needed("key", p), needed(word, p), needed("why", p));
        entry.end(p);
        if let (Some(key), Some(values), Some(why)) = said {
            out.push(SettingRule {
                key,
                values: values.split('|').map(str::to_owned).collect(),
                why,
            });
        }
    }
    out
}
