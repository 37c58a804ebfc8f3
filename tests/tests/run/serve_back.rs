//! A run that is sent back to a step from its page, and the words there that start it again.

use super::serve::{Server, code, form_key, post, run_of, serve};
use super::{running, saved, scene, stopped_at_eight};
use serde_json::json;
use std::fs;
use supervise_tests::harness::{Browser, Scene, eventually, send, wait_for};

fn bearer(cookie: &str) -> String {
    format!(
        "Authorization: Bearer {}\r\n",
        cookie.trim().rsplit('=').next().unwrap()
    )
}

/// The line to copy, as a browser shows it.
fn to_copy(page: &str) -> String {
    let line = page.split_once("<pre>").unwrap().1.split_once("</pre>").unwrap().0;
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")]
        .iter()
        .fold(line.to_owned(), |text, (is, was)| text.replace(is, was))
}

/// Without JavaScript: the link in the table, the question, the form in it.
#[test]
fn a_stopped_run_goes_back_from_its_page_and_the_line_there_starts_it() {
    let (scene, expected) = stopped_at_eight();
    let server = serve(&scene, &["--allow-actions"]);
    let cookie = server.enter();
    let page = format!("/run/{}", run_of(&scene));
    let (_, body) = server.get(&page, &cookie);
    let link = format!("{page}/rollback?to=4");
    assert!(body.contains(&format!("href=\"{link}\"")), "{body}");
    let (head, question) = server.get(&link, &cookie);
    assert_eq!(code(&head), "200");
    for words in [
        "resumes from step 4",
        "the training of 4 steps, 5 to 8",
        "2 newer steps will go aside, not deleted: global_step_8, global_step_6",
        "Send it back to step 4",
        "Nothing is moved",
    ] {
        assert!(question.contains(words), "{words}: {question}");
    }
    assert_eq!(scene.status().get("roll_back"), None, "a question does nothing");
    let body = format!("key={}&to=4", form_key(&question).unwrap());
    let done = post(&server, &format!("{page}/act/rollback"), &cookie, &body);
    assert_eq!(code(&done), "303", "{done}");
    assert!(done.contains(&format!("location: {page}\r\n")), "{done}");
    let back = scene.status()["roll_back"].clone();
    assert_eq!(back["to"], json!(4));
    assert!(back["by"].as_str().unwrap().ends_with(" on a page"), "{back}");
    let (_, told) = server.get(&page, &cookie);
    assert!(told.contains("Its next start goes back to step 4: "), "{told}");
    scene.ask(&["journal"]).expect(0).says(" on a page");
    // Nobody has moved anything.
    assert_eq!((scene.tracked(), scene.aside()), (Some(8), Vec::new()));

    let (_, resume) = server.get(&format!("{page}/resume"), &cookie);
    assert!(resume.contains("It goes back to step 4"), "{resume}");
    scene.shell(&to_copy(&resume)).expect(0);
    assert_eq!((scene.resumed(2), scene.digest()), (Some(4), Some(expected)));
    // A page may be as old as the look that others shared.
    wait_for("it is over", || {
        !server.get(&page, &cookie).1.contains("goes back to step")
    });
    server.stops();
    scene.assert_alone();
}

#[test]
fn a_wish_to_go_back_needs_the_key_and_a_page_of_this_server() {
    let (scene, _) = stopped_at_eight();
    let page = format!("/run/{}", run_of(&scene));
    let (ask, go) = (format!("{page}/rollback?to=4"), format!("{page}/act/rollback"));
    let shows = serve(&scene, &[]);
    let cookie = shows.enter();
    let (_, body) = shows.get(&page, &cookie);
    assert!(!body.contains("/rollback"), "{body}");
    assert_eq!(code(&shows.get(&ask, &cookie).0), "403");
    assert_eq!(code(&post(&shows, &go, &bearer(&cookie), "to=4")), "403");
    shows.stops();

    let server = serve(&scene, &["--allow-actions", "--public-read"]);
    let (_, body) = server.get(&page, "");
    assert!(!body.contains("/rollback"), "who has no key only reads: {body}");
    assert_eq!(code(&server.get(&ask, "").0), "403");
    assert_eq!(code(&post(&server, &go, "", "to=4")), "401");
    let cookie = server.enter();
    let key = form_key(&server.get(&ask, &cookie).1).unwrap().to_owned();
    let body = format!("key={key}&to=4");
    for (headers, body) in [
        (cookie.clone(), "to=4".to_owned()),
        (cookie.clone(), format!("key={}&to=4", "0".repeat(key.len()))),
        (format!("{cookie}Origin: http://evil.example\r\n"), body.clone()),
        (format!("{cookie}Origin: null\r\n"), body.clone()),
        (format!("{cookie}Sec-Fetch-Site: cross-site\r\n"), body.clone()),
        (format!("{cookie}Sec-Fetch-Site: same-site\r\n"), body.clone()),
    ] {
        assert_eq!(code(&post(&server, &go, &headers, &body)), "403", "{headers} {body}");
    }
    for to in ["", "x", "-1", "4;6", "99999999999999999999"] {
        let body = format!("key={key}&to={to}");
        assert_eq!(code(&post(&server, &go, &cookie, &body)), "400", "{to}");
        assert_eq!(code(&server.get(&format!("{page}/rollback?to={to}"), &cookie).0), "400");
    }
    assert_eq!(code(&server.get(&format!("{page}/rollback"), &cookie).0), "400");
    let (head, none) = server.get(&format!("{page}/rollback?to=5"), &cookie);
    assert_eq!(code(&head), "200");
    assert!(
        none.contains("there is no step 5") && form_key(&none).is_none(),
        "{none}"
    );
    let nobodys = "/run/0000000000000000";
    assert_eq!(code(&server.get(&format!("{nobodys}/rollback?to=4"), &cookie).0), "404");
    assert_eq!(
        code(&post(&server, &format!("{nobodys}/act/rollback"), &cookie, &body)),
        "404"
    );
    // A step that is torn is refused, by the question and by the wish.
    let torn = scene.step(4).join("actor/model_world_size_2_rank_0.pt");
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let (_, refused) = server.get(&ask, &cookie);
    assert!(
        refused.contains("these steps are whole: 8, 6, 2") && form_key(&refused).is_none(),
        "{refused}"
    );
    assert_eq!(code(&post(&server, &go, &cookie, &body)), "409");
    assert_eq!(scene.status().get("roll_back"), None, "nothing of it changed anything");
    assert_eq!(code(&post(&server, &go, &bearer(&cookie), "to=6")), "303");
    assert_eq!(scene.status()["roll_back"]["to"], json!(6));
    server.stops();
}

