//! Files beside a run, in the user's own place: a log, a list, links. Nothing is written through what somebody else put there.

use super::scene;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn a_detached_run_writes_its_log_through_no_link() {
    let scene = scene();
    let victim = scene.path("victim");
    fs::write(&victim, "precious").unwrap();
    let detached = scene.path("home/.local/state/supervise/detached");
    fs::create_dir_all(&detached).unwrap();
    let words = ["run", "--detach", "--set", "supervisor.trainer=plain", "--", "true"];
    scene.ask(&words).expect(0);
    let log = fs::read_dir(&detached).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&log).unwrap();
    symlink(&victim, &log).unwrap();
    scene.ask(&words).expect(69).says("is not a plain file");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    let scene = scene();
    let place = scene.path("home/.local/state/supervise");
    let elsewhere = scene.path("elsewhere");
    for dir in [&place, &elsewhere] {
        fs::create_dir_all(dir).unwrap();
    }
    for name in ["detached", "runs", "shims", "learning"] {
        symlink(&elsewhere, place.join(name)).unwrap();
    }
    let plain = ["--set", "supervisor.trainer=plain", "--", "true"];
    scene
        .ask(&[&["run", "--detach"], &plain[..]].concat())
        .expect(69)
        .says("symbolic link");
    // A run that cannot be listed goes on.
    scene
        .ask(&[&["run"], &plain[..]].concat())
        .expect(0)
        .says("will not be listed");
    scene.ask(&["run", "--", "bash", "-c", "true"]).says("symbolic link");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}
