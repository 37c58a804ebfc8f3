//! Pages of a run whose file system is slow or does not answer: what is asked for there comes to an end.

use super::filesystem::faulty;
use super::saved;
use super::serve::{code, form_key, post, run_of, serve};
use serde_json::json;
use supervise_tests::harness::{Mount, Scene, eventually};

/// A run that was stopped behind step 8, on a mount with faults.
fn stopped(test: &str) -> Option<(Scene, Mount)> {
    let (mut scene, mount) = faulty(test)?;
    scene.set("demo.hold_at", json!(9));
    let run = scene.start(&[]);
    saved(&scene, 8);
    run.signal(15);
    run.wait().expect(143);
    Some((scene, mount))
}

#[test]
fn a_wish_to_go_back_that_hangs_is_let_go_and_may_be_made_again() {
    let test = "a_wish_to_go_back_that_hangs_is_let_go_and_may_be_made_again";
    let Some((scene, mount)) = stopped(test) else { return };
    let server = serve(&scene, &["--allow-actions"]);
    let cookie = server.enter();
    let page = format!("/run/{}", run_of(&scene));
    let (_, question) = server.get(&format!("{page}/rollback?to=4"), &cookie);
    let body = format!("key={}&to=4", form_key(&question).unwrap());
    mount.faults("read hang global_step_4/\n");
    let wish = || code(&post(&server, &format!("{page}/act/rollback"), &cookie, &body)).to_owned();
    std::thread::scope(|s| {
        let waits = s.spawn(wish);
        eventually("the page says what it waits for", || {
            let (_, told) = server.get(&page, &cookie);
            told.contains("a file system does not answer").then_some(())
        });
        assert_eq!(wish(), "409", "one is being proven");
        assert_eq!(waits.join().unwrap(), "202");
    });
    let told = eventually("it is let go", || {
        let (_, told) = server.get(&page, &cookie);
        told.contains("Going back to step 4 failed: ").then_some(told)
    });
    assert!(told.contains("it was given up"), "{told}");
    assert_eq!(scene.status().get("roll_back"), None);
    mount.faults("");
    assert_eq!(wish(), "303");
    assert_eq!(scene.status()["roll_back"]["to"], json!(4));
    server.stops();
}

/// Each term's file is asked for behind the mount, and that of the first is found last.
#[test]
fn a_configuration_behind_a_slow_mount_is_not_waited_for_term_by_term() {
    let test = "a_configuration_behind_a_slow_mount_is_not_waited_for_term_by_term";
    let Some((scene, mount)) = stopped(test) else { return };
    for to in ["2", "4", "6", "4"] {
        scene.ask(&["rollback", "--to", to]).expect(0);
    }
    let server = serve(&scene, &["--public-read"]);
    let page = format!("/run/{}/config", run_of(&scene));
    let (_, whole) = server.get(&page, "");
    assert!(whole.contains("As term 1 began"), "{whole}");
    mount.faults("getattr delay:1 .config.json\n");
    let (_, slow) = server.get(&page, "");
    assert!(slow.contains("or not within 3 s"), "{slow}");
    mount.faults("");
    let (_, whole) = server.get(&page, "");
    assert!(whole.contains("As term 1 began"), "{whole}");
    server.stops();
}
