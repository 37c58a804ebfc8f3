//! Nothing that comes in as text makes this crate panic or run away.

use proptest::prelude::*;
use supervise_config::interpolation::InterpolationResolver;
use supervise_config::settings::{SettingSources, parse_bytes, parse_duration};
use supervise_config::{
    ConfigNode, ConfigTree, ConfigValue, Settings, ValueOrigin, parse_supervisor_yaml, parse_trainer_yaml, redact,
    redacted_yaml,
};

/// Texts made of the characters that mean something in YAML.
fn yamlish() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("a".to_owned()),
        Just(": ".to_owned()),
        Just("- ".to_owned()),
        Just("\n".to_owned()),
        Just("  ".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just(", ".to_owned()),
        Just("&x ".to_owned()),
        Just("*x".to_owned()),
        Just("<<: ".to_owned()),
        Just("!!int ".to_owned()),
        Just("! ".to_owned()),
        Just("|\n".to_owned()),
        Just(">+\n".to_owned()),
        Just("'".to_owned()),
        Just("\"".to_owned()),
        Just("#".to_owned()),
        Just("? ".to_owned()),
        Just("---\n".to_owned()),
        Just("%T".to_owned()),
        Just("\t".to_owned()),
        Just("1e".to_owned()),
        Just("${".to_owned()),
        Just("oc.env:".to_owned()),
        Just("\\".to_owned()),
        Just("é".to_owned()),
        Just("1:30".to_owned()),
        Just("~".to_owned()),
        Just("\r".to_owned()),
        Just("\u{2028}".to_owned()),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_text_is_too_strange(text in prop_oneof![yamlish(), any::<String>()]) {
        if let Ok(node) = parse_trainer_yaml(&text, "t") {
            let tree = ConfigTree::new(node);
            let _ = InterpolationResolver::new(&tree, &|_| None).resolve_all();
            for (path, _) in tree.leaves() {
                let _ = InterpolationResolver::new(&tree, &|_| Some("x".to_owned())).get(&path);
            }
        }
        let _ = parse_supervisor_yaml(&text, "s");
    }

    #[test]
    fn no_settings_are_too_strange(text in yamlish(), value in any::<String>()) {
        let sources = SettingSources {
            files: vec![("s".to_owned(), format!("command: {text}"))],
            env: vec![("SUPERVISE_GRACE__STOP".to_owned(), value.clone()), (format!("SUPERVISE_{value}"), text)],
            flags: vec![(value.clone(), value)],
            ..SettingSources::default()
        };
        let _ = Settings::load(&sources);
    }

    #[test]
    fn units_and_secrets_take_anything(text in any::<String>()) {
        let _ = (parse_duration(&text), parse_bytes(&text), redact(&text, &text));
    }

    /// A string of the trainer's dialect stays the same string.
    #[test]
    fn quoted_strings_arrive_unchanged(text in "[ -~é]{0,30}") {
        let quoted = format!("a: '{}'\n", text.replace('\'', "''"));
        let node = parse_trainer_yaml(&quoted, "t").unwrap();
        prop_assert_eq!(node.child("a").unwrap().as_str(), Some(text.as_str()));
    }
    /// A written tree is read as the same tree.
    #[test]
    fn a_tree_without_secrets_keeps_its_types(text in prop_oneof![yamlish(), any::<String>()], value in any::<String>()) {
        let origin = ValueOrigin::Composed { by: "t".to_owned() };
        let value = ConfigNode::new(ConfigValue::List(vec![ConfigNode::new(ConfigValue::Str(value), origin.clone())]), origin.clone());
        let root = parse_trainer_yaml(&text, "t").unwrap_or_else(|_| ConfigTree::empty(origin).root);
        let mut tree = ConfigTree::new(root);
        let _ = tree.add("v", value);
        let once = redacted_yaml(&tree.root);
        let again = parse_trainer_yaml(&once, "again").map_err(|e| TestCaseError::fail(format!("{e}: {once}")))?;
        prop_assert_eq!(redacted_yaml(&again), once);
    }
}
