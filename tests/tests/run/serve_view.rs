//! Curves, outputs and the list of runs, as a person sees them in a browser.

use super::scene;
use super::serve::{code, run_of, serve};
use super::serve_live::shows;
use serde_json::{Value, json};
use std::fs;
use supervise_tests::harness::{Browser, Scene, eventually, wait_for};

/// The identity of the only run, from the list.
fn only_run(list: &str) -> String {
    let rest = list.split_once("href=\"/run/").unwrap().1;
    rest.split('"').next().unwrap().to_owned()
}

fn plain(scene: &Scene, script: &str) -> supervise_tests::harness::Supervisor {
    let run_dir = format!("run_dir={}", scene.path("talks").display());
    scene.start_plain(&["retries=0", &run_dir], &["sh", "-c", script])
}

#[test]
fn curves_have_values_zoom_and_marks_of_restarts() {
    let Some(browser) = Browser::open(1400) else { return };
    let mut scene = scene();
    // The step before it is trained and not saved.
    scene.fault("exception", 8, false);
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    browser.go(&format!("http://{}/run/{}", server.at, run_of(&scene)));
    let number = |script: &str| browser.script(script).as_f64().unwrap_or_default();
    wait_for("curves are drawn", || {
        number("return document.querySelectorAll('#charts canvas').length") >= 2.0
    });
    let width = number("return document.querySelector('#charts canvas').clientWidth / innerWidth");
    assert!(width > 0.9, "a curve has the width of the page: {width}");
    let inked = "const c = document.querySelector('#chart-loss canvas'); \
                 return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, n) => n % 4 === 3 && v > 0).length";
    assert!(number(inked) > 1000.0, "the curve is blank");
    let twice = "return Number(document.querySelector('#chart-loss').dataset.again)";
    assert!(number(twice) > 0.0, "steps that were trained twice are shaded");
    let restarts = "return Number(document.querySelector('#chart-loss').dataset.restarts)";
    assert!(number(restarts) == 1.0, "the restart is marked");
    // A pointer over the curve, and one that is drawn over a part of it.
    let _ = browser.script(
        "window.point = (kind, share) => { const o = document.querySelector('#chart-loss .u-over'), r = o.getBoundingClientRect(); \
         const init = { bubbles: true, clientX: r.left + share * r.width, clientY: r.top + 40, button: 0, movementX: 1 }; \
         (kind === 'mouseup' ? document : o).dispatchEvent(new MouseEvent(kind, init)); }; \
         point('mouseenter', 0.5); point('mousemove', 0.5)",
    );
    let legend = || browser.text("#chart-loss .u-legend").unwrap_or_default();
    wait_for("the value under the pointer is shown", || {
        legend().chars().any(|c| c.is_ascii_digit())
    });
    let reset = "return document.querySelector('#charts button').disabled";
    assert_eq!(browser.script(reset), json!(true));
    let _ = browser
        .script("point('mousemove', 0.2); point('mousedown', 0.2); point('mousemove', 0.6); point('mouseup', 0.6)");
    wait_for("it is zoomed", || browser.script(reset) == json!(false));
    browser.click("#charts button");
    assert_eq!(browser.script(reset), json!(true));
    browser.click("#charts input[type=checkbox]");
    assert!(number(inked) > 1000.0, "a log scale is drawn");
    let _ = browser.script("const s = document.querySelector('#charts select'); s.value = 'time'; s.onchange()");
    assert!(number(inked) > 1000.0, "curves over time are drawn");
    let (_, body) = server.get(&format!("/run/{}", run_of(&scene)), "");
    assert!(body.contains("<noscript><svg") && body.contains("loss: "), "{body}");
    server.stops();
}

