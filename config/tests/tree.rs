//! Reading, changing and merging trees; interpolations.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use supervise_config::interpolation::InterpolationResolver;
use supervise_config::{
    ConfigError, ConfigNode, ConfigTree, ConfigValue, ErrorKind, ValueOrigin, parse_trainer_yaml, python_str,
    redacted_yaml,
};

fn tree(text: &str) -> ConfigTree {
    ConfigTree::new(parse_trainer_yaml(text, "t.yaml").unwrap())
}

fn env(name: &str) -> Option<String> {
    (name == "PRESENT").then(|| "here".to_owned())
}

fn get(text: &str, path: &str) -> Result<ConfigValue, ConfigError> {
    InterpolationResolver::new(&tree(text), &env)
        .require(path)
        .map(|node| node.value)
}

fn string(text: &str) -> ConfigValue {
    ConfigValue::Str(text.to_owned())
}

fn node(value: ConfigValue) -> ConfigNode {
    ConfigNode::new(
        value,
        ValueOrigin::Flag {
            text: "--set".to_owned(),
        },
    )
}

#[test]
fn paths_reach_mappings_and_lists() {
    let tree = tree("a: {b: [x, {c: 1}]}\n");
    assert_eq!(tree.get("a.b.0").unwrap().as_str(), Some("x"));
    assert_eq!(tree.get("a.b[1].c").unwrap().as_i64(), Some(1));
    assert_eq!(tree.get("a[b].1.c").unwrap().as_i64(), Some(1));
    assert!(
        ["a.c", "a.b.2", "a.b.x", "a.b.0.z", "z"]
            .iter()
            .all(|path| tree.get(path).is_none())
    );
}

#[test]
fn values_are_set_added_and_deleted() {
    let mut tree = tree("a: {b: 1}\nl: [1, 2]\n");
    tree.set("a.b", node(ConfigValue::Int(2))).unwrap();
    assert_eq!(
        tree.set("a.c", node(ConfigValue::Null)).unwrap_err().kind,
        ErrorKind::MissingKey
    );
    tree.add("x.y.z", node(ConfigValue::Int(3))).unwrap();
    tree.add("a.b.c", node(ConfigValue::Int(4))).unwrap();
    tree.add("l.1", node(ConfigValue::Int(9))).unwrap();
    assert!(tree.add("l.7", node(ConfigValue::Null)).is_err());
    assert!(tree.add(&"k.".repeat(500), node(ConfigValue::Null)).is_err());
    tree.delete("l.0").unwrap();
    let leaves: Vec<String> = tree
        .leaves()
        .iter()
        .map(|(path, leaf)| format!("{path}={:?}", leaf.as_i64()))
        .collect();
    assert_eq!(leaves, ["a.b.c=Some(4)", "l.0=Some(9)", "x.y.z=Some(3)"]);
    assert_eq!(tree.get("x.y.z").unwrap().origin.to_string(), "--set");
    assert!(tree.delete("a.nothing").is_err());
}

#[test]
fn merging_follows_the_trainer() {
    let mut below = tree("a: {x: 1, y: 2}\nl: [1, 2]\nn: {k: 1}\nm: 5\ni: ${a}\n");
    below
        .merge(tree("a: {y: 3, z: 4}\nl: [9]\nn: null\nm: ???\ni: {y: 7}\n"))
        .unwrap();
    assert_eq!(below.get("a.x").unwrap().as_i64(), Some(1));
    assert_eq!(below.get("a.y").unwrap().as_i64(), Some(3));
    assert_eq!(below.get("l").unwrap().as_list().unwrap().len(), 1);
    assert!(below.get("n").unwrap().is_null());
    assert_eq!(below.get("m").unwrap().as_i64(), Some(5));
    assert_eq!(below.get("i.y").unwrap().as_i64(), Some(7));
    assert_eq!(below.get("i.x").unwrap().as_i64(), Some(1));
    let clash = below.merge(tree("\nl: {a: 1}\n")).unwrap_err();
    assert_eq!(
        (clash.kind, clash.line, clash.key.as_deref()),
        (ErrorKind::WrongType, Some(2), Some("l"))
    );
}

#[test]
fn interpolations_are_followed() {
    let text = "p: proj\nlr: 1e-5\nt:\n  a: x/${p}/${lr}\n  b: ${.a}\n  c: ${..p}\n  l: [1, '${t.l.0}', '${.0}']\nw: ${t.${k}}\nk: b\nesc: '\\${p}'\n";
    assert_eq!(get(text, "t.a").unwrap(), string("x/proj/1e-05"));
    assert_eq!(get(text, "t.b").unwrap(), string("x/proj/1e-05"));
    assert_eq!(get(text, "t.c").unwrap(), string("proj"));
    assert_eq!(get(text, "t.l.2").unwrap(), ConfigValue::Int(1));
    assert_eq!(get(text, "w").unwrap(), string("x/proj/1e-05"));
    assert_eq!(get(text, "esc").unwrap(), string("${p}"));
}

