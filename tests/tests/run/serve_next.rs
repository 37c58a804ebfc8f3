//! A run's configuration and its next launch, as the pages tell them.

use super::serve::{code, run_of, serve};
use super::{saved, scene};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Browser, eventually, send, wait_for};

#[test]
fn a_page_shows_the_configuration_with_where_it_came_from_and_the_next_launch() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    scene.set("supervisor.retries", json!(2));
    scene.set("trainer.wandb_api_key", json!("hush-4710"));
    scene.set("trainer.note", json!("<script>alert(0)</script>"));
    let run = scene.start(&[
        "--set",
        "trainer.wandb_api_key=hush-4711",
        "--set",
        "trainer.note='<script>alert(1)</script>'",
    ]);
    saved(&scene, 4);
    eventually("step 4 is proven", || (scene.proven() >= 4).then_some(()));
    let server = serve(&scene, &["--public-read"]);
    let page = format!("/run/{}", run_of(&scene));
    let body = eventually("the launch to come is told", || {
        let (_, body) = server.get(&page, "");

        body.contains("if attempt 1 ended now, the next one would resume from global_step_4")
            .then_some(body)
    });
    assert!(body.contains("ends after 3 failures"), "{body}");
    assert!(body.contains("keep it: the next launch starts from it"), "{body}");
    assert!(body.contains("keep it: it is what is left"), "{body}");
    assert!(!body.contains("/plan"), "who has no key has no plan made: {body}");
    assert_eq!(code(&server.get(&format!("{page}/plan"), "").0), "403");
    let (_, config) = server.get(&format!("{page}/config"), "");
    for words in [
        "supervise run",
        "retries",
        "demo.yaml:",
        "demo.hold_at",
        "How failures are answered",
    ] {
        assert!(config.contains(words), "{words}: {config}");
    }
    assert!(
        !config.contains("hush-47") && !config.contains("<script>alert"),
        "{config}"
    );
    assert!(config.contains("trainer.wandb_api_key=***"), "{config}");
    let stored = fs::read_to_string(scene.run_dir().join("spec/1.config.json")).unwrap();
    assert!(!stored.contains("hush-47"), "{stored}");
    let cookie = server.enter();
    let (_, plan) = server.get(&format!("{page}/plan"), &cookie);
    assert!(plan.contains("hold a secret, which is not kept"), "{plan}");
    let guards = scene.guards();
    run.kill();
    guards.into_iter().for_each(|pid| send(pid, libc::SIGKILL));
    eventually("the page tells what a start would do", || {
        let (_, body) = server.get(&page, "");
        body.contains("a start would resume from global_step_4").then_some(())
    });
    server.stops();
    scene.go();
    scene.run(&[]).expect(0);
}

#[test]
fn whoever_has_the_key_has_the_next_start_planned_and_is_told_where_it_cannot_be() {
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &[]);
    let cookie = server.enter();
    let page = format!("/run/{}/plan", run_of(&scene));
    assert_eq!(code(&server.get(&page, "").0), "401");
    let (_, plan) = server.get(&page, &cookie);
    assert!(plan.contains("nothing to do: the run is finished"), "{plan}");
    fs::remove_file(scene.write_config()).unwrap();
    let (_, plan) = server.get(&page, &cookie);
    assert!(
        plan.contains("exit code") && plan.contains("there is no such file"),
        "{plan}"
    );
    let (_, config) = server.get(&page.replace("/plan", "/config"), &cookie);
    assert!(
        config.contains("trainer.total_training_steps"),
        "the file is not needed for it: {config}"
    );
    let kept = scene.run_dir().join("spec/1.config.json");
    fs::write(&kept, "{").unwrap();
    let (_, config) = server.get(&page.replace("/plan", "/config"), &cookie);
    assert!(config.contains("is damaged"), "{config}");
    fs::remove_file(&kept).unwrap();
    let (_, config) = server.get(&page.replace("/plan", "/config"), &cookie);
    assert!(config.contains("is not written down"), "{config}");
    assert!(config.contains("How failures are answered"), "{config}");
    server.stops();
}

#[test]
fn a_page_answers_what_a_stranger_asks() {
    let mut scene = scene();
    scene.fault("exception", 5, false).set("demo.hold_at", json!(9));
    let run = scene.start(&[]);
    saved(&scene, 8);
    let server = serve(&scene, &["--public-read"]);
    let page = format!("/run/{}", run_of(&scene));
    // The table in docs/serve.md says where each stands.
    let answers = [
        ("is it moving", "<dt>Last progress</dt>"),
        ("is it moving", "▶"),
        ("why did it stop", "[code.exception]"),
        ("what did it cost", "data-head=\"Failure\">code.exception</td>"),
        ("can this step be deleted", "it may go: 2 newer ones are proven"),
        ("can that one", "keep it: the next launch starts from it"),
        (
            "what happens at the next failure",
            "<dt>At a failure</dt><dd>it is launched again after",
        ),
    ];
    for (question, answer) in answers {
        eventually(question, || server.get(&page, "").1.contains(answer).then_some(()));
    }
    let docs = super::metrics::top().join("docs/serve.md");
    let docs = fs::read_to_string(docs).unwrap();
    for place in [
        "Last progress",
        "Attempts",
        "Where the time went",
        "Is it needed?",
        "At a failure",
    ] {
        assert!(docs.contains(&format!("*{place}*")), "{place}");
        assert!(server.get(&page, "").1.contains(place), "{place}");
    }
    server.stops();
    scene.go();
    run.wait().expect(0);
}

/// Of a run that hangs nothing is told: its page must not go on to say that it moved a moment ago.
#[test]
fn ages_on_a_page_get_on_while_nothing_happens() {
    let Some(browser) = Browser::open(360) else { return };
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    browser.go(&format!("http://{}/run/{}", server.at, run_of(&scene)));
    let age = || browser.text("main dl");
    let first = eventually("the page is there", age);
    assert!(first.contains("Last event"), "{first}");
    wait_for("the age gets on", || age().is_some_and(|now| now != first));
    let heads = browser.text("#h-checkpoints + .wide table thead");
    assert!(
        heads.is_some_and(|h| h.contains("Is it needed?")),
        "the table has its heads"
    );
    server.stops();
}
