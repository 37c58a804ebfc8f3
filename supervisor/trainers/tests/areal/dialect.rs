//! How AReaL reads a YAML and the overrides behind a script.

use super::case::{Case, command, more, recover, set, text, with};
use supervise_core::id::Step;
use supervise_core::spec::SaveCadence;

fn every(recover_lines: &str) -> SaveCadence {
    recover(recover_lines).good().cadence
}

#[test]
fn an_unquoted_on_is_a_truth_value_and_meant_as_on() {
    for said in ["on", "yes", "True", "true"] {
        let case = recover(&format!("  mode: {said}\n  freq_steps: 2"));
        assert!(
            case.says("recover_mode").unwrap().contains("AReaL refuses \"True\""),
            "{said}"
        );
        assert!(case.words().ends_with("++recover.mode=auto"), "{said}");
    }
    for said in ["'on'", "\"on\"", "auto"] {
        let case = recover(&format!("  mode: {said}\n  freq_steps: 2"));
        assert_eq!(case.says("recover_mode"), None, "{said}");
        assert!(case.words().ends_with("++recover.mode=auto"), "{said}");
    }
}

#[test]
fn recovery_that_is_off_is_switched_on_and_that_is_said() {
    for said in ["off", "'off'", "disabled", "no"] {
        let case = recover(&format!("  mode: {said}\n  freq_steps: 2"));
        assert!(case.says("recover_switched_on").is_some(), "{said}");
        assert!(case.words().ends_with("++recover.mode=auto"), "{said}");
    }
    let default = recover("  freq_steps: 2");
    assert!(default.says("recover_switched_on").is_some());
}

#[test]
fn a_command_that_switches_recovery_off_is_obeyed_and_that_is_said() {
    let yaml = || recover("  mode: auto\n  freq_steps: 2").yaml;
    for off in ["recover.mode=off", "recover.mode=disabled", "++recover.mode=disabled"] {
        let command = format!("python3 sft.py scheduler.type=local {off}").leak();
        let by_command = Case {
            yaml: yaml(),
            command,
            ..Case::default()
        };
        let by_set = Case {
            yaml: yaml(),
            set: vec![off].leak(),
            ..Case::default()
        };
        for case in [by_command, by_set] {
            assert!(!case.good().recovery, "{off}");
            assert!(case.says("recover_switched_off").is_some(), "{off}");
            assert_eq!(case.says("recover_switched_on"), None, "{off}");
            assert!(!case.words().contains("recover.mode=auto"), "{}", case.words());
            let said = Case {
                recovery_said: true,
                ..case
            };
            assert!(said.good().recovery, "{off}");
            assert!(said.words().ends_with("++recover.mode=auto"), "{}", said.words());
        }
    }
    let on = Case {
        yaml: recover("  mode: off\n  freq_steps: 2").yaml,
        set: &["recover.mode=auto"],
        ..Case::default()
    };
    assert!(on.good().recovery);
}

#[test]
fn the_number_of_relaunches_is_areals_own_where_none_is_said() {
    assert_eq!(recover("  freq_steps: 2").good().facts.retries, Some(3));
    assert_eq!(recover("  freq_steps: 2\n  retries: 7").good().facts.retries, Some(7));
}

#[test]
fn without_recovery_the_mode_is_the_users_in_a_spelling_that_areal_takes() {
    for (said, given) in [
        ("on", Some("auto")),
        ("off", Some("disabled")),
        ("disabled", None),
        ("auto", None),
    ] {
        let case = Case {
            no_recovery: true,
            ..recover(&format!("  mode: {said}\n  freq_steps: 2"))
        };
        let words = case.words();
        match given {
            Some(mode) => assert!(words.ends_with(&format!("++recover.mode={mode}")), "{words}"),
            None => assert!(!words.contains("recover.mode"), "{words}"),
        }
        assert_eq!(case.says("recover_switched_on"), None);
    }
}

#[test]
fn modes_that_were_removed_are_refused() {
    for said in ["fault", "resume", "'ON'", "1"] {
        let problem = recover(&format!("  mode: {said}\n  freq_steps: 2")).problem();
        assert!(
            problem.contains("recover.mode") && problem.contains("write auto"),
            "{problem}"
        );
    }
}

#[test]
fn on_the_command_line_on_is_a_text() {
    let case = set(&["recover.mode=on"]);
    assert_eq!(case.says("recover_mode"), None);
    assert!(set(&["recover.mode=true"]).says("recover_mode").is_some());
}

#[test]
fn numbers_are_yaml_1_1() {
    assert_eq!(every("  mode: auto\n  freq_steps: 010").every, Some(8));
    assert_eq!(every("  mode: auto\n  freq_steps: 1_000").every, Some(1000));
    assert_eq!(every("  mode: auto\n  freq_steps: 1:30").every, Some(90));
    assert_eq!(every("  mode: auto\n  freq_steps: '7'").every, Some(7));
    for wrong in ["2.5", "true", "many", "[2]"] {
        let problem = recover(&format!("  mode: auto\n  freq_steps: {wrong}")).problem();
        assert!(problem.contains("expected an integer, found"), "{wrong}: {problem}");
    }
}

