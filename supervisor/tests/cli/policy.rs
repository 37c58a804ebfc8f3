//! `supervise policy show`, and the setting that changes it.

use crate::world::World;
use serde_json::Value;

fn rules(settings: &str) -> Value {
    let world = World::new();
    world.write("supervise.yaml", settings);
    let said = world.run(&["policy", "show", "--json"]);
    said.tells(0, &[]);
    serde_json::from_str(&said.out).unwrap()
}

fn rule<'a>(view: &'a Value, class: &str) -> &'a Value {
    let rules = view["rules"].as_array().unwrap();
    rules.iter().find(|r| r["class"] == class).unwrap()
}

#[test]
fn every_class_has_a_rule_and_the_users_are_marked() {
    let view = rules("policy:\n  mem.cuda_oom: stop\n  hub.*: wait\n");
    let changed = rule(&view, "mem.cuda_oom");
    assert_eq!((&changed["answer"], &changed["letter"]), (&"stop".into(), &"S".into()));
    assert_eq!(changed["changed_by"], "mem.cuda_oom");
    assert_eq!(rule(&view, "hub.rate")["changed_by"], "hub.*");
    assert_eq!(rule(&view, "mem.host_oom")["changed_by"], Value::Null);
    assert_eq!(rule(&view, "sched.preempt")["costs_retry"], false);
    assert!(view["rules"].as_array().unwrap().len() > 80);
    let world = World::new();
    world
        .run(&["policy", "show", "--set", "supervisor.policy.mem.cuda_oom=stop"])
        .tells(0, &["CLASS", "yours: policy.mem.cuda_oom", "ckpt.corrupt"]);
}

#[test]
fn a_family_may_be_a_level_of_its_own() {
    let view = rules("policy:\n  mem: {cuda_oom: stop, '*': wait}\n");
    assert_eq!(rule(&view, "mem.cuda_oom")["answer"], "stop");
    assert_eq!(rule(&view, "mem.shm")["answer"], "wait");
}

#[test]
fn a_class_or_a_word_that_does_not_exist_is_one_clear_error() {
    for (settings, parts) in [
        (
            "policy: {mem.cuda_om: stop}",
            &["mem.cuda_om", "did you mean `mem.cuda_oom`", "policy show"][..],
        ),
        ("policy: {nothing.*: stop}", &["nothing.*", "policy show"]),
        ("policy: {mem.shm: retry}", &["policy", "mem.shm", "relaunch_later"]),
        ("policy: [mem.shm]", &["policy", "a mapping"]),
        ("policy: {mem.shm: }", &["policy", "mem.shm"]),
    ] {
        let world = World::new();
        world.write("supervise.yaml", settings);
        world.run(&["policy", "show"]).refuses(78, parts);
    }
}
