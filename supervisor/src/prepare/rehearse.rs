//! A relaunch tried in advance: does this release take the overrides that a resume would be given?

use super::Prepared;
use super::version::environment;
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::checkpoint::{CkptId, Finding, PinsHash};
use supervise_core::id::{AttemptNo, Step};
use supervise_core::record::{LaunchOrder, StartPoint};
use supervise_host::interpreter;
use supervise_host::process::capture::{Captured, Errand, capture};
use supervise_trainers::rehearsal::{differences, refused_key, rehearsed};
use supervise_trainers::{HostFacts, LaunchPlan, adapter};

/// Importing the trainer takes ten seconds, or a minute where the machine is busy.
const PATIENCE: Duration = Duration::from_secs(180);
/// A configuration is some tens of kilobytes.
const OUTPUT: usize = 4 << 20;
/// Complaints stand at the end.
const ERRORS: usize = 64 << 10;
/// No rehearsal is to see a device.
const DEVICES: [&str; 4] = [
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
];

/// Lets the trainer compose the configuration of a resume, and tells what it does not take.
#[must_use]
pub fn rehearse(p: &Prepared) -> Vec<Finding> {
    let impossible = |why: String| {
        vec![Finding::note(
            "not_rehearsed",
            format!("a relaunch was not rehearsed: {why}"),
        )]
    };
    let plan = match resume(p) {
        Ok(plan) => plan,
        Err(why) => return impossible(why),
    };
    let said = match composed(p, &plan.argv) {
        Ok(said) => said,
        Err(why) => return impossible(why),
    };
    let errors = String::from_utf8_lossy(&said.errors);
    let unknown = |text: String| Finding::warning("override_unknown", text);
    if said.status.is_success() {
        return match differences(&plan.overrides, &String::from_utf8_lossy(&said.output)) {
            None => impossible("no configuration was printed".to_owned()),
            Some(told) => told
                .into_iter()
                .map(|t| unknown(format!("a relaunch would not get what it is given: {t}")))
                .collect(),
        };
    }
    let last = errors.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
    match refused_key(&errors) {
        Some(key) => vec![unknown(format!(
            "a relaunch would fail: this verl does not take an override of {key}"
        ))],
        None => impossible(format!(
            "the trainer's configuration is not composed ({}): {}",
            said.status,
            last.trim()
        )),
    }
}

/// The launch that a failure after the first save would lead to.
fn resume(p: &Prepared) -> Result<LaunchPlan, String> {
    let order = LaunchOrder {
        attempt: AttemptNo(2),
        from: StartPoint::Step {
            ckpt: CkptId("global_step_1".into()),
            step: Step(1),
            pins: PinsHash(0),
            load: ["model", "optimizer", "extra"].map(str::to_owned).to_vec(),
            roles: BTreeMap::new(),
        },
        lost: Vec::new(),
    };
    let host = HostFacts {
        env: environment(&BTreeMap::new()),
        trainer: p.facts.clone(),
        began: 1,
    };
    adapter(p.spec.trainer)
        .arrange(&p.spec, &order, &host)
        .map_err(|r| r.text)
}

fn composed(p: &Prepared, argv: &[String]) -> Result<Captured, String> {
    let words = rehearsed(argv).ok_or_else(|| "the command names no entry point of verl".to_owned())?;
    let mut env = environment(&p.spec.env);
    let python = interpreter::find(argv, &p.spec.cwd, &env)?;
    env.extend(python.env);
    env.extend(DEVICES.map(|name| (name.to_owned(), String::new())));
    let env: Vec<(String, String)> = env.into_iter().collect();
    let argv: Vec<String> = python.words.into_iter().chain(python.flags).chain(words).collect();
    let errand = Errand {
        argv: &argv,
        env: &env,
        cwd: p.spec.cwd.as_str(),
        limit: PATIENCE,
        output: OUTPUT,
        errors: ERRORS,
        stop: None,
    };
    capture(&errand).map_err(|e| e.to_string())
}
