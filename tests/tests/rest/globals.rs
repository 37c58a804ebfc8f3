//! Steps of somebody else whose files name code: what is refused, and what the refusal tells to do.

use super::{scene, stopped_at_eight};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Ended, Scene, copy_tree};
use supervise_tests::torch_file::encode_pickle;

/// A pickle of a dict that names these, and calls none of them.
fn naming(globals: &[(&str, &str)]) -> Vec<u8> {
    let mut out = b"\x80\x02}(".to_vec();
    for (n, (module, name)) in globals.iter().enumerate() {
        out.extend_from_slice(format!("K{}c{module}\n{name}\n", char::from(n as u8 + 1)).as_bytes());
    }
    out.extend_from_slice(b"u.");
    out
}

/// A pickle of an object of this class.
fn object(module: &str, name: &str) -> Vec<u8> {
    format!("\u{2}c{module}\n{name}\n)\u{1}}}b.")
        .into_bytes()
        .iter()
        .fold(vec![0x80], |mut out, b| {
            out.push(if *b == 1 { 0x81 } else { *b });
            out
        })
}

/// Another root, to which somebody copied steps of which the newest holds this.
fn copied(pickle: &[u8]) -> Scene {
    let from = stopped_at_eight();
    let mut to = scene();
    to.set("demo.hold_at", json!(null));
    for step in [4, 8] {
        copy_tree(&from.step(step), &to.step(step)).unwrap();
    }
    fs::copy(from.tracker(), to.tracker()).unwrap();
    fs::write(to.step(8).join("data.pt"), encode_pickle(pickle)).unwrap();
    to
}

fn has_setting(ended: &Ended) -> bool {
    ended.text.contains("trust_globals") || ended.text.contains("TRUST_GLOBALS")
}

#[test]
fn a_loader_that_is_only_named_is_unsafe_and_no_setting_is_told_for_it() {
    let mut scene = copied(&naming(&[
        ("torch._utils", "_import_dotted_name"),
        ("torch.utils.data.dataloader", "DataLoader"),
        ("my_project.state", "Sampler"),
    ]));
    let step = scene.step(8);
    scene
        .ask(&["verify", step.to_str().unwrap(), "-v"])
        .expect(22)
        .says("_import_dotted_name");
    let said = scene.run(&[]);
    said.expect(4).says("is unsafe");
    assert!(!has_setting(&said), "{}", said.text);
    assert_eq!(scene.attempts(), 0);
    // Nor is it let through by who pasted an earlier release's line.
    let names =
        r#"["torch._utils._import_dotted_name", "torch.utils.data.dataloader.DataLoader", "my_project.*", "*"]"#;
    scene.env("SUPERVISE_PROOF__TRUST_GLOBALS", names);
    scene.run(&["--again"]).expect(4).says("is unsafe");
    assert_eq!(scene.attempts(), 0);
}

#[test]
fn no_setting_is_told_for_what_is_not_the_users_own() {
    let scene = copied(&object("some_library.state", "Sampler"));
    // What has its name is no module.
    fs::create_dir(scene.path("some_library")).unwrap();
    fs::write(scene.path("some_library/readme.txt"), "").unwrap();
    let said = scene.run(&[]);
    said.expect(4)
        .says("some_library.state.Sampler")
        .says("--from N")
        .says("--fresh");
    assert!(!has_setting(&said), "{}", said.text);
    assert_eq!(scene.attempts(), 0);
    // The command that is told says more.
    let (_, rest) = said.text.split_once("`supervise verify '").unwrap();
    let path = rest.split_once('\'').unwrap().0;
    scene
        .ask(&["verify", path, "-v"])
        .expect(22)
        .says("some_library.state.Sampler");
}

#[test]
fn a_module_in_the_working_directory_is_asked_about_once() {
    let mut scene = copied(&object("my_project.state", "Sampler"));
    fs::create_dir(scene.path("my_project")).unwrap();
    fs::write(scene.path("my_project/state.py"), "class Sampler: pass\n").unwrap();
    let said = scene.run(&[]);
    said.expect(4)
        .says("my_project.state.Sampler")
        .says("If that is your own code")
        .says("answer the question above, then `supervise run` with --again");
    let (_, rest) = said.text.split_once("SUPERVISE_PROOF__TRUST_GLOBALS='").unwrap();
    let list = rest.split_once('\'').unwrap().0.to_owned();
    scene.env("SUPERVISE_PROOF__TRUST_GLOBALS", &list);
    // The demo's trainer cannot read such a file: that it is started with it is the answer.
    let said = scene.run(&["--again", "--set", "supervisor.retries=0"]);
    assert!(!said.text.contains("If that is your own code"), "{}", said.text);
    assert!(scene.attempts() > 0, "{}", said.text);
}