#[test]
fn names_that_look_like_numbers_become_what_python_prints() {
    for (said, name) in [
        ("010", "8"),
        ("1e-3", "0.001"),
        ("on", "True"),
        ("'010'", "010"),
        ("2024-01-02", "2024-01-02"),
    ] {
        let yaml = with("  mode: auto\n  freq_steps: 2", "")
            .replace("trial_name: t0\ncluster", &format!("trial_name: {said}\ncluster"));
        let case = Case {
            yaml,
            ..Case::default()
        };
        let root = case.good().root.unwrap();
        assert_eq!(root.file_name(), Some(name), "{said}");
    }
}

#[test]
fn a_frequency_of_nothing_holds_at_every_step() {
    for lines in ["freq_steps: 0", "freq_epochs: 0", "freq_secs: 0", "freq_steps: -3"] {
        let read = every(&format!("  mode: auto\n  {lines}"));
        assert_eq!((read.every, read.at_end), (Some(1), true), "{lines}");
    }
}

#[test]
fn overrides_in_the_command_and_ours_count_in_order() {
    let case = Case {
        set: &["recover.freq_steps=7"],
        ..command("python3 sft.py scheduler.type=local recover.freq_steps=5 +total_train_steps=30")
    };
    let read = case.good();
    assert_eq!((read.cadence.every, read.last_step), (Some(7), Some(Step(30))));
    let words = case.words();
    assert_eq!(
        words,
        "python3 sft.py --config /conf/x.yaml scheduler.type=local recover.freq_steps=5 +total_train_steps=30 recover.freq_steps=7 ++recover.mode=auto"
    );
}

#[test]
fn an_override_of_a_key_that_the_file_lacks_is_refused_as_hydra_does() {
    let problem = set(&["total_train_steps=30"]).problem();
    assert!(problem.contains("Could not override 'total_train_steps'"), "{problem}");
    assert_eq!(set(&["++total_train_steps=30"]).good().last_step, Some(Step(30)));
    assert!(set(&["recover.freq_steps=1,2"]).read().is_err());
    assert!(set(&["~recover.no_such"]).read().is_err());
    assert!(set(&["+recover.freq_steps=3"]).read().is_err());
}

#[test]
fn an_override_of_null_takes_the_value_away() {
    let problem = set(&["recover.freq_steps=null"]).problem();
    assert!(problem.contains("nothing would ever be saved"), "{problem}");
}

#[test]
fn a_key_that_areal_does_not_know_is_told() {
    let case = recover("  mode: auto\n  freq_steps: 2\n  freq_step: 3");
    assert!(case.says("unknown_key").unwrap().contains("recover.freq_step "));
}

#[test]
fn what_has_no_default_is_told() {
    let yaml = with("  mode: auto\n  freq_steps: 2", "").replace("train_dataset: {path: p, type: sft}\n", "");
    let case = Case {
        yaml,
        ..Case::default()
    };
    assert!(case.says("mandatory_missing").unwrap().contains("train_dataset.path"));
    let yaml = with("  mode: auto\n  freq_steps: 2", "").replace("  trial_name: ${trial_name}\n", "");
    let problem = Case {
        yaml,
        ..Case::default()
    }
    .problem();
    assert!(problem.contains("recover.trial_name"), "{problem}");
}

#[test]
fn a_duplicate_key_is_refused_as_omegaconf_does() {
    let problems = recover("  mode: auto\n  freq_steps: 2\n  freq_steps: 3")
        .read()
        .unwrap_err();
    assert!(text(&problems).contains("freq_steps"), "{}", text(&problems));
}

#[test]
fn only_files_that_end_in_yaml_are_found_by_areal() {
    for file in ["/conf/x.yml", "/conf/x.yaml.bak", "/conf/x.yaml.yaml"] {
        let problem = Case {
            file,
            ..Case::default()
        }
        .problem();
        assert!(problem.contains("rename the file"), "{file}: {problem}");
    }
}

#[test]
fn keys_that_were_removed_are_refused() {
    let problem = set(&["+actor.behave_imp_weight_cap=5"]).problem();
    assert!(problem.contains("removed this key"), "{problem}");
}

#[test]
fn an_interpolation_that_leads_nowhere_is_told_with_its_place() {
    let problem = more("tokenizer_path: ${no.such}\n").read();
    assert!(problem.is_ok(), "nobody asks for it here");
    let yaml = with("  mode: auto\n  freq_steps: 2", "").replace("${cluster.fileroot}", "${cluster.fileroof}");
    let problem = Case {
        yaml,
        ..Case::default()
    }
    .problem();
    assert!(problem.contains("x.yaml:"), "{problem}");
}
