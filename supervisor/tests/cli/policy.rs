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
fn the_users_lines_are_shown_with_their_answers() {
    let settings = "rules:\n- {pattern: 'no licence for \\w+', class: user.licence, action: wait, advice: 'Ask the licence server.', costs_retry: false, blames_checkpoint: false, examples: ['no licence for vsim'], lookalikes: ['a licence for vsim']}\n- {pattern: 'heap of the \\S+ is full', class: mem.host_oom}\n";
    let view = rules(settings);
    let own = rule(&view, "user.licence");
    assert_eq!(
        (&own["answer"], &own["changed_by"]),
        (&"wait".into(), &"user.licence".into())
    );
    assert_eq!(
        (
            &own["costs_retry"],
            &own["suspects_checkpoint"],
            &own["ends_after"],
            &own["advice"]
        ),
        (
            &false.into(),
            &false.into(),
            &Value::Null,
            &"Ask the licence server.".into()
        )
    );
    assert_eq!(view["lines"][1]["class"], "mem.host_oom");
    let world = World::new();
    world.write("supervise.yaml", settings);
    let patterns = ["PATTERN", "no licence for", "user.licence"];
    world.run(&["policy", "show"]).tells(0, &patterns);
    world
        .run(&["plan", "--", "true"])
        .tells(0, &["your rules   2 patterns tell mem.host_oom, user.licence"]);
}

#[test]
fn a_line_that_cannot_be_used_is_one_clear_error() {
    for (settings, parts) in [
        (
            "rules: [{pattern: 'a(b', class: mem.shm}]",
            &["entry 1", "unclosed group, at character 2"][..],
        ),
        (
            "rules: [{pattern: x, class: mem.cuda_om}]",
            &["mem.cuda_om", "did you mean `mem.cuda_oom`", "supervise.yaml"],
        ),
        ("rules: [{pattern: x, class: mem.*}]", &["mem.*", "user.name"]),
        ("rules: [{pattern: x, class: user.}]", &["`user.`", "user.name"]),
        ("rules: [{pattern: x}]", &["entry 1 has no class"]),
        (
            "rules: [{pattern: licence, class: user.a, examples: [a licence, none]}]",
            &["user.a", "does not match its example: none"],
        ),
        (
            "rules: [{pattern: licence, class: user.a, lookalikes: [licence found]}]",
            &["user.a", "matches its look-alike: licence found"],
        ),
        (
            "rules: [{pattern: '^no licence', class: user.a, lookalikes: ['[rank0]: no licence']}]",
            &["user.a", "matches its look-alike: [rank0]: no licence"],
        ),
        (
            "rules: [{pattern: x, class: user.a, advice: b}, {pattern: y, class: user.a, advice: c}]",
            &["two rules say different things of user.a"],
        ),
        (
            "rules: [{pattern: x, class: user.a, costs_retry: sometimes}]",
            &["costs_retry of entry 1", "true or false"],
        ),
        (
            "rules: [{pattern: x, class: user.a, examples: x}]",
            &["examples of entry 1", "a list of lines"],
        ),
        (
            "rules: [{pattern: x, class: mem.shm, advice: Buy memory.}]",
            &["mem.shm", "advice", "user."],
        ),
        (
            "rules: [{pattern: x, class: user.a, when: now}]",
            &["unknown key `when`"],
        ),
        ("rules: [{pattern: 'x?', class: user.a}]", &["matches an empty line"]),
        (
            "rules: [{pattern: x, class: user.a, action: retry}]",
            &["entry 1", "relaunch_later"],
        ),
        (
            "rules: [{pattern: x, class: mem.shm, action: stop}]",
            &["mem.shm", "policy: {mem.shm"],
        ),
        (
            "rules: [{pattern: 'x{9999}{9999}', class: user.a}]",
            &["entry 1", "size limit"],
        ),
        ("rules: {x: user.a}", &["rules", "a list"]),
        (
            "policy: {user.a: stop}\nrules: [{pattern: x, class: user.a, action: wait}]",
            &["user.a", "said twice"],
        ),
    ] {
        let world = World::new();
        world.write("supervise.yaml", settings);
        world.run(&["policy", "show"]).refuses(78, parts);
    }
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
