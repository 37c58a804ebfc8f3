//! The parts of a step that a declaration names.

use super::compile::pattern;
use super::pattern::{KnownValues, NameNumbers, NamePattern, Placeholder};
use super::schema::{DeclaredFiles, DeclaredPart, DeclaredRole, HeldName, PartFormat, PartNeed, WhenMissing};
use super::source::{Problems, SpannedValue, TableReader};
use supervise_core::checkpoint::StateKind;

/// Words in braces that a file's name may use.
const WORDS: [&str; 9] = ["step", "world", "rank", "tp", "pp", "ep", "mp", "n", "role"];
/// Most patterns of all parts, each role counted.
const PATTERNS: usize = 256;

const LOST: [(&str, StateKind); 8] = [
    ("weights", StateKind::Weights),
    ("optimizer", StateKind::Optimizer),
    ("lr_schedule", StateKind::LrSchedule),
    ("rng", StateKind::Rng),
    ("data_order", StateKind::DataOrder),
    ("rollout", StateKind::Rollout),
    ("critic", StateKind::Critic),
    ("parallel", StateKind::Parallel),
];

/// The state that a word names.
pub(super) fn lost_kind(word: &str) -> Option<StateKind> {
    LOST.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
}

/// All such words, as text.
pub(super) fn lost_words() -> String {
    LOST.map(|(name, _)| name).join(", ")
}

pub(super) fn parts(top: &mut TableReader<'_, '_>, in_place: bool, p: &mut Problems<'_>) -> Vec<DeclaredPart> {
    let tables = top.tables("part", p);
    if tables.is_empty() {
        p.add(0, "[[part]]", "missing", "say which files a step holds");
    }
    let mut out: Vec<(usize, DeclaredPart)> = Vec::new();
    for t in tables {
        let at = t.at;
        if let Some(part) = part(t, in_place, p) {
            if out.iter().any(|(_, other)| other.name == part.name) {
                p.add(
                    at,
                    format!("[[part]] {} name", part.name),
                    "two parts have this name",
                    "give each its own",
                );
            }
            out.push((at, part));
        }
    }
    let of = |part: &DeclaredPart| match &part.files {
        DeclaredFiles::Names(names) => names.len() * part.roles.len().max(1),
        DeclaredFiles::Sets(_) | DeclaredFiles::Itself => part.roles.len().max(1),
    };
    let patterns: usize = out.iter().map(|(_, part)| of(part)).sum();
    if patterns > PATTERNS {
        p.add(
            0,
            "[[part]]",
            format!("{patterns} names, each role counted"),
            format!("use at most {PATTERNS}"),
        );
        return Vec::new();
    }
    for (n, (at, part)) in out.iter().enumerate() {
        if let Some((name, other)) = out[..n]
            .iter()
            .find_map(|(_, other)| Some((clash(part, other)?, other)))
        {
            let key = format!("[[part]] {} files", part.name);
            p.add(
                *at,
                key,
                format!("part {} takes {name} as well", other.name),
                "make the names differ",
            );
        }
    }
    out.into_iter().map(|(_, part)| part).collect()
}

fn part(mut t: TableReader<'_, '_>, in_place: bool, p: &mut Problems<'_>) -> Option<DeclaredPart> {
    let name = t.text("name", p).filter(|n| !n.value.is_empty());
    match &name {
        Some(name) => t.name = format!("[[part]] {}", name.value.chars().take(40).collect::<String>()),
        None => t.wrong(p, t.at, "name", "missing", "name the part: model, optimizer, data"),
    }
    t.later(&["count", "world"], p);
    let roles = roles(&mut t, p);
    let files = files(&mut t, in_place, &roles, p);
    let formats = formats(&mut t, files.as_ref(), p);
    let needs = [
        ("always", PartNeed::Always),
        ("sibling", PartNeed::Sibling),
        ("optional", PartNeed::Optional),
    ];
    let need = t.choice("need", &needs, p).unwrap_or(PartNeed::Always);
    let cases = [
        ("crash", WhenMissing::Crash),
        ("silent", WhenMissing::Silent),
        ("silent_fresh", WhenMissing::SilentFresh),
        ("skip", WhenMissing::Skip),
        ("exit0", WhenMissing::ExitsZero),
    ];
    let missing = t.choice("missing", &cases, p).unwrap_or(WhenMissing::Crash);
    let lost = kinds(&mut t, "lost", p);
    if missing == WhenMissing::Silent && lost.is_empty() {
        t.wrong(
            p,
            t.at,
            "lost",
            "missing = \"silent\" loses something",
            "say what: lost = [\"optimizer\"]",
        );
    }
    let never_saved = kinds(&mut t, "never_saved", p);
    let (holds, as_sibling) = holds(&mut t, &formats, p);
    let step_key = step_key(&mut t, &formats, in_place, p);
    if in_place && !formats.is_empty() && formats != [PartFormat::Torch] {
        t.wrong(
            p,
            t.at,
            "format",
            "with in_place, the step is read from the file, and only from torch files",
            "save it with torch.save, or give each step a directory: dir in [steps]",
        );
    } else if in_place && step_key.is_none() {
        t.wrong(
            p,
            t.at,
            "step",
            "missing: a file that every save overwrites has to hold its step",
            "name the number at its top: step = \"torch:iter_num\"",
        );
    }
    let imports = imports(&mut t, p);
    t.end(p);
    Some(DeclaredPart {
        name: name?.value,
        roles,
        files: files?,
        formats,
        need,
        missing,
        lost,
        holds,
        as_sibling,
        step_key,
        never_saved,
        imports,
    })
}

