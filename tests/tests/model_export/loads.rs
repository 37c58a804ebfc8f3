//! What Python does not load is not whole: pickles and JSON that its own readers refuse, asked where Python is there.

use super::{World, skipped};
use std::fs;
use std::process::Command;

/// Opcodes behind `PROTO 4`, and whether they load.
fn pickles() -> Vec<(&'static str, Vec<u8>, bool)> {
    let of = |body: &[u8]| [b"\x80\x04", body, b"."].concat();
    let line = |op: &str, text: String, end: &str| of(format!("{op}{text}{end}\n").as_bytes());
    let long = |n: u32, bytes: &[u8]| of(&[b"\x8b", &n.to_le_bytes()[..], bytes].concat());
    let od = b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R";
    let set = |name: &str, list: &[u8]| of(&[format!("cbuiltins\n{name}\n").as_bytes(), list, b"\x85R"].concat());
    vec![
        ("LONG of 4300 digits", line("L", "1".repeat(4300), "L"), true),
        ("LONG of 4301 digits", line("L", "1".repeat(4301), "L"), false),
        (
            "LONG of -4300 digits",
            line("L", format!("-{}", "1".repeat(4300)), "L"),
            true,
        ),
        ("LONG of 3,000,000 digits", line("L", "7".repeat(3_000_000), "L"), false),
        (
            "LONG with underscores",
            line("L", format!("{}1", "1_".repeat(4300)), "L"),
            false,
        ),
        ("LONG of zeros", line("L", "0".repeat(4301), "L"), false),
        ("INT of 4300 digits", line("I", "1".repeat(4300), ""), true),
        ("INT of 4301 digits", line("I", "1".repeat(4301), ""), false),
        ("LONG4 of 3,000,000 bytes", long(3_000_000, &[1; 3_000_000]), true),
        ("LONG4 of fewer bytes", long(u32::MAX, &[1; 3000]), false),
        ("FLOAT", line("F", "1".repeat(300), ""), true),
        ("FLOAT too large", line("F", "1".repeat(400), ""), false),
        (
            "FLOAT with an exponent too large",
            line("F", "1e400".to_owned(), ""),
            false,
        ),
        ("FLOAT infinite", line("F", "inf".to_owned(), ""), true),
        ("a dict as its own key", of(b"}q\x00h\x00K\x01s"), false),
        ("a dict in a tuple as its own key", of(b"}q\x00h\x00\x85K\x01s"), false),
        ("a dict that holds itself", of(b"}q\x00K\x01h\x00s"), true),
        ("a list as a key", of(b"}]K\x01s"), false),
        ("a list as one of several keys", of(b"}(K\x01K\x02]K\x03u"), false),
        ("a list as a key of DICT", of(b"(]K\x01d"), false),
        ("a list in a tuple as a key", of(b"}K\x01]\x85\x86K\x01s"), false),
        ("a tuple as a key", of(b"}K\x01)\x85\x86K\x01s"), true),
        ("a set as a key", of(b"}\x8fK\x01s"), false),
        ("a frozenset as a key", of(b"}(K\x01\x91K\x01s"), true),
        (
            "a bytearray as a key",
            of(b"}\x96\x01\x00\x00\x00\x00\x00\x00\x00aK\x01s"),
            false,
        ),
        ("bytes as a key", of(b"}C\x01aK\x01s"), true),
        ("a list in a set", of(b"\x8f(]\x90"), false),
        ("a number in a set", of(b"\x8f(K\x01\x90"), true),
        ("a dict in a frozenset", of(b"(}\x91"), false),
        ("a frozenset in a frozenset", of(b"((K\x01\x91\x91"), true),
        ("more in a frozenset", of(b"(\x91(K\x01\x90"), false),
        ("APPEND to a set", of(b"\x8fK\x01a"), false),
        ("ADDITEMS to a list", of(b"](K\x01\x90"), false),
        ("ADDITEMS of nothing to a list", of(b"](\x90"), true),
        ("set of a list of lists", set("set", b"](]e"), false),
        ("set of a list of numbers", set("set", b"](K\x01e"), true),
        ("frozenset of a list of dicts", set("frozenset", b"](}e"), false),
        (
            "a list as a key of an OrderedDict",
            of(&[&od[..], b"]K\x01s"].concat()),
            false,
        ),
        (
            "an OrderedDict as a key",
            of(&[&b"}"[..], od, b"K\x01s"].concat()),
            false,
        ),
        ("an OrderedDict", of(&[&od[..], b"K\x01K\x02s"].concat()), true),
    ]
}

fn texts() -> Vec<(&'static str, String, bool)> {
    let of = |value: String| format!("{{\"a\": {value}}}");
    vec![
        ("4300 digits", of("1".repeat(4300)), true),
        ("4301 digits", of("1".repeat(4301)), false),
        ("-4301 digits", of(format!("-{}", "1".repeat(4301))), false),
        ("3,000,000 digits", of("1".repeat(3_000_000)), false),
        (
            "4301 digits and a fraction",
            of(format!("{}.5", "1".repeat(4301))),
            true,
        ),
        (
            "4301 digits and an exponent",
            of(format!("{}e0", "1".repeat(4301))),
            true,
        ),
        ("a long fraction", of(format!("1.{}", "1".repeat(5000))), true),
        ("a long exponent", of(format!("1e{}", "1".repeat(5000))), true),
        (
            "one of many",
            of(format!("[1, {{\"b\": {}}}]", "1".repeat(4301))),
            false,
        ),
    ]
}

/// Returns true if Python reads a file; none where there is no Python.
fn python(reads: &str, path: &camino::Utf8Path) -> Option<bool> {
    let script = format!("import sys, pickle, json\n{reads}\n");
    let status = Command::new("python3").args(["-c", &script, path.as_str()]).output();
    status.ok().map(|output| output.status.success())
}

#[test]
fn a_pickle_is_whole_exactly_where_python_loads_it() {
    let world = World::new();
    let mut asked = 0;
    for (name, bytes, loads) in pickles() {
        let path = world.write("x.pkl", &bytes);
        let said = world.run(&["verify", "x.pkl"]);
        let code = if loads { 0 } else { 21 };
        // What ends too early is incomplete.
        assert!(said.code == code || !loads && said.code == 20, "{name}: {said:#?}");
        if let Some(found) = python("pickle.load(open(sys.argv[1], 'rb'))", &path) {
            assert_eq!(found, loads, "{name}: Python says so");
            asked += 1;
        }
        fs::remove_file(&path).unwrap();
    }
    if asked == 0 {
        skipped("there is no python3");
    }
}

#[test]
fn json_is_whole_exactly_where_python_loads_it() {
    let world = World::new();
    for (name, text, loads) in texts() {
        let path = world.write("x.json", text.as_bytes());
        let said = world.run(&["verify", "x.json"]);
        assert_eq!(said.code, if loads { 0 } else { 21 }, "{name}: {said:#?}");
        if let Some(found) = python("json.load(open(sys.argv[1]))", &path) {
            assert_eq!(found, loads, "{name}: Python says so");
        }
    }
}
