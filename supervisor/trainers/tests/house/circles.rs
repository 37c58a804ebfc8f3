//! Modules beside each other do not import each other in a circle; a parent and its children may.
//!
//! Read are paths that begin with `crate`, `super` or `self`, wherever they stand.

use super::{CRATES, code, sources, top};
use std::collections::{BTreeMap, BTreeSet};

/// Circles that are left, by folder, with their members. It only shrinks.
const ALLOWED: &[(&str, &str)] = &[
    // A tree is merged by what interpolates in it.
    ("config/src/", "dialect error interpolation literal pystr tree yaml"),
    // An adapter's trait names types of the shared parts, which ask adapters.
    (
        "supervisor/trainers/src/",
        "adapter areal declared hf kit own_loop plain read registry rehearsal script_call verl",
    ),
    // A case of judgement holds the step and its neighbours.
    (
        "supervisor/trainers/src/verl",
        "compatibility data degraded judge steps",
    ),
    // What Megatron names its parts by is wanted and marked.
    ("supervisor/trainers/src/verl", "marks megatron required_files"),
    // The call is read to be changed, and changed as it is read.
    (
        "supervisor/trainers/src/verl",
        "arrange call interpreter_query read read_sft",
    ),
];

type Path = Vec<String>;
/// Modules of one crate with their code.
type Modules = BTreeMap<Path, String>;

fn modules(src: &str) -> Modules {
    let src = top().join(src);
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut out = Modules::new();
    for file in files {
        let name = file.strip_prefix(&src).unwrap().with_extension("");
        let path: Path = name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        let path = if path == ["lib"] || path == ["main"] {
            Path::new()
        } else {
            path
        };
        let code = code(&file);
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        out.entry(path).or_default().extend(lines.flat_map(|line| [line, "\n"]));
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Reads one path, or a group of them behind it; gives what follows.
fn read<'a>(mut text: &'a str, mut path: Path, out: &mut Vec<Path>) -> &'a str {
    loop {
        text = text.trim_start();
        if let Some(mut group) = text.strip_prefix('{') {
            loop {
                group = group.trim_start_matches([',', ' ', '\n']);
                if let Some(after) = group.strip_prefix('}') {
                    return after;
                }
                group = read(group, path.clone(), out).trim_start_matches(|c| c != ',' && c != '}');
            }
        }
        let (word, after) = text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()));
        path.push(word.to_owned());
        let Some(more) = after.strip_prefix("::") else {
            out.push(path);
            return after;
        };
        text = more;
    }
}

/// All paths in a file that begin in its own crate.
fn paths(code: &str) -> Vec<Path> {
    let mut out = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            if !before.ends_with(is_word) && !before.ends_with("::") {
                read(&code[at..], Path::new(), &mut out);
            }
        }
    }
    out
}

/// The module that a path in `at` leads to.
fn target(modules: &Modules, at: &Path, path: &Path) -> Path {
    let mut out = if path[0] == "crate" { Path::new() } else { at.clone() };
    for word in path {
        match word.as_str() {
            "crate" | "self" => {}
            "super" => drop(out.pop()),
            word => out.push(word.to_owned()),
        }
    }
    while !modules.contains_key(&out) && !out.is_empty() {
        out.pop();
    }
    out
}

/// Members of each circle, by the folder they stand in.
fn circles(modules: &Modules) -> BTreeSet<(String, Vec<String>)> {
    let mut edges: BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (at, code) in modules {
        for path in paths(code) {
            let to = target(modules, at, &path);
            let common = at.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (at.get(common), to.get(common)) {
                let known = edges.entry(at[..common].to_vec()).or_default();
                known.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let mut out = BTreeSet::new();
    for (parent, known) in edges {
        let reach = |from: &String| {
            let mut seen = BTreeSet::new();
            let mut next = vec![from];
            while let Some(to) = next.pop().and_then(|at| known.get(at)) {
                next.extend(to.iter().filter(|to| seen.insert((*to).clone())));
                while next.last().is_some_and(|at| !known.contains_key(*at)) {
                    next.pop();
                }
            }
            seen
        };
        let reached: BTreeMap<&String, _> = known.keys().map(|from| (from, reach(from))).collect();
        for (from, all) in reached.iter().filter(|(from, all)| all.contains(**from)) {
            let back = |to: &&String| reached.get(*to).is_some_and(|r| r.contains(*from));
            out.insert((parent.join("/"), all.iter().filter(back).cloned().collect()));
        }
    }
    out
}

#[test]
fn modules_beside_each_other_form_no_circle() {
    let mut more = Vec::new();
    let mut stale: Vec<_> = ALLOWED.iter().collect();
    for src in CRATES {
        for (parent, members) in circles(&modules(src)) {
            let folder = format!("{src}/{parent}");
            let known = |(at, names): &(&str, &str)| {
                *at == folder && members.iter().all(|m| names.split(' ').any(|name| name == m))
            };
            stale.retain(|one| !known(one));
            if !ALLOWED.iter().any(known) {
                more.push(format!("{folder}: {}", members.join(" ")));
            }
        }
    }
    assert!(
        more.is_empty(),
        "what both need belongs in a module of its own: {more:#?}"
    );
    assert!(
        stale.is_empty(),
        "these circles are gone, take them from the list: {stale:#?}"
    );
}

#[test]
fn a_circle_is_seen() {
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<Path>();
    let modules = |files: &[(&str, &str)]| -> Modules {
        files
            .iter()
            .map(|(path, code)| (module(path), (*code).to_owned()))
            .collect()
    };
    let a = ("m/a", "use super::{\n    Parent, c::{D, *},\n    b::B as C,\n};\n");
    for (b, found) in [
        ("use super::a::A;", true),
        ("fn f() -> crate::m::a::A {}", true),
        ("use super::A;", false),
        ("use crate::a::A;", false),
    ] {
        let all = modules(&[
            ("m", "use self::a::A;"),
            ("a", ""),
            ("m/c", ""),
            a,
            ("m/b", b),
            ("m/b/inner", "use super::X;"),
        ]);
        let expected = found.then(|| ("m".to_owned(), vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(circles(&all), expected.into_iter().collect(), "{b}");
    }
}