fn roles(t: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> Vec<DeclaredRole> {
    let mut out = Vec::new();
    for role in t.texts("role", p).unwrap_or_default() {
        let name = role.value.trim_end_matches('?');
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            let what = format!("`{}` is no role", role.value);
            t.wrong(
                p,
                role.at,
                "role",
                what,
                "use letters, digits, - and _, and ? at the end if not every run has it",
            );
            continue;
        }
        out.push(DeclaredRole {
            name: name.to_owned(),
            optional: role.value.ends_with('?'),
        });
    }
    out
}

fn files(
    t: &mut TableReader<'_, '_>,
    in_place: bool,
    roles: &[DeclaredRole],
    p: &mut Problems<'_>,
) -> Option<DeclaredFiles> {
    let names = t.texts("files", p);
    let dirs = t.texts("dir", p);
    let (key, list) = match (names, dirs) {
        (Some(names), None) if in_place => {
            if let Some(name) = names.iter().find(|n| n.value != ".") {
                t.wrong(p, name.at, "files", "the step is one file", "write files = \".\"");
            }
            return Some(DeclaredFiles::Itself);
        }
        (Some(names), None) => ("files", names),
        (None, Some(dirs)) if !in_place => ("dir", dirs),
        (None, None) => {
            t.wrong(
                p,
                t.at,
                "files",
                "missing",
                "name the part's files, or its directory with dir",
            );
            return None;
        }
        (_, Some(dirs)) => {
            let at = dirs.first().map_or(t.at, |d| d.at);
            t.wrong(
                p,
                at,
                "dir",
                "it does not fit the rest of the declaration",
                "use files alone",
            );
            return None;
        }
    };
    let mut patterns = Vec::new();
    for name in &list {
        if key == "dir" && name.value == "." {
            patterns.push(None);
            continue;
        }
        if key == "dir" && name.value.contains('*') {
            t.wrong(
                p,
                name.at,
                key,
                "a wildcard in a directory",
                "name the directory; `{role}` may be in it",
            );
            continue;
        }
        let words: &[&str] = if key == "dir" { &["role"] } else { &WORDS };
        if let Some(found) = pattern(t, key, name, words, p) {
            check_role(t, key, name, &found, roles, p);
            patterns.push(Some(found));
        }
    }
    match key {
        "dir" => Some(DeclaredFiles::Sets(patterns)),
        _ => Some(DeclaredFiles::Names(patterns.into_iter().flatten().collect())),
    }
}

fn check_role(
    t: &TableReader<'_, '_>,
    key: &str,
    name: &SpannedValue<String>,
    found: &NamePattern,
    roles: &[DeclaredRole],
    p: &mut Problems<'_>,
) {
    match (found.has_role(), roles.is_empty()) {
        (true, true) => t.wrong(p, name.at, key, "{role} without roles", "add role = [\"policy\"]"),
        (false, false) => t.wrong(
            p,
            name.at,
            key,
            "the part has roles and the name none",
            "use {role} in it",
        ),
        _ => {}
    }
}

fn formats(t: &mut TableReader<'_, '_>, files: Option<&DeclaredFiles>, p: &mut Problems<'_>) -> Vec<PartFormat> {
    let Some(text) = t.text("format", p) else {
        t.wrong(
            p,
            t.at,
            "format",
            "missing",
            "say what the files are: torch, dcp, safetensors, json, pickle, text",
        );
        return Vec::new();
    };
    let mut out = Vec::new();
    for word in text.value.split('|') {
        match PartFormat::ALL.iter().find(|(name, _)| *name == word) {
            Some((_, format)) => out.push(*format),
            None => {
                let words: Vec<&str> = PartFormat::ALL.iter().map(|(name, _)| *name).collect();
                t.wrong(
                    p,
                    text.at,
                    "format",
                    format!("`{word}` is not known"),
                    format!("use {}", words.join(", ")),
                );
            }
        }
    }
    let is_set = matches!(files, Some(DeclaredFiles::Sets(_)));
    if files.is_some() && out.iter().any(|f| f.is_set() != is_set) {
        let fix = match is_set {
            true => "a directory is dcp, megatron_dist or weights",
            false => "dcp, megatron_dist and weights are directories: use dir",
        };
        t.wrong(p, text.at, "format", format!("`{}` does not fit", text.value), fix);
    }
    out
}