#[test]
fn ten_thousand_points_are_drawn_and_a_page_is_small() {
    let Some(browser) = Browser::open(1400) else { return };
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    let page = format!("/run/{}", run_of(&scene));
    let size = |path: &str| server.get(path, "").1.len();
    let scripts: usize = ["/live.js", "/uplot.js", "/charts.js", "/style.css"]
        .into_iter()
        .map(size)
        .sum();
    assert!(size(&page) + scripts <= 150_000, "{} and {scripts}", size(&page));
    // What a run of 10,000 steps would answer.
    browser.before_each_page(
        "const asks = window.fetch; window.fetch = async (url, ...more) => { \
         if (!String(url).includes('curves.json')) return asks(url, ...more); \
         const steps = [...Array(10000).keys()], at = (n) => 1.7e9 + 3 * n; \
         const rows = String(url).endsWith('after=0') ? steps.map((n) => [1, n, at(n), 1 / (n + 1)]) : []; \
         const data = { name: 'long', live: false, seen: 10000, marks: [], \
           attempts: [{ attempt: 1, from: at(0), to: at(9999), start: 0, class: null }], \
           points: rows.map(([a, n, t]) => [a, t, n]), metrics: rows.length ? [{ name: 'loss', rows }] : [] }; \
         return new Response(JSON.stringify(data)); }",
    );
    browser.go(&format!("http://{}{page}", server.at));
    eventually("all of them are there", || {
        let drawn = browser.script("return document.getElementById('charts').dataset.points");
        (drawn == "10000").then_some(())
    });
    // A canvas has as many pixels as the screen gives it: nothing is blurred.
    let sharp =
        "const c = document.querySelector('#chart-loss canvas'); return c.width / c.clientWidth / devicePixelRatio";
    assert_eq!(browser.script(sharp).as_f64(), Some(1.0));
    server.stops();
}

#[test]
fn an_output_is_followed_folded_linked_and_downloaded() {
    let Some(browser) = Browser::open(1400) else { return };
    browser.without_intervals();
    let scene = scene();
    let go = scene.path("go-on");
    let script = format!(
        "printf 'Training: 1%%\\rTraining: 2%%\\rTraining: 3%%\\n'; echo the second line; \
         while [ ! -e '{}' ]; do sleep 0.1; done; echo the third line; while [ -e '{}' ]; do sleep 0.1; done",
        go.display(),
        go.display()
    );
    let run = plain(&scene, &script);
    let server = serve(&scene, &["--public-read"]);
    let id = eventually("the run is listed", || {
        let (_, list) = server.get("/", "");
        list.contains("href=\"/run/").then(|| only_run(&list))
    });
    let page = format!("/run/{id}/log?attempt=1&worker=0");
    eventually("its output is there", || {
        server.get(&page, "").1.contains("the second line").then_some(())
    });
    browser.go(&format!("http://{}{page}", server.at));
    let text = browser.text("#log").unwrap();
    assert!(
        text.contains("Training: 3%") && !text.contains("Training: 2%"),
        "{text}"
    );
    assert!(!text.contains("\\r"), "{text}");
    let _ = browser.script("window.mark = 1");
    fs::write(&go, "").unwrap();
    shows(&browser, "the third line");
    assert_eq!(browser.script("return window.mark"), json!(1), "it was loaded again");
    let _ = browser.script("document.querySelectorAll('#log a')[1].click()");
    eventually("the link leads to the line", || {
        let it = browser.text("#log .it")?;
        it.contains("the second line").then_some(())
    });
    let (head, file) = server.get(&format!("/run/{id}/log/download?attempt=1&worker=0"), "");
    assert!(head.contains("attachment; filename="), "{head}");
    assert!(
        file.contains("Training: 2%") && file.contains("the third line"),
        "{file}"
    );
    fs::remove_file(&go).unwrap();
    run.wait().expect(0);
    server.stops();
}

#[test]
fn the_list_names_its_runs_and_leads_to_them() {
    let Some(browser) = Browser::open(390) else { return };
    let scene = scene();
    scene.run(&[]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    let list = format!("http://{}/?state=ended&sort=name", server.at);
    browser.go(&list);
    shows(&browser, "finished");
    let wide = browser.script("return document.documentElement.scrollWidth - innerWidth");
    assert!(wide.as_f64().unwrap() <= 0.0, "wider than the window: {wide}");
    browser.click("table.runs tbody a");
    eventually("the title names the run", || {
        let title: Value = browser.script("return document.title");
        let title = title.as_str()?.to_owned();
        (title.contains("finished") && title.ends_with("· supervise")).then_some(())
    });
    let menu = browser.text("nav.sections").unwrap();
    for section in [
        "Overview",
        "Progress",
        "Attempts",
        "Checkpoints",
        "Output",
        "Configuration",
    ] {
        assert!(menu.contains(section), "{menu}");
    }
    browser.go(&format!("http://{}/?state=active", server.at));
    shows(&browser, "None of them.");
    let (head, _) = server.get("/machine", "");
    assert_eq!(code(&head), "403", "checks start processes");
    let (head, machine) = server.get("/machine", &server.enter());
    assert_eq!(code(&head), "200");
    assert!(machine.contains("processors") && machine.contains("GPUs"), "{machine}");
    server.stops();
}
