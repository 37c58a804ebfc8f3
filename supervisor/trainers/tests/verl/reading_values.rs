//! Values of a file, and which of two counts.

use super::reading::{Case, yaml};
use camino::Utf8Path;

#[test]
fn every_value_of_a_file_reaches_the_trainer_unchanged() {
    let read = yaml(
        "trainer:\n  save_freq: 1\n  logger: [console, 'a b', 1, null, 1e-7, [x]]\n  project_name: \"it's \\\\ a, {b} ${.c} =\"\n  c: \"10\"\n  e: ''\nalgorithm: {}\ncritic: {enable: false}\nsupervisor: {retries: 3}\nhydra: {run: {dir: x}}\ndata: {x: .inf, y: '???', z: 'true', w: \"a'b\\\"c\"}\n",
    )
    .good();
    let told: Vec<&str> = read.command[3..]
        .iter()
        .map(String::as_str)
        .filter(|w| w.starts_with("++"))
        .collect();
    assert_eq!(
        told,
        [
            "++trainer.save_freq=1",
            "++trainer.logger=['console','a b',1,null,1e-07,['x']]",
            r#"++trainer.project_name="it's \ a, {b} ${.c} =""#,
            "++trainer.c='10'",
            "++trainer.e=''",
            "++critic.enable=false",
            "++data.x=inf",
            "++data.z='true'",
            r#"++data.w='a\'b"c'"#,
        ]
    );
    let odd = yaml("trainer: {save_freq: 1}\nalgorithm: {}\ndata: {'a b': 1}\n").problem();
    assert!(
        odd.contains("data.a b") && odd.contains("defaults: [ppo_trainer, _self_]"),
        "{odd}"
    );
}

#[test]
fn what_stands_beneath_verls_own_configuration_is_overruled() {
    let text = "defaults: [_self_, ppo_trainer]\ntrainer: {save_freq: 20, project_name: p}\n";
    let read = Case {
        set: &["trainer.save_freq=3"],
        ..yaml(text)
    };
    let read = read.good();
    assert_eq!(
        read.root.as_deref(),
        Some(Utf8Path::new("/data/checkpoints/verl_examples/gsm8k"))
    );
    assert_eq!(read.cadence.every, Some(3));
    assert!(read.findings.iter().any(|f| f.code == "overruled_by_verl"));
    let last = yaml("defaults: [ppo_trainer, _self_]\ntrainer: {save_freq: 20}\n").good();
    assert!(last.findings.iter().all(|f| f.code != "overruled_by_verl"));
}
