//! The trainer's YAML: types by spelling, structure, bounds, messages.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use supervise_config::{ConfigError, ConfigNode, ConfigValue, ErrorKind, MapKey, ValueOrigin, parse_trainer_yaml};

fn read(text: &str) -> ConfigNode {
    parse_trainer_yaml(text, "t.yaml").unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn refused(text: &str) -> ConfigError {
    match parse_trainer_yaml(text, "t.yaml") {
        Err(error) => error,
        Ok(node) => panic!("{text:?} was read as {node:?}"),
    }
}

fn value(text: &str) -> ConfigValue {
    read(&format!("a: {text}\n"))
        .child("a")
        .map(|node| node.value.clone())
        .unwrap()
}

fn string(text: &str) -> ConfigValue {
    ConfigValue::Str(text.to_owned())
}

/// Spellings on which YAML readers disagree, with what the trainer sees.
#[test]
fn scalars_are_typed_as_the_trainer_types_them() {
    let cases = [
        ("on", ConfigValue::Bool(true)),
        ("yes", ConfigValue::Bool(true)),
        ("Off", ConfigValue::Bool(false)),
        ("NO", ConfigValue::Bool(false)),
        ("y", string("y")),
        ("tRUE", string("tRUE")),
        ("1e-4", ConfigValue::Float(1e-4)),
        ("1.0e-4", ConfigValue::Float(1e-4)),
        ("1E5", ConfigValue::Float(1e5)),
        (".5e5", string(".5e5")),
        (".5", ConfigValue::Float(0.5)),
        ("-.5", string("-.5")),
        ("1.", ConfigValue::Float(1.0)),
        ("1_000", ConfigValue::Int(1000)),
        ("010", ConfigValue::Int(8)),
        ("08", string("08")),
        ("0o10", string("0o10")),
        ("0x1F", ConfigValue::Int(31)),
        ("0X1F", string("0X1F")),
        ("0b101", ConfigValue::Int(5)),
        ("1:30", ConfigValue::Int(90)),
        ("1:30:00", ConfigValue::Int(5400)),
        ("1:30:00.5", ConfigValue::Float(5400.5)),
        ("01:30:00", string("01:30:00")),
        ("1:60", string("1:60")),
        ("2026-01-02", string("2026-01-02")),
        ("2026-01-02T03:04:05Z", string("2026-01-02T03:04:05Z")),
        (".inf", ConfigValue::Float(f64::INFINITY)),
        ("-.INF", ConfigValue::Float(f64::NEG_INFINITY)),
        ("inf", string("inf")),
        ("~", ConfigValue::Null),
        ("null", ConfigValue::Null),
        ("", ConfigValue::Null),
        ("None", string("None")),
        ("'1'", string("1")),
        ("\"on\"", string("on")),
        ("!!str 1", string("1")),
        ("!!int \"010\"", ConfigValue::Int(8)),
        ("!!float 1", ConfigValue::Float(1.0)),
        ("${b}", string("${b}")),
        ("18446744073709551615", ConfigValue::Int(u64::MAX.into())),
    ];
    for (text, wanted) in cases {
        assert_eq!(value(text), wanted, "{text}");
    }
    assert!(matches!(value(".nan"), ConfigValue::Float(number) if number.is_nan()));
}

#[test]
fn keys_keep_their_types_and_compare_as_in_python() {
    let node = read("on: a\n1: b\n0.5: c\nx: d\n");
    let keys: Vec<MapKey> = node.as_map().unwrap().iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, [MapKey::Bool(true), MapKey::Float(0.5), MapKey::from("x")]);
    assert_eq!(node.as_map().unwrap().get(&MapKey::Int(1)).unwrap().as_str(), Some("b"));
    assert_eq!(refused("~: x\n").kind, ErrorKind::BadValue);
    assert_eq!(refused("[a]: x\n").kind, ErrorKind::BadValue);
}

#[test]
fn merge_keys_and_aliases_expand() {
    let node = read("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  z: 3\nd: *a\n");
    let c = node.child("c").unwrap();
    assert_eq!(
        ["x", "y", "z"].map(|key| c.child(key).unwrap().as_i64().unwrap()),
        [1, 1, 3]
    );
    assert_eq!(node.child("d").unwrap().child("y").unwrap().as_i64(), Some(1));
}

