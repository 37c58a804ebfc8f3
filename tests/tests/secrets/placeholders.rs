//! What is hidden is never read again as a setting: a script's call is read as it was made, and written down without secrets.

use super::{said, scene};
use serde_json::Value;
use std::fs;

const NAME: &str = "hf_canaryOfAnExperiment123";

fn script(scene: &supervise_tests::harness::Scene, nodes: &str) -> String {
    let call = format!(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes={nodes} trainer.n_gpus_per_node=2 \
         data.answer_key=Ground-Truth-1 trainer.experiment_name={NAME} trainer.project_name=p trainer.save_freq=5"
    );
    fs::write(scene.path("launch.sh"), format!("#!/bin/bash\n{call} \"$@\"\n")).unwrap();
    call
}

#[test]
fn a_script_and_its_call_are_the_same_run_whatever_is_hidden_of_it() {
    let scene = scene();
    let call = script(&scene, "1");
    let id = |args: &[&str]| {
        let text = said(scene.supervise(args));
        assert!(!text.contains(NAME), "{text}");
        let from = text.find('{').unwrap_or_else(|| panic!("{text}"));
        let plan: Value = serde_json::Deserializer::from_str(&text[from..])
            .into_iter()
            .next()
            .unwrap()
            .unwrap();
        assert!(
            text.contains("answer_key=Ground-Truth-1"),
            "an ordinary value is shown: {text}"
        );
        plan["run"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let by_script = id(&["plan", "--learn", "--yes", "--json", "--", "bash", "launch.sh"]);
    let words: Vec<&str> = call.split_whitespace().collect();
    let by_call = id(&[&["plan", "--json", "--"][..], &words].concat());
    assert_eq!(by_script, by_call);
}

#[test]
fn a_placeholder_of_a_published_script_is_told_for_one() {
    let scene = scene();
    script(&scene, "\"***\"");
    let text = said(scene.supervise(&["plan", "--learn", "--yes", "--", "bash", "launch.sh"]));
    assert!(text.contains("trainer.nnodes: expected an integer"), "{text}");
    assert!(text.contains("the text *** is there literally"), "{text}");
}
