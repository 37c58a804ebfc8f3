//! `supervise advise` on a run that saved.

use super::SUPERVISE;
use serde_json::{Value, json};
use supervise_tests::harness::Scene;

#[test]
fn a_run_is_told_how_often_it_should_save() {
    let mut scene = Scene::demo(SUPERVISE);
    scene
        .set("demo.faults", json!([]))
        .set("demo.step_ms", json!(400))
        .set("demo.save_ms", json!(600))
        .set("trainer.total_training_steps", json!(8));
    scene.run(&[]).expect(0);
    let root = scene.root();
    let ask = |more: &[&str]| scene.ask(&[&["advise", root.to_str().unwrap()], more].concat());
    let said = ask(&[]);
    said.expect(0)
        .says("instead of every 2")
        .says("trainer.save_freq: ")
        .says("0 sudden failures");
    let said = ask(&["--max-loss", "10s", "--json"]);
    let advice: Value = serde_json::from_str(&said.expect(0).text).unwrap();
    assert_eq!(advice["kept"], true, "{advice}");
    assert_eq!(advice["now"]["every"], 2, "{advice}");
    ask(&["--max-loss", "0s"]).expect(64).says("less than 10s");
    // A step and a save take at least as long as they sleep, and all of them together take longer.
    let measured = |key: &str| advice["measured"][key].as_u64().unwrap();
    assert!(measured("step_ms") >= 400 && measured("stall_ms") >= 500, "{advice}");
    assert!(measured("save_ms") >= measured("stall_ms"), "{advice}");
    assert!(measured("trained_ms") >= 8 * 400, "{advice}");
}