#[test]
fn resolvers_answer() {
    let text = "e: ${oc.env:PRESENT}\nd: ${oc.env:ABSENT,1e-4}\ns: ${oc.select:no.such,7}\nc: ${oc.decode:'[1, a]'}\nn: ${oc.env:ABSENT,null}\n";
    assert_eq!(get(text, "e").unwrap(), string("here"));
    assert_eq!(get(text, "d").unwrap(), string("0.0001"));
    assert_eq!(get(text, "s").unwrap(), ConfigValue::Int(7));
    assert_eq!(get(text, "c.1").unwrap(), string("a"));
    assert_eq!(get(text, "n").unwrap(), ConfigValue::Null);
}

#[test]
fn mistakes_in_interpolations_name_place_and_chain() {
    let cycle = get("a: ${b}\nb: ${c}\nc: ${a}\n", "a").unwrap_err();
    assert_eq!(cycle.kind, ErrorKind::Cycle);
    assert!(cycle.message.contains("a -> b -> c -> a"), "{cycle}");
    let cases = [
        ("x: 1\na: ${missing.key}\n", ErrorKind::MissingKey, Some(2)),
        ("a: ${b}\nb: ???\n", ErrorKind::MandatoryMissing, Some(1)),
        ("\na: ???\n", ErrorKind::MandatoryMissing, Some(2)),
        ("a: ${oc.env:ABSENT}\n", ErrorKind::Interpolation, Some(1)),
        ("a: ${mine:1}\n", ErrorKind::UnknownResolver, Some(1)),
        ("a: ${b\n", ErrorKind::Interpolation, Some(1)),
        ("a: {b: '${a}'}\n", ErrorKind::Cycle, Some(1)),
        ("a: ${....b}\n", ErrorKind::MissingKey, Some(1)),
    ];
    for (text, kind, line) in cases {
        let path = if text.contains("{b: '") { "a.b" } else { "a" };
        let error = get(text, path).unwrap_err();
        assert_eq!((error.kind, error.line), (kind, line), "{text:?}: {error}");
    }
    assert_eq!(get("a: 1\n", "b").unwrap_err().kind, ErrorKind::MissingKey);
}

/// A resolver that the trainer's own code registers concerns only the values that use it.
#[test]
fn unknown_resolvers_matter_only_where_asked_for() {
    let text = "a: ${mine:1}\nb: 2\nc: {d: '${a}'}\n";
    assert_eq!(get(text, "b").unwrap(), ConfigValue::Int(2));
    assert_eq!(get(text, "c").unwrap_err().kind, ErrorKind::UnknownResolver);
    assert!(InterpolationResolver::new(&tree(text), &env).resolve_all().is_err());
    assert_eq!(
        InterpolationResolver::new(&tree(text), &env).get("nothing").unwrap(),
        None
    );
}

#[test]
fn interpolations_do_not_explode() {
    let mut bomb = String::from("a0: [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let references = vec![format!("'${{a{}}}'", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: [{references}]\n"));
    }
    assert_eq!(get(&bomb, "a11").unwrap_err().kind, ErrorKind::Limit);
    let mut chain = String::from("a0: 1\n");
    (1..500).for_each(|at| chain.push_str(&format!("a{at}: ${{a{}}}\n", at - 1)));
    assert_eq!(get(&chain, "a499").unwrap_err().kind, ErrorKind::Limit);
    let nested = format!("a: '{}b{}'\n", "${".repeat(400), "}".repeat(400));
    assert_eq!(get(&nested, "a").unwrap_err().kind, ErrorKind::Interpolation);
}

#[test]
fn a_tree_is_written_without_its_secrets() {
    let text = "\
trainer: {dir: mine, port: 1, lr: 1e-06, worst: -.inf, none: .nan, when: '2026-01-01', mode: 'off', x: yes, big: 99999999999999999999}
api_key: mine
api_keys: [mine, 1, {a: b, c: null, d: true}]
headers: {Authorization: \"Bearer x\", Accept: x}
deep: {token: 1.5, empty: '', pem: \"-----BEGIN PRIVATE KEY-----\\nabc\\n-----END PRIVATE KEY-----\\n\"}
url: http://me:hush@host/x # hush
1: one
";
    let shown = redacted_yaml(&parse_trainer_yaml(text, "t").unwrap());
    let tree = ConfigTree::new(parse_trainer_yaml(&shown, "again").unwrap());
    for (key, value) in [
        ("trainer.dir", "mine"),
        ("trainer.port", "1"),
        ("trainer.worst", "-inf"),
        ("trainer.none", "nan"),
        ("trainer.when", "2026-01-01"),
        ("trainer.mode", "off"),
        ("trainer.x", "True"),
        ("trainer.lr", "1e-06"),
        ("trainer.big", "99999999999999999999"),
        ("api_key", "***"),
        ("api_keys", "['***', '***', {'a': '***', 'c': None, 'd': True}]"),
        ("headers.Authorization", "***"),
        ("headers.Accept", "x"),
        ("deep.token", "***"),
        ("deep.empty", ""),
        ("url", "http://***@host/x"),
    ] {
        assert_eq!(
            tree.get(key).map(|n| python_str(&n.value)).as_deref(),
            Some(value),
            "{key}: {shown}"
        );
    }
    assert!(
        !shown.contains("abc") && !shown.contains("hush") && !shown.contains("Bearer"),
        "{shown}"
    );
}
