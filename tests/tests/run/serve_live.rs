//! A page in a browser changes with its run, by the server's events alone.

use super::serve::{run_of, serve};
use super::{saved, scene};
use serde_json::json;
use supervise_tests::harness::{Browser, eventually, wait_for};

/// Waits until the page shows something.
pub(super) fn shows(browser: &Browser, words: &str) {
    eventually(words, || browser.text("main")?.contains(words).then_some(()));
}

#[test]
fn a_page_changes_with_its_run_and_is_not_loaded_again() {
    let Some(browser) = Browser::open(1400) else { return };
    browser.without_intervals();
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let server = serve(&scene, &[]);
    browser.go(&format!("http://{}{}", server.at, server.link));
    let id = run_of(&scene);
    browser.go(&format!("http://{}/run/{id}", server.at));
    eventually("it is live", || (browser.text("#live")? == "live").then_some(()));
    let _ = browser.script("window.mark = 1; document.querySelector('#attempt-1 summary').focus()");
    scene.go();
    run.wait().expect(0);
    shows(&browser, "finished");
    assert_eq!(browser.script("return window.mark"), 1, "it was loaded again");
    let focus = browser.script("return document.activeElement.parentElement.id");
    assert_eq!(focus, "attempt-1", "the focus was lost");
    server.stops();
    scene.assert_alone();
}

#[test]
fn a_page_shows_the_end_that_it_asked_for() {
    let Some(browser) = Browser::open(400) else { return };
    browser.without_intervals();
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let server = serve(&scene, &["--allow-actions"]);
    browser.go(&format!("http://{}{}", server.at, server.link));
    let page = format!("http://{}/run/{}", server.at, run_of(&scene));
    browser.go(&page);
    browser.click("#act summary");
    browser.click("#act button[value=stop-now]");
    shows(&browser, "Its workers are killed at once.");
    shows(&browser, "The run resumes from step 4.");
    assert!(scene.status()["outcome"].is_null(), "a question stops nothing");
    browser.click("main form button.danger");
    run.wait().expect(7);
    shows(&browser, "stopped (exit code 7)");
    assert_eq!(browser.url(), page);
    server.stops();
    scene.assert_alone();
}

#[test]
fn a_hang_is_in_sight_before_anything_is_done_about_it() {
    let Some(browser) = Browser::open(400) else { return };
    browser.without_intervals();
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    scene.set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let run = scene.start(&["--observe"]);
    saved(&scene, 4);
    let server = serve(&scene, &["--public-read"]);
    browser.go(&format!("http://{}/run/{}", server.at, run_of(&scene)));
    shows(&browser, "no step for");
    let title = browser.script("return document.title");
    assert!(title.as_str().unwrap().contains("no step for"), "{title}");
    let color = |selector: &str| {
        browser.script(&format!(
            "return getComputedStyle(document.querySelector('{selector}')).color"
        ))
    };
    assert_ne!(
        color("main .state"),
        color("main h1"),
        "it looks like a run that is well"
    );
    server.stops();
    scene.go();
    run.wait().expect(0);
}

#[test]
fn times_are_those_of_the_browser_and_utc_on_hover() {
    let Some(browser) = Browser::open(400) else { return };
    browser.command("Emulation.setTimezoneOverride", &json!({"timezoneId": "Asia/Tokyo"}));
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    browser.go(&format!("http://{}/run/{}", server.at, run_of(&scene)));
    let time = eventually("a time is there", || {
        let time = browser.script(
            "const t = document.querySelector('#attempt-1 summary time'); return t && t.title && [t.textContent, t.title, t.dateTime]",
        );
        time.is_array().then_some(time)
    });
    let text = |n: usize| time[n].as_str().unwrap();
    let hour = |text: &str| text[11..13].parse::<u32>().unwrap();
    assert_eq!(hour(text(0)), (hour(text(2)) + 9) % 24, "{time}");
    assert_eq!(text(1), text(2).replace('T', " ").replace('Z', " UTC"), "{time}");
    shows(&browser, "Times are those of Asia/Tokyo");
    server.stops();
}

#[test]
fn a_person_holds_and_stops_a_run_from_its_page() {
    let Some(browser) = Browser::open(400) else { return };
    let mut scene = scene();
    // It must not get on to its end before the next proven step is seen.
    scene.set("demo.hold_at", json!(5)).set("demo.step_ms", json!(300));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let server = serve(&scene, &["--allow-actions"]);
    browser.go(&format!("http://{}{}", server.at, server.link));
    let page = format!("http://{}/run/{}", server.at, run_of(&scene));
    browser.go(&page);
    let says = |words: &str| {
        eventually(words, || {
            let text = browser.text("main")?;
            text.contains(words).then_some(())
        });
    };
    says("Act");
    browser.click("#act summary");
    browser.write("#act input[name=reason]", "look at <rank 3>");
    browser.click("#act form[action$=hold] button");
    says("look at <rank 3>");
    assert_eq!(browser.url(), page);
    let offers = |verb: &str| {
        let form = format!("#act form[action$={verb}]");
        eventually(verb, || browser.text(&form));
        browser.click("#act summary");
    };
    offers("unhold");
    browser.click("#act form[action$=unhold] button");
    offers("hold");
    browser.click("#act form[action$=stop-after-save] button");
    // The trainer must not get on to its end before the wish is there.
    let id = run_of(&scene);
    wait_for("the wish is in the journal", || {
        scene
            .ask(&["journal", &id])
            .text
            .contains("asked to stop at the next proven step")
    });
    browser.click("#attempt-1 summary");
    scene.go();
    run.wait().expect(7);
    // The page tells of the end without being loaded anew.
    says("on a page asked to stop");
    let closed = browser.text("#attempt-1:not([open])");
    assert!(closed.is_some(), "what a person closes stays closed");
    let told = scene.ask(&["journal", &run_of(&scene)]);
    told.expect(0).says("look at <rank 3>").says("on a page");
    server.stops();
}
