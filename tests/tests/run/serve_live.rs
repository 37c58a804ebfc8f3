//! A page in a browser changes with its run, by the server's events alone.

use super::serve::{run_of, serve};
use super::{saved, scene};
use serde_json::json;
use supervise_tests::harness::{Browser, eventually};

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
    browser.click("#act form[action$=stop-now] button");
    run.wait().expect(7);
    shows(&browser, "stopped (exit code 7)");
    assert_eq!(browser.url(), page);
    server.stops();
    scene.assert_alone();
}
