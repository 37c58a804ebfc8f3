//! Defaults lists.

use std::collections::BTreeMap;

use supervise_config::compose::{ComposedConfig, ConfigLoader, GroupChoice, GroupOverride, LoadResult, compose};
use supervise_config::{ConfigError, ConfigValue, ErrorKind};

struct Files(BTreeMap<&'static str, &'static str>);

impl ConfigLoader for Files {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        Ok(match self.0.get(config) {
            Some(&"(trainer)") => LoadResult::ByTrainer,
            Some(text) => LoadResult::Text {
                text: (*text).to_owned(),
                file: format!("{config}.yaml"),
            },
            None => LoadResult::Missing,
        })
    }

    fn options(&self, group: &str) -> Vec<String> {
        let prefix = format!("{group}/");
        self.0
            .keys()
            .filter_map(|name| name.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    }
}

fn composed(
    files: &[(&'static str, &'static str)],
    overrides: &[GroupOverride],
) -> Result<ComposedConfig, ConfigError> {
    compose(&Files(files.iter().copied().collect()), "main", overrides)
}

fn choose(key: &str, option: &str) -> GroupOverride {
    GroupOverride::Choose {
        key: key.to_owned(),
        choice: GroupChoice::Name(option.to_owned()),
    }
}

fn int(composed: &ComposedConfig, path: &str) -> Option<i64> {
    composed.tree.get(path).and_then(|node| node.as_i64())
}

const DB: [(&str, &str); 2] = [("db/one", "port: 1\nname: one\n"), ("db/two", "port: 2\n")];

#[test]
fn own_content_wins_where_self_stands_last() {
    let last = [DB[0], DB[1], ("main", "defaults: [db: one, _self_]\ndb: {port: 9}\n")];
    assert_eq!(int(&composed(&last, &[]).unwrap(), "db.port"), Some(9));
    let first = [DB[0], DB[1], ("main", "defaults: [_self_, db: one]\ndb: {port: 9}\n")];
    assert_eq!(int(&composed(&first, &[]).unwrap(), "db.port"), Some(1));
    let missing = [DB[0], DB[1], ("main", "defaults: [db: one]\ndb: {port: 9}\n")];
    assert_eq!(int(&composed(&missing, &[]).unwrap(), "db.port"), Some(9));
}

#[test]
fn options_are_chosen_from_list_and_command() {
    let files = [
        DB[0],
        DB[1],
        ("main", "defaults:\n  - db: one\n  - _self_\n  - override db: two\n"),
    ];
    let read = composed(&files, &[]).unwrap();
    assert_eq!(int(&read, "db.port"), Some(2));
    assert_eq!(read.choices["db"], GroupChoice::Name("two".to_owned()));
    assert_eq!(
        int(&composed(&files, &[choose("db", "one")]).unwrap(), "db.port"),
        Some(1)
    );
    let origin = composed(&files, &[])
        .unwrap()
        .tree
        .get("db.port")
        .unwrap()
        .origin
        .to_string();
    assert_eq!(origin, "db/two.yaml:1");
}

/// `defaults: [ppo_trainer, _self_]`: the first is the trainer's own and need not be readable.
#[test]
fn what_the_trainer_brings_is_an_empty_layer() {
    let main = "defaults:\n  - ppo_trainer\n  - _self_\n  - override model_engine: megatron\ntrainer: {save_freq: 5}\n";
    let files = [("ppo_trainer", "(trainer)"), ("main", main)];
    let read = composed(&files, &[choose("data", "legacy")]).unwrap();
    assert_eq!(int(&read, "trainer.save_freq"), Some(5));
    let layers: Vec<(&str, bool)> = read
        .layers
        .iter()
        .map(|layer| (layer.config.as_str(), layer.by_trainer))
        .collect();
    assert_eq!(layers, [("ppo_trainer", true), ("main", false)]);
    assert_eq!(read.choices["model_engine"], GroupChoice::Name("megatron".to_owned()));
    assert_eq!(read.choices["data"], GroupChoice::Name("legacy".to_owned()));
}

#[test]
fn the_search_path_is_reported() {
    let main = "hydra:\n  searchpath:\n    - pkg://verl.trainer.config\n    - file:///etc/x\na: 1\n";
    let read = composed(&[("main", main)], &[]).unwrap();
    assert_eq!(read.search_path, ["pkg://verl.trainer.config", "file:///etc/x"]);
    let codes: Vec<&str> = read.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["searchpath_unreachable", "searchpath_ignored"]);
    assert!(read.findings[0].message.contains("verl.trainer.config"));
}

#[test]
fn packages_come_from_entry_and_header() {
    let files = [
        DB[0],
        ("g/x", "# @package _global_\nflag: 1\n"),
        ("h/x", "# @package deep.place\nflag: 2\n"),
        ("main", "defaults: [db@a.b: one, g: x, h: x, _self_]\n"),
    ];
    let read = composed(&files, &[]).unwrap();
    assert_eq!(
        (
            int(&read, "a.b.port"),
            int(&read, "flag"),
            int(&read, "deep.place.flag")
        ),
        (Some(1), Some(1), Some(2))
    );
}

#[test]
fn names_may_be_interpolated() {
    let files = [
        ("m/dp", "e: dp\n"),
        ("actor/dp_actor", "s: 1\n"),
        ("main", "defaults: [m: dp, actor: '${m}_actor', _self_]\n"),
    ];
    assert_eq!(int(&composed(&files, &[]).unwrap(), "actor.s"), Some(1));
}

#[test]
fn mistakes_name_the_entry_and_the_options() {
    let missing = composed(&[DB[0], DB[1], ("main", "defaults:\n  - _self_\n  - db: three\n")], &[]).unwrap_err();
    assert_eq!((missing.kind, missing.line), (ErrorKind::Compose, Some(3)));
    assert!(
        missing.to_string().contains("'db/three'") && missing.to_string().contains("one, two"),
        "{missing}"
    );
    let unused = composed(&[DB[0], ("main", "a: 1\n")], &[choose("db", "one")]).unwrap_err();
    assert!(unused.to_string().contains("+db=OPTION"), "{unused}");
    for main in [
        "defaults: [_self_, _self_]\n",
        "defaults: {db: one}\n",
        "defaults: [5]\n",
        "defaults: [db: one, db: two]\n",
        "defaults: [override db: one, db: two]\n",
        "defaults: [db: '???']\n",
        "defaults: [db: '${nothing}']\n",
        "defaults: [main]\n",
    ] {
        let error = composed(&[DB[0], DB[1], ("main", main)], &[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Compose, "{main}: {error}");
    }
}

#[test]
fn entries_may_be_optional_null_or_deleted() {
    let files = [
        DB[0],
        ("main", "defaults: [optional db: nine, opt: null, _self_]\na: 1\n"),
    ];
    let read = composed(&files, &[]).unwrap();
    assert_eq!(read.layers.len(), 1);
    assert_eq!(read.tree.get("db"), None);
    let listed = [DB[0], ("main", "defaults: [db: one, _self_]\na: 1\n")];
    let delete = GroupOverride::Delete {
        key: "db".to_owned(),
        option: None,
    };
    assert_eq!(composed(&listed, &[delete]).unwrap().tree.get("db"), None);
    let append = GroupOverride::Append {
        group: "db".to_owned(),
        package: Some("x".to_owned()),
        choice: GroupChoice::Name("one".to_owned()),
    };
    let appended = composed(&[DB[0], ("main", "a: 1\n")], &[append]).unwrap();
    assert_eq!(
        appended.tree.get("x.port").map(|node| node.value.clone()),
        Some(ConfigValue::Int(1))
    );
}
