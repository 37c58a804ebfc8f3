//! `supervise simulate`: numbers from flags and recorded failures, and refusals.

use crate::world::World;
use serde_json::Value;
use std::fs;

/// A job that fails often, and a short training.
const JOB: [&str; 9] = [
    "simulate", "--gpus", "16384", "--rate", "3.79", "--days", "3", "--seeds", "2",
];

fn ask(more: &[&str]) -> Value {
    let said = World::new().run(&[&JOB[..], more, &["--json"]].concat());
    said.tells(0, &[]);
    said.json()
}

fn number(view: &Value, pointer: &str) -> f64 {
    view.pointer(pointer).and_then(Value::as_f64).unwrap()
}

#[test]
fn a_simulation_adds_up_and_repeats() {
    let flags = ["--save-every", "30m", "--launch", "200s", "--detect", "0s"];
    let view = ask(&flags);
    assert_eq!(
        (&view["now"]["every"], &view["inputs"]["steps"]),
        (&180.into(), &25_920.into())
    );
    let parts = view["now"]["parts"].as_object().unwrap().values();
    let waiting = view["now"]["waiting"].as_object().unwrap().values();
    let sum: f64 = parts.chain(waiting).map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{view:#}");
    let [low, mean, high] = ["/now/goodput/p5", "/now/goodput/mean", "/now/goodput/p95"].map(|p| number(&view, p));
    assert!(0.7 < low && low <= mean && mean <= high && high < 0.97, "{view:#}");
    // Three days are too few for more: a run of 54 scatters by half a point.
    assert!((mean - number(&view, "/now/expected")).abs() < 0.04, "{view:#}");
    assert!(
        number(&view, "/best/expected") > number(&view, "/now/expected"),
        "{view:#}"
    );
    assert_eq!(view["now"]["finished"], 2);
    assert_eq!(view, ask(&flags), "the same seeds give the same answer");
    let other = ask(&[&flags[..], &["--seed", "100"]].concat());
    assert_ne!(view["now"]["goodput"], other["now"]["goodput"]);
}

#[test]
fn the_text_says_what_was_assumed() {
    let said = World::new().run(&JOB);
    let parts = [
        "3d of training on 16384 GPUs (2048 nodes) take ",
        "goodput ",
        "9 of 10 runs: ",
        "productive ",
        "person     never needed",
        "Halving one of these would gain:",
        "Assumed: --step 10s, --save-stall 30s, --launch 3m, --detect 30s",
    ];
    said.tells(0, &parts);
    World::new()
        .run(&[&JOB[..], &["--save-every", "2h"]].concat())
        .tells(0, &["if it saves every 720 steps (2h)", "best ", "GPU hours less"]);
}

#[test]
fn recorded_failures_are_scaled_to_the_job() {
    let world = World::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/failures/infinitehbd.csv");
    world.write("failures.csv", &fs::read_to_string(example).unwrap());
    let ask = |nodes: &[&str]| {
        let flags = [
            "--gpus",
            "6400",
            "--days",
            "5",
            "--seeds",
            "2",
            "--trace",
            "failures.csv",
            "--json",
        ];
        let said = world.run(&[&["simulate"][..], &flags, nodes].concat());
        said.tells(0, &[]);
        said.json()
    };
    let scaled = ask(&["--trace-nodes", "400"]);
    let trace = &scaled["inputs"]["trace"];
    assert_eq!((&trace["failures"], &trace["scale"]), (&584.into(), &2.0.into()));
    let ratio = number(&ask(&[]), "/inputs/mean_time_between_failures_ms")
        / number(&scaled, "/inputs/mean_time_between_failures_ms");
    assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
}

#[test]
fn senseless_input_is_refused() {
    let world = World::new();
    world.write("back.csv", "day,faults\n3,1\n2,1\n");
    world.write("binary.csv", "seconds\nnan\n");
    fs::write(world.path("bytes.csv"), [0xff, 0xfe, 0, 1]).unwrap();
    for (flags, parts) in [
        (
            &[][..],
            &[
                "nothing says how often the job fails",
                "hint: give --gpus, --mtbf or --trace",
            ][..],
        ),
        (&["--gpus", "0"], &["--gpus"]),
        (&["--gpus", "99999999999"], &["--gpus"]),
        (&["--gpus", "8", "--rate", "NaN"], &["'NaN' is not a number above 0"]),
        (&["--gpus", "8", "--rate", "-1"], &["'-1' is not a number above 0"]),
        (&["--gpus", "8", "--rate", "inf"], &["'inf' is not a number above 0"]),
        (
            &["--gpus", "8", "--days", "1e300"],
            &["'1e300' is not a number above 0 and up to 3650"],
        ),
        (
            &["--gpus", "8", "--damaged", "1.5"],
            &["'1.5' is not a number from 0 to 1"],
        ),
        (&["--gpus", "8", "--step", "0s"], &["the step time must be more than 0"]),
        (
            &["--mtbf", "0s"],
            &["the mean time between failures must be more than 0"],
        ),
        (
            &["--gpus", "8", "--save-every", "often"],
            &["'often' is not a number of steps, a duration (10m) or `best`"],
        ),
        (
            &["--gpus", "8", "--save-every", "0"],
            &["the save interval must be more than 0"],
        ),
        (
            &["--gpus", "8", "--days", "1", "--save-every", "2d"],
            &["the save interval of 17280 steps is longer than the training of 8640 steps"],
        ),
        (
            &["--gpus", "8", "--save-time", "1s"],
            &["--save-time (1 s) is shorter", "hint:"],
        ),
        (&["--mtbf", "1s"], &["together at most 1,000,000"]),
        (
            &["--gpus", "8", "--days", "100", "--save-every", "1", "--seeds", "1000"],
            &["saves and failures", "hint: simulate fewer --seeds"],
        ),
        (&["--gpus", "8", "--mtbf", "1h", "--rate", "4"], &["--mtbf"]),
        (&["--trace-nodes", "4"], &["--trace"]),
        (&["--trace", "none.csv"], &["there is no trace none.csv"]),
        (&["--trace", "bytes.csv"], &["the trace bytes.csv is not text"]),
        (
            &["--trace", "back.csv"],
            &["trace back.csv: line 3: day 2 comes after day 3: days must rise"],
        ),
        (
            &["--trace", "binary.csv"],
            &["trace binary.csv: line 2: `nan` is not a number of seconds"],
        ),
    ] {
        world.run(&[&["simulate"], flags].concat()).refuses(64, parts);
    }
    world.run(&["simulate", "no-such-run"]).refuses(64, &["no-such-run"]);
}