#[test]
fn a_run_that_lives_or_was_not_seen_to_end_is_stopped_first() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(7));
    let run = scene.start(&[]);
    running(&scene);
    saved(&scene, 6);
    let server = serve(&scene, &["--allow-actions"]);
    let cookie = server.enter();
    let page = format!("/run/{}", run_of(&scene));
    let refuses = |words: &str| {
        let (_, question) = server.get(&format!("{page}/rollback?to=2"), &cookie);
        assert!(
            question.contains(words) && form_key(&question).is_none(),
            "{words}: {question}"
        );
        let go = format!("{page}/act/rollback");
        assert_eq!(code(&post(&server, &go, &bearer(&cookie), "to=2")), "409");
    };
    refuses("is at work");
    let (_, body) = server.get(&page, &cookie);
    assert!(!body.contains("/rollback?to="), "{body}");
    let (_, resume) = server.get(&format!("{page}/resume"), &cookie);
    assert!(
        resume.contains("there is nothing to start") && !resume.contains("<pre>"),
        "{resume}"
    );
    let guards = scene.guards();
    run.kill();
    guards.iter().for_each(|pid| send(*pid, libc::SIGKILL));
    eventually("the page sees that nobody is there", || {
        let (_, body) = server.get(&page, &cookie);
        body.contains("not running (was: ").then_some(())
    });
    refuses("supervise stop");
    assert_eq!(scene.status().get("roll_back"), None);
    server.stops();
    scene.ask(&["stop"]).expect(0);
}

/// The words of a start that ended with what needs a person; those that hold a secret are not whole.
#[test]
fn the_line_says_when_it_is_not_all_that_is_needed() {
    let mut scene = scene();
    scene.fault("exception", 1, true).set("supervisor.retries", json!(1));
    let _ = scene.run(&["--set", "trainer.wandb_api_key=hush-4712"]);
    let server = serve(&scene, &["--public-read"]);
    let page = format!("/run/{}/resume", run_of(&scene));
    let (_, resume) = server.get(&page, "");
    for words in [
        "supervise run --again",
        "fix the cause first",
        "Something in it is hidden",
        "No page starts a run",
    ] {
        assert!(resume.contains(words), "{words}: {resume}");
    }
    assert!(!resume.contains("hush-4712"), "{resume}");
    assert_eq!(code(&server.get("/run/0000000000000000/resume", "").0), "404");
    server.stops();
}

/// Copied, it must not act where the start only looked on.
#[test]
fn the_line_only_looks_on_where_the_start_did() {
    let scene = scene();
    scene.run(&["--observe"]).expect(0);
    let server = serve(&scene, &["--public-read"]);
    let (_, resume) = server.get(&format!("/run/{}/resume", run_of(&scene)), "");
    assert!(resume.contains("supervise run --observe "), "{resume}");
    assert!(!resume.contains("--no-recovery"), "{resume}");
    server.stops();
}

#[test]
fn a_person_sends_a_run_back_in_a_real_browser() {
    let Some(browser) = Browser::open(400) else { return };
    let (scene, _) = stopped_at_eight();
    let server = serve(&scene, &["--allow-actions"]);
    browser.go(&format!("http://{}{}", server.at, server.link));
    let page = page_of(&scene, &server);
    browser.go(&page);
    browser.click("#act summary");
    browser.write("#act input[name=to]", "6");
    browser.click("#act form[action$=rollback] button");
    wait_for("the question", || {
        browser.text("main").is_some_and(|t| t.contains("Back to step 6?"))
    });
    browser.click("form[action$=rollback] button");
    wait_for("the run's page", || {
        browser
            .text("main")
            .is_some_and(|t| t.contains("Its next start goes back to step 6"))
    });
    assert_eq!(browser.url(), page);
    server.stops();
}

fn page_of(scene: &Scene, server: &Server) -> String {
    format!("http://{}/run/{}", server.at, run_of(scene))
}