fn kinds(t: &mut TableReader<'_, '_>, key: &'static str, p: &mut Problems<'_>) -> Vec<StateKind> {
    let mut out = Vec::new();
    for word in t.texts(key, p).unwrap_or_default() {
        match lost_kind(&word.value) {
            Some(kind) => out.push(kind),
            None => t.wrong(
                p,
                word.at,
                key,
                format!("`{}` is not known", word.value),
                format!("use {}", lost_words()),
            ),
        }
    }
    out
}

fn holds(t: &mut TableReader<'_, '_>, formats: &[PartFormat], p: &mut Problems<'_>) -> (Vec<HeldName>, bool) {
    let list = t.texts("holds", p).unwrap_or_default();
    let as_sibling = list.iter().any(|name| name.value == "sibling");
    let is_read = |name: &SpannedValue<String>| match formats {
        [PartFormat::Dcp] => true,
        [PartFormat::Torch] => name.value != "sibling",
        _ => false,
    };
    if let Some(name) = list.iter().find(|name| !is_read(name)) {
        let what = format!("`{}` is not read from this format", name.value);
        t.wrong(
            p,
            name.at,
            "holds",
            what,
            "leave it out, or use format = \"dcp\" or \"torch\"",
        );
    }
    let names = list.into_iter().filter(|name| name.value != "sibling");
    let names = names.map(|name| HeldName {
        name: name.value.trim_end_matches('?').to_owned(),
        optional: name.value.ends_with('?'),
    });
    (names.collect(), as_sibling)
}

fn step_key(
    t: &mut TableReader<'_, '_>,
    formats: &[PartFormat],
    in_place: bool,
    p: &mut Problems<'_>,
) -> Option<String> {
    let step = t.text("step", p)?;
    let key = step
        .value
        .strip_prefix("torch:")
        .filter(|k| !k.is_empty() && !k.contains('.'));
    if formats != [PartFormat::Torch] {
        // With in_place, the format is refused.
        if in_place {
            return None;
        }
        let what = "a step is only read from torch files";
        t.wrong(p, step.at, "step", what, "leave it out");
    } else if key.is_none() {
        let what = format!("`{}` is read from no file of this part", step.value);
        t.wrong(
            p,
            step.at,
            "step",
            what,
            "write torch:KEY for a number at the top of a torch file",
        );
    }
    key.map(str::to_owned)
}

/// Names that pickles may call are only proposed here: they count if the user's own settings name them.
fn imports(t: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> Vec<String> {
    let list = t.texts("imports", p).unwrap_or_default();
    for name in &list {
        let dotted = name.value.split('.').count() > 1
            && name
                .value
                .split('.')
                .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        if !dotted {
            let what = format!("`{}` is no full name", name.value);
            t.wrong(
                p,
                name.at,
                "imports",
                what,
                "name one class or function: module.name, without *",
            );
        }
    }
    list.into_iter().map(|name| name.value).collect()
}

/// A file that two parts would take.
fn clash(a: &DeclaredPart, b: &DeclaredPart) -> Option<String> {
    let role = |part: &DeclaredPart| part.roles.first().map_or_else(String::new, |r| r.name.clone());
    let numbers: NameNumbers = Placeholder::ALL.into_iter().map(|place| (place, 1)).collect();
    match (&a.files, &b.files) {
        (DeclaredFiles::Itself, DeclaredFiles::Itself) => Some("the file".to_owned()),
        (DeclaredFiles::Names(of_a), DeclaredFiles::Names(of_b)) => {
            let takes = |x: &NamePattern, y: &NamePattern, role: &str| {
                let name = x.fill(&numbers, role);
                let known = KnownValues { step: Some(1), role };
                y.find(&name, known).map(|_| name)
            };
            let pairs = of_a.iter().flat_map(|x| of_b.iter().map(move |y| (x, y)));
            pairs
                .into_iter()
                .find_map(|(x, y)| takes(x, y, &role(a)).or_else(|| takes(y, x, &role(b))))
        }
        (DeclaredFiles::Sets(of_a), DeclaredFiles::Sets(of_b)) => {
            let text = |dir: &Option<NamePattern>| dir.as_ref().map_or(".", NamePattern::text).to_owned();
            let same = of_a.iter().find(|x| of_b.contains(x));
            same.map(text)
        }
        _ => None,
    }
}