#[test]
fn values_know_their_place() {
    let node = read("a: 1\nb:\n  - x\n  - {c: 2}\n");
    let at = |node: &ConfigNode| match &node.origin {
        ValueOrigin::File { path, line, column } => (path.to_string(), *line, *column),
        other => panic!("{other:?}"),
    };
    assert_eq!(at(node.child("a").unwrap()), ("t.yaml".to_owned(), 1, 1));
    assert_eq!(at(node.child("b").unwrap()), ("t.yaml".to_owned(), 2, 1));
    assert_eq!(
        at(node.child("b").unwrap().child("0").unwrap()),
        ("t.yaml".to_owned(), 3, 5)
    );
    assert_eq!(
        at(node.child("b").unwrap().child("1").unwrap().child("c").unwrap()),
        ("t.yaml".to_owned(), 4, 6)
    );
}

#[test]
fn empty_documents_are_empty_mappings() {
    for text in ["", "\n", "# only a comment\n", "---\n", "~\n", "\u{feff}"] {
        assert!(read(text).as_map().unwrap().is_empty(), "{text:?}");
    }
}

#[test]
fn what_the_trainer_refuses_is_refused_with_its_line() {
    let cases = [
        ("a: 1\nb: [1, 2\nc: 3\n", ErrorKind::Syntax, Some(2)),
        ("a: 1\nb: 2\na: 3\n", ErrorKind::DuplicateKey, Some(3)),
        ("a: {b: 1, b: 2}\n", ErrorKind::DuplicateKey, Some(1)),
        ("a: 1\n---\nb: 2\n", ErrorKind::Syntax, Some(2)),
        ("x: &n 1\ny: &n 2\n", ErrorKind::DuplicateKey, Some(2)),
        ("a: *nothing\n", ErrorKind::Syntax, Some(1)),
        ("\na: !custom x\n", ErrorKind::BadValue, Some(2)),
        ("a: !!int x\n", ErrorKind::BadValue, Some(1)),
        ("a: 1\nb: <<\n", ErrorKind::BadValue, Some(2)),
        ("a: &a {<<: 1}\n", ErrorKind::BadValue, Some(1)),
        ("a: 1\nb: {x: 1\n", ErrorKind::Syntax, Some(2)),
        ("a: {\n  x: 1\n  y: 2\n}\n", ErrorKind::Syntax, Some(2)),
        ("a: 1\nb\n\n# x\nc: 2\n", ErrorKind::Syntax, Some(2)),
        ("a: 1\nb\n", ErrorKind::Syntax, Some(2)),
        ("a: 1\nb: c: d\n", ErrorKind::Syntax, Some(2)),
        ("a:\n  b: 1\n c: 2\n", ErrorKind::Syntax, Some(3)),
        ("a: 1\n\tb: 2\n", ErrorKind::Syntax, None),
        ("a: 1 \t# x\n", ErrorKind::Syntax, Some(1)),
        ("a: \u{1}\n", ErrorKind::Syntax, Some(1)),
        ("5\n", ErrorKind::WrongType, Some(1)),
    ];
    for (text, kind, line) in cases {
        let error = refused(text);
        assert_eq!(error.kind, kind, "{text:?}: {error}");
        assert_eq!(error.file.as_deref(), Some("t.yaml"), "{text:?}");
        if line.is_some() {
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
    }
}

#[test]
fn a_duplicate_key_says_what_to_do() {
    let error = refused("trainer:\n  save_freq: 10\n  save_freq: 20\n");
    assert_eq!(
        error.to_string(),
        "t.yaml:3:3: the key 'save_freq' is in this mapping twice\n  \
         hint: remove one of the two; the trainer refuses the file as it is"
    );
}

#[test]
fn documents_are_bounded() {
    let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
    assert_eq!(refused(&deep).kind, ErrorKind::Limit);
    let wide = format!("a: [{}]", "1,".repeat(supervise_config::MAX_NODES + 1));
    assert_eq!(refused(&wide).kind, ErrorKind::Limit);
    let large = format!("a: {}", "x".repeat(supervise_config::MAX_BYTES));
    assert_eq!(refused(&large).kind, ErrorKind::Limit);
}

#[test]
fn aliases_and_merges_do_not_explode() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    let mut merges = String::from("m0: &m0 {k0: 1}\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        let sources = vec![format!("*m{}", level - 1); 10].join(", ");
        merges.push_str(&format!("m{level}: &m{level}\n  <<: [{sources}]\n"));
    }
    assert_eq!(refused(&bomb).kind, ErrorKind::Limit);
    assert_eq!(refused(&merges).kind, ErrorKind::Limit);
    assert_eq!(refused("a: &a [*a]\n").kind, ErrorKind::Cycle);
    assert_eq!(refused("a: &a {b: {c: *a}}\n").kind, ErrorKind::Cycle);
}
