//! The supervisor's settings: layers, provenance, messages.

use std::time::Duration;

use regex::Regex;
use supervise_config::settings::{
    self, CgroupChoice, DegradedResume, EventChoice, GpuChoice, HardLimitChoice, SettingSources,
};
use supervise_config::{ConfigError, ErrorKind, Settings, parse_trainer_yaml};

fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn from_file(text: &str) -> Result<Settings, Vec<ConfigError>> {
    Settings::load(&SettingSources {
        files: pairs(&[("supervise.yaml", text)]),
        trainers: &["this", "plain"],
        ..SettingSources::default()
    })
}

fn mistake(text: &str) -> ConfigError {
    match from_file(text) {
        Err(mut errors) if errors.len() == 1 => errors.remove(0),
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn the_defaults_are_what_they_say() {
    let defaults = Settings::defaults().unwrap();
    assert_eq!((defaults.retries, defaults.step_backs), (5, 2));
    assert_eq!(defaults.backoff.max, Duration::from_secs(300));
    assert_eq!(defaults.grace.orphan, Duration::from_secs(120));
    assert_eq!(defaults.gang.gpus, GpuChoice::Auto);
    assert_eq!(defaults.gang.workers, None);
    assert_eq!(defaults.command, None);
    assert_eq!(defaults.degraded_resume, DegradedResume::DataOrder);
    assert_eq!(defaults.output.max_bytes, 256 << 20);
    assert_eq!(defaults.scan_interval, Duration::from_secs(10));
    assert_eq!(defaults.trainer_version, None);
    assert!(defaults.recovery && !defaults.allow_fresh && defaults.env.is_empty());
    assert_eq!(defaults.explain().len(), settings::keys().count());
}

#[test]
fn later_sources_win_and_every_value_knows_its_origin() {
    let block = parse_trainer_yaml("supervisor:\n  step_backs: 7\n  kill: {cgroup: off}\n", "ppo.yaml").unwrap();
    let sources = SettingSources {
        files: pairs(&[
            ("/etc/c.yaml", "retries: 1\nstep_backs: 1\n"),
            ("supervise.yaml", "\nretries: 2\ngrace:\n  save: 1h30m\n"),
        ]),
        block: block.child("supervisor").cloned(),
        env: pairs(&[
            ("SUPERVISE_GRACE__STOP", "45s"),
            ("SUPERVISE_RETRIES", "3"),
            ("PATH", "/bin"),
            ("SUPERVISE_ATTEMPT", "1/1/1"),
        ]),
        flags: pairs(&[("retries", "4"), ("gang.gpus", "0,2"), ("trainer_version", "0.9.1")]),
        trainers: &[],
    };
    let settings = Settings::load(&sources).unwrap();
    assert_eq!(settings.trainer_version.as_deref(), Some("0.9.1"));
    assert_eq!((settings.retries, settings.step_backs), (4, 7));
    assert_eq!(settings.kill.cgroup, CgroupChoice::Off);
    assert_eq!(settings.grace.stop, Duration::from_secs(45));
    assert_eq!(settings.gang.gpus, GpuChoice::List(vec![0, 2]));
    let origin = |key: &str| {
        let line = settings.explained().iter().find(|line| line.key == key).unwrap();
        format!("{} from {}", line.value, line.origin)
    };
    assert_eq!(origin("retries"), "4 from --set supervisor.retries");
    assert_eq!(origin("grace.stop"), "45s from environment SUPERVISE_GRACE__STOP");
    assert_eq!(origin("step_backs"), "7 from ppo.yaml:2");
    assert_eq!(origin("grace.save"), "1h30m from supervise.yaml:4");
    assert_eq!(origin("grace.orphan"), "120s from default of supervise");
    assert_eq!(origin("gang.gpus"), "[0, 2] from --set supervisor.gang.gpus");
}

#[test]
fn a_pattern_of_progress_has_one_group_and_a_hard_limit_may_be_a_word() {
    let settings = from_file("progress: 'iter (\\d+)'\nstall: {hard: 2h}\n").unwrap();
    assert_eq!(settings.progress.as_deref(), Some(r"iter (\d+)"));
    assert_eq!(settings.stall.hard, HardLimitChoice::After(Duration::from_secs(7200)));
    let words = [("auto", HardLimitChoice::Auto), ("never", HardLimitChoice::Never)];
    for (word, limit) in words {
        assert_eq!(
            from_file(&format!("stall: {{hard: {word}}}\n")).unwrap().stall.hard,
            limit
        );
    }
    assert_eq!(Settings::defaults().unwrap().progress, None);
    for text in [
        "progress: 'iter ('\n",
        "progress: 'iter'\n",
        "progress: '(a)(b)'\n",
        "stall: {hard: soon}\n",
    ] {
        assert_eq!(mistake(text).kind, ErrorKind::BadValue, "{text}");
    }
    assert_eq!(mistake("progress: 3\n").kind, ErrorKind::WrongType);
    assert!(mistake("progress: 'iter ('\n").to_string().contains("unclosed group"));
}

#[test]
fn commands_are_lists_or_shell_words() {
    let words = ["python", "-m", "x", "a=[1, 2]"];
    assert_eq!(
        from_file("command: [python, -m, x, 'a=[1, 2]']\n")
            .unwrap()
            .command
            .unwrap(),
        words
    );
    assert_eq!(
        from_file("command: python -m x 'a=[1, 2]'\n").unwrap().command.unwrap(),
        words
    );
    for (text, words) in [
        ("a 'b c' \"d e\" f\\ g", vec!["a", "b c", "d e", "f g"]),
        ("k='[\"x\"]'", vec!["k=[\"x\"]"]),
        ("|-\n  a\\\n   b", vec!["a", "b"]),
        ("a '' b", vec!["a", "", "b"]),
    ] {
        let command = from_file(&format!("command: {text}\n")).unwrap().command;
        assert_eq!(command.unwrap(), words, "{text}");
    }
    let flag = SettingSources {
        flags: pairs(&[("command", "[\"a b\", c]")]),
        ..SettingSources::default()
    };
    assert_eq!(Settings::load(&flag).unwrap().command.unwrap(), ["a b", "c"]);
    assert_eq!(mistake("command: [python, 1]\n").kind, ErrorKind::BadValue);
    assert_eq!(mistake("command: \"python 'x\"\n").kind, ErrorKind::BadValue);
    assert_eq!(mistake("command: []\n").kind, ErrorKind::BadValue);
}

#[test]
fn variables_for_the_trainer_merge_and_secrets_stay_hidden() {
    let sources = SettingSources {
        files: pairs(&[
            ("a.yaml", "env: {A: x, N: 1}\n"),
            ("b.yaml", "env:\n  WANDB_API_KEY: hush\n"),
        ]),
        env: pairs(&[("SUPERVISE_ENV__My__Var", "y")]),
        ..SettingSources::default()
    };
    let settings = Settings::load(&sources).unwrap();
    let env: Vec<(&str, &str)> = settings
        .env
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    assert_eq!(
        env,
        [("A", "x"), ("My__Var", "y"), ("N", "1"), ("WANDB_API_KEY", "hush")]
    );
    let shown: Vec<(String, String, String)> = settings
        .explain()
        .into_iter()
        .filter(|(key, _, _)| key.starts_with("env"))
        .collect();
    assert_eq!(
        shown[3],
        ("env.WANDB_API_KEY".to_owned(), "***".to_owned(), "b.yaml:2".to_owned())
    );
    assert!(!format!("{shown:?}").contains("hush"));
}

#[test]
fn unknown_settings_get_the_nearest_name() {
    for (text, key, near, line) in [
        ("\nretrys: 3\n", "retrys", "`retries`", 2),
        ("grace:\n  stopp: 3s\n", "grace.stopp", "`grace.stop`", 2),
        ("backoff: {jiter: 0.1}\n", "backoff.jiter", "`backoff.jitter`", 1),
        ("on: 1\n", "True", "config show", 1),
        (
            "completely_different_thing: 1\n",
            "completely_different_thing",
            "config show",
            1,
        ),
    ] {
        let error = mistake(text);
        assert_eq!((error.kind, error.line), (ErrorKind::UnknownKey, Some(line)), "{error}");
        assert_eq!(
            error.key.as_deref(),
            Some(key).map(|key| if key == "True" { "on" } else { key }),
            "{error}"
        );
        assert!(error.hint.as_deref().unwrap().contains(near), "{error}");
    }
    let env = SettingSources {
        env: pairs(&[("SUPERVISE_RETRY", "1")]),
        ..SettingSources::default()
    };
    let error = Settings::load(&env).unwrap_err().remove(0);
    assert_eq!(
        error.to_string().lines().next(),
        Some("environment SUPERVISE_RETRY: retry: there is no such setting")
    );
}

#[test]
fn wrong_values_name_key_and_line() {
    let error = mistake("retries: 3\ngrace:\n  stop: 1:30:00\n");
    assert_eq!(
        (error.kind, error.line, error.key.as_deref()),
        (ErrorKind::BadValue, Some(3), Some("grace.stop"))
    );
    assert!(error.hint.as_deref().unwrap().contains("1h30m"), "{error}");
    for (text, kind) in [
        ("grace: {stop: 90}\n", ErrorKind::WrongType),
        ("grace: {stop: '90'}\n", ErrorKind::BadValue),
        ("grace: 5\n", ErrorKind::WrongType),
        ("retries: many\n", ErrorKind::WrongType),
        ("retries: -1\n", ErrorKind::BadValue),
        ("retries: 2.5\n", ErrorKind::WrongType),
        ("retries: null\n", ErrorKind::WrongType),
        ("multi_host: 1\n", ErrorKind::WrongType),
        ("degraded_resume: perhaps\n", ErrorKind::BadValue),
        ("assist: {wandb: 1}\n", ErrorKind::WrongType),
        ("assist: {expiry: 'off'}\n", ErrorKind::WrongType),
        ("rehearse: often\n", ErrorKind::WrongType),
        ("learn_step: soon\n", ErrorKind::BadValue),
        ("learn_step: 30\n", ErrorKind::WrongType),
        ("assist: true\n", ErrorKind::WrongType),
        ("deadline: 2026-11-22\n", ErrorKind::WrongType),
        ("deadline: 0\n", ErrorKind::BadValue),
        ("multi_host: 'true'\n", ErrorKind::WrongType),
        ("trainer: varl\n", ErrorKind::BadValue),
        ("trainer_version: 0.9\n", ErrorKind::WrongType),
        ("trainer_version: latest\n", ErrorKind::BadValue),
        ("trainer_version: '0.9; x'\n", ErrorKind::BadValue),
        ("backoff: {jitter: 2}\n", ErrorKind::BadValue),
        ("output: {max_bytes: 256}\n", ErrorKind::WrongType),
        ("output: {max_bytes: 256 MB/s}\n", ErrorKind::BadValue),
        ("gang: {gpus: [0, x]}\n", ErrorKind::BadValue),
        ("gang: {workers: 0}\n", ErrorKind::BadValue),
        ("env: {A: true}\n", ErrorKind::BadValue),
        ("env: {'A B': x}\n", ErrorKind::BadValue),
        ("run_dir: ''\n", ErrorKind::BadValue),
        ("- 1\n", ErrorKind::WrongType),
        ("retries: 1\nretries: 2\n", ErrorKind::DuplicateKey),
        ("retries: [1\n", ErrorKind::Syntax),
    ] {
        let error = mistake(text);
        assert_eq!(error.kind, kind, "{text:?}: {error}");
        assert_eq!(error.file.as_deref(), Some("supervise.yaml"), "{text:?}");
        assert!(error.line.is_some(), "{text:?}: {error}");
    }
}

#[test]
fn the_block_in_the_trainers_file_is_read_with_the_trainers_types() {
    let block = parse_trainer_yaml("grace:\n  stop: 1:30:00\n", "ppo.yaml").unwrap();
    let error = Settings::load(&SettingSources {
        block: Some(block),
        ..SettingSources::default()
    })
    .unwrap_err()
    .remove(0);
    assert_eq!((error.kind, error.line), (ErrorKind::WrongType, Some(2)));
    assert!(error.hint.as_deref().unwrap().contains("5400"), "{error}");
}

#[test]
fn all_mistakes_are_reported_together() {
    let sources = SettingSources {
        files: pairs(&[("a.yaml", "retrys: 1\ngrace: {stop: 5}\n"), ("b.yaml", "[")]),
        flags: pairs(&[("grace", "5s")]),
        ..SettingSources::default()
    };
    assert_eq!(Settings::load(&sources).unwrap_err().len(), 4);
}

#[test]
fn trusted_names_are_a_list_whatever_they_come_from() {
    assert!(Settings::defaults().unwrap().proof.trust_globals.is_empty());
    let from = |text: &str| {
        let sources = SettingSources {
            env: pairs(&[("SUPERVISE_PROOF__TRUST_GLOBALS", text)]),
            ..SettingSources::default()
        };
        Settings::load(&sources).map(|s| s.proof.trust_globals)
    };
    assert_eq!(from("[\"a.b.C\", \"d.*\"]").unwrap(), ["a.b.C", "d.*"]);
    assert_eq!(from("a.b.C").unwrap(), ["a.b.C"]);
    assert_eq!(from("*").unwrap(), ["*"]);
    assert_eq!(from("[]").unwrap(), [""; 0]);
    for wrong in ["C", "a..b", "a.b*", ".*", "[1]", "os system", "a.*.b"] {
        assert!(from(wrong).is_err(), "{wrong}");
    }
    let settings = from_file("proof: {trust_globals: [a.b.C, '*'], trust_unsafe: true}\n").unwrap();
    assert_eq!(settings.proof.trust_globals, ["a.b.C", "*"]);
    assert!(settings.proof.trust_unsafe);
    assert_eq!(mistake("proof: {trust_globals: a.b}\n").kind, ErrorKind::WrongType);
    assert_eq!(mistake("proof:\n  trust_globals: [a.b, C]\n").line, Some(2));
}

#[test]
fn memory_of_a_proof_is_a_size() {
    assert_eq!(Settings::defaults().unwrap().proof.memory, 256 << 20);
    assert_eq!(from_file("proof: {memory: 1GiB}\n").unwrap().proof.memory, 1 << 30);
    for wrong in [
        "proof: {memory: much}\n",
        "proof: {memory: -1}\n",
        "proof: {memory: [1]}\n",
    ] {
        assert_eq!(mistake(wrong).line, Some(1), "{wrong}");
    }
}

#[test]
fn a_trainer_is_named_as_those_who_know_it_say() {
    assert_eq!(from_file("trainer: this\n").unwrap().trainer, "this");
    assert_eq!(from_file("retries: 1\n").unwrap().trainer, "auto");
    let wrong = mistake("trainer: other\n");
    assert!(wrong.to_string().contains("one of: auto, this, plain"), "{wrong}");
}

#[test]
fn the_schema_for_editors_takes_what_is_accepted_and_no_other_form() {
    let schema = settings::json_schema(&["plain"]);
    let pattern = |group: &str, name: &str| {
        let pattern = &schema["properties"][group]["properties"][name]["pattern"];
        Regex::new(pattern.as_str().unwrap()).unwrap()
    };
    let duration = pattern("grace", "stop");
    for text in [
        "90s", "1h30m", "1.5h", "1h 30m", " 2d ", "250ms", "90", "1:30:00", "m", "5 m", "-5s", "5x",
    ] {
        let is_accepted = settings::parse_duration(text).is_ok();
        assert_eq!(duration.is_match(text), is_accepted, "{text}");
    }
    let size = pattern("proof", "memory");
    for text in [
        "256MiB", "2GB", "1.5 KiB", "0B", "1gib", "1tb", "256", "MiB", "256M", "1iB", "-1B", "1PB",
    ] {
        let is_accepted = settings::parse_bytes(text).is_ok();
        assert_eq!(size.is_match(text), is_accepted, "{text}");
    }
    let names = &schema["properties"]["proof"]["properties"]["trust_globals"]["items"]["pattern"];
    let names = Regex::new(names.as_str().unwrap()).unwrap();
    for text in ["*", "a.*", "a.b", "a.b.*", "a", "a.b*", ".*", "a..b", "a.*.b"] {
        let is_accepted = from_file(&format!("proof: {{trust_globals: ['{text}']}}\n")).is_ok();
        assert_eq!(names.is_match(text), is_accepted, "{text}");
    }
}

#[test]
fn events_are_words_and_a_webhook_is_an_address_that_is_never_shown() {
    let load = |key: &str, value: &str| {
        Settings::load(&SettingSources {
            flags: pairs(&[(key, value)]),
            ..SettingSources::default()
        })
    };
    let some = load("on_event.events", "gave_up, stall").unwrap();
    assert_eq!(some.on_event.events, [EventChoice::GaveUp, EventChoice::Stall]);
    let wrong = load("on_event.events", "gave_up, stal").unwrap_err();
    assert!(
        wrong[0].to_string().contains("'stal' is not a possible value"),
        "{wrong:?}"
    );
    let secret = "https://hooks.example/T0SECRET";
    let shown = load("on_event.webhook", secret).unwrap();
    assert!(shown.explain().iter().all(|(_, value, _)| !value.contains("T0SECRET")));
    for odd in [
        "hooks.example",
        "file:///etc/passwd",
        "https://a b",
        "https://",
        "https://a\"\nurl=x",
    ] {
        let wrong = load("on_event.webhook", odd).unwrap_err();
        assert!(wrong[0].to_string().contains("no address"), "{odd}: {wrong:?}");
    }
}

#[test]
fn a_list_that_cannot_be_read_is_called_so() {
    let error = Settings::load(&SettingSources {
        flags: vec![("rules".into(), r#"[{pattern: "\d", class: user.x}]"#.into())],
        ..SettingSources::default()
    })
    .unwrap_err()
    .remove(0);
    assert!(error.message.starts_with("the value is no YAML"), "{error:?}");
}
