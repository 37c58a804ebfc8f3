//! The exception that ends an interpreter is known where its output does not tell it, and nothing that the program sees is changed for that.

use super::SUPERVISE;
use super::evidence::evidence;
use serde_json::Value;
use std::fs;
use supervise_tests::harness::{Scene, eventually};

/// Runs a script as the only worker of a plain run.
fn run(scene: &Scene, script: &str, more: &[&str]) -> i32 {
    let train = scene.path("train.py");
    fs::write(&train, script).unwrap();
    let run_dir = format!("run_dir={}", scene.path("run").display());
    let settings = [&["retries=0", &run_dir], more].concat();
    let run = scene.start_plain(&settings, &["python3", train.to_str().unwrap()]);
    run.wait().code.unwrap()
}

fn diagnosis(scene: &Scene) -> (String, String) {
    let told = scene.ask(&["explain", "--json"]);
    let told: Value = serde_json::from_str(&told.expect(0).text).unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let attempts = told["attempts"].as_array().unwrap();
    let found = &attempts.iter().find(|a| a["attempt"] == 1).unwrap()["diagnosis"];
    (text(&found["class"]), text(&found["text"]))
}

/// Its traceback goes nowhere, as where a runtime keeps the standard error of its workers.
const SILENT: &str = r#"
import os, sys
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
token = "hf_abcdefghijklmnopqrstuvwxyz0123"
def reads():
    raise OSError(28, "No space left on device", token)
def steps():
    try:
        reads()
    except OSError as e:
        raise RuntimeError("the batch could not be kept \u00e9\U0001F600 " + token) from e
print("step 1")
steps()
"#;

#[test]
fn an_exception_that_no_output_tells_is_known() {
    let scene = Scene::new(SUPERVISE);
    // It would wait for room for half an hour.
    let ends = "policy={disk.full: stop}";
    assert_ne!(run(&scene, SILENT, &[ends]), 0);
    let (class, text) = diagnosis(&scene);
    assert_eq!(class, "disk.full", "{text}");
    let dir = evidence(&scene.path("")).unwrap();
    let kept = eventually("the exception is kept", || {
        fs::read_to_string(dir.join("exceptions.txt")).ok()
    });
    assert!(
        kept.contains("in reads\nOSError: [Errno 28]")
            && kept.contains("RuntimeError: the batch could not be kept \u{e9}\u{1f600} "),
        "{kept}"
    );
    assert!(!kept.contains("abcdefghij"), "{kept}");

    // As without a supervisor: nothing is known of it.
    let scene = Scene::new(SUPERVISE);
    assert_ne!(run(&scene, SILENT, &["interpreter=plain"]), 0);
    assert_eq!(diagnosis(&scene).0, "exit.unexplained");
}

#[test]
fn both_ways_come_to_the_same_class() {
    for raised in [
        "raise KeyError('loss')",
        "raise ImportError(\"No module named 'flash_attn'\")",
        "open('/no/such/file')",
        "raise RuntimeError('CUDA error: an illegal memory access was encountered')",
        "import mine_is_not_there",
        "class Odd(Exception): pass\nraise Odd('x')",
    ] {
        let classes = ["", "import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"].map(|before| {
            let scene = Scene::new(SUPERVISE);
            assert_ne!(run(&scene, &format!("{before}{raised}\n"), &[]), 0);
            diagnosis(&scene).0
        });
        assert_eq!(classes[0], classes[1], "{raised}");
    }
}

/// All that a program can see of how it was started.
const SEES: &str = r#"
import sys
modules = sorted(sys.modules)
import os, json, signal, threading
own = ("SUPERVISE_ATTEMPT", "TORCHELASTIC_", "MASTER_PORT", "TORCH_", "PYTHONFAULTHANDLER", "SUPERVISE_RUN")
seen = {
    "modules": modules, "path": sys.path, "flags": str(sys.flags), "argv": sys.argv, "words": sys.orig_argv,
    "hook": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
    "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], "hooks": [f.__qualname__ for f in sys.path_hooks], "caches": sorted(sys.path_importer_cache),
    "signals": [str(signal.getsignal(n)) for n in range(1, 32)], "threads": threading.active_count(), "trace": [str(sys.gettrace()), str(sys.getprofile())],
    "files": sorted(os.readlink("/proc/self/fd/" + f).split(":")[0] for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)),
    "env": {k: v for k, v in os.environ.items() if not k.startswith(own)},
}
def hook(kind, value, trace):
    seen["called"] = kind.__name__
    with open(os.environ["SEEN"], "w") as f:
        json.dump(seen, f)
sys.excepthook = hook
raise ValueError("seen")
"#;

#[test]
fn a_program_sees_nothing_of_it_and_its_own_hook_is_called() {
    let see = |choice: &str| {
        let mut scene = Scene::new(SUPERVISE);
        let seen = scene.path("seen.json");
        scene
            .env("SEEN", seen.to_str().unwrap())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // As set by the user: its handlers are seen among the signals.
            .env("PYTHONFAULTHANDLER", "1");
        assert_ne!(run(&scene, SEES, &[&format!("interpreter={choice}")]), 0);
        let text = fs::read_to_string(&seen).unwrap();
        // Each scene stands in a directory of its own.
        let here = scene.path("").display().to_string();
        let text = text.replace(here.trim_end_matches('/'), "HERE");
        (serde_json::from_str::<Value>(&text).unwrap(), diagnosis(&scene))
    };
    let ((mut with, told), (plain, silent)) = (see("auto"), see("plain"));
    assert_eq!(with["called"], "ValueError");
    // The start file itself, what reads it from memory, and the handler for fatal signals.
    let own = ["sitecustomize", "zipimport", "atexit", "faulthandler"];
    let names = |v: &Value| -> Vec<String> { serde_json::from_value(v["modules"].clone()).unwrap() };
    let more: Vec<String> = names(&with)
        .into_iter()
        .filter(|m| !names(&plain).contains(m))
        .collect();
    assert!(more.iter().all(|m| own.contains(&m.as_str())), "{more:?}");
    with["modules"] = plain["modules"].clone();
    for (key, value) in plain.as_object().unwrap() {
        assert_eq!(&with[key], value, "{key}");
    }
    assert_eq!(
        (told.0.as_str(), silent.0.as_str()),
        ("code.type_key", "exit.unexplained")
    );
}
