//! The unit that `supervise install` writes, under a real systemd: started, killed, frozen, stopped, powered off.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::{MARK, Refusal, Scene, eventually, wait_for};

const UNIT: &str = "supervise-demo";
/// Of a user's manager.
const RUNTIME: &str = "XDG_RUNTIME_DIR=/run/user/0";

/// A systemd of its own; it is gone when this goes.
struct Machine<'a> {
    dir: PathBuf,
    scene: &'a Scene,
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/systemd.sh"));
    command.args(arguments).stdin(Stdio::null());
    command
}

impl<'a> Machine<'a> {
    /// One that has the unit of this scene, started at boot where `wanted`.
    fn new(scene: &'a Scene) -> Result<Self, Refusal> {
        let machine = Self::off(scene)?;
        let units = machine.dir.join("units");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join(format!("{UNIT}.service")), unit(scene)).unwrap();
        machine.add_to_unit(&units);
        machine.boot();
        Ok(machine)
    }

    /// One that is not booted yet, and has no unit.
    fn off(scene: &'a Scene) -> Result<Self, Refusal> {
        let made = script(&["install"]).output().unwrap();
        if !made.status.success() || !nix::unistd::geteuid().is_root() {
            return Err(Refusal::new(&format!(
                "root and systemd-nspawn are needed: {}",
                String::from_utf8_lossy(&made.stderr)
            )));
        }
        let dir = scene.path("machine");
        Ok(Self { dir, scene })
    }

    /// Words of the test's own for the unit in this folder.
    fn add_to_unit(&self, units: &Path) {
        let scene = self.scene;
        let extra = units.join(format!("{UNIT}.service.d"));
        fs::create_dir_all(&extra).unwrap();
        // The scene finds its processes by their mark. A supervisor that is silent for this long is frozen, not slow.
        let own = format!(
            "[Service]\nEnvironment={MARK}={}\nEnvironment=HOME={}\nWatchdogSec=20\nRestartSec=1\n",
            scene.mark(),
            scene.path("home").display()
        );
        fs::write(extra.join("test.conf"), own).unwrap();
    }

    /// The same for the manager of a user, whose runtime directory this is.
    fn users(&self, arguments: &[&str]) -> (bool, String) {
        let words = [&["env", RUNTIME, "systemctl", "--user"], arguments].concat();
        self.run(&words)
    }

    fn boot(&self) {
        let (dir, folder) = (self.dir.to_str().unwrap(), self.scene.path(""));
        let out = script(&["up", dir, folder.to_str().unwrap()]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    fn systemctl(&self, arguments: &[&str]) -> (bool, String) {
        self.run(&[&["systemctl"], arguments].concat())
    }

    fn run(&self, command: &[&str]) -> (bool, String) {
        let words = [&["run", self.dir.to_str().unwrap()], command].concat();
        let out = script(&words).output().unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    fn does(&self, arguments: &[&str]) {
        let (ok, text) = self.systemctl(arguments);
        assert!(ok, "{arguments:?}: {text}\n{}", self.journal());
    }

    fn property(&self, name: &str) -> String {
        self.systemctl(&["show", "--value", "-p", name, UNIT]).1
    }

    fn journal(&self) -> String {
        let words = [
            "run",
            self.dir.to_str().unwrap(),
            "journalctl",
            "--no-pager",
            "-u",
            UNIT,
        ];
        String::from_utf8_lossy(&script(&words).output().unwrap().stdout).into_owned()
    }

    /// Entries of the run, as programs read them: those with these fields.
    fn entries(&self, fields: &[&str]) -> Vec<serde_json::Value> {
        let dir = self.dir.to_str().unwrap();
        let words = [&["run", dir, "journalctl", "--no-pager", "-o", "json"], fields].concat();
        let said = script(&words).output().unwrap().stdout;
        let lines = said.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// Waits until the service was started again so often, and is ready.
    fn came_back(&self, restarts: u32) {
        wait_for(&format!("restart {restarts} is ready"), || {
            self.property("NRestarts").parse().is_ok_and(|n: u32| n >= restarts)
                && self.property("ActiveState") == "active"
        });
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let _ = script(&["off", self.dir.to_str().unwrap()]).status();
    }
}

/// The unit as a person would have it written.
fn unit(scene: &Scene) -> String {
    let config = scene.write_config();
    let config = config.to_str().unwrap();
    let written = scene.ask(&["install", "--systemd", "--system", "--name", "demo", "--print", config]);
    written.expect(0);
    written
        .text
        .lines()
        .filter(|l| !l.starts_with("note:"))
        .map(|l| format!("{l}\n"))
        .collect()
}

fn workers(scene: &Scene) -> Vec<i32> {
    eventually("two workers run", || {
        let workers = scene.workers();
        (workers.len() == 2).then_some(workers)
    })
}

#[test]
fn a_service_keeps_its_workers_through_all_that_befalls_the_supervisor() {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    // Another boot is another machine: what the one before left behind is waited for, for as long as it could go on.
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.lease.ttl", json!("5s"))
        .set("supervisor.grace", json!({"orphan": "20s", "save": "1s", "stop": "5s"}));
    let expected = scene.expected_digest();
    let machine = match Machine::new(&scene) {
        Ok(machine) => machine,
        Err(refusal) => return refusal.tell("a_service_keeps_its_workers_through_all_that_befalls_the_supervisor"),
    };
    // It comes back when the workers run.
    machine.does(&["start", UNIT]);
    let first = workers(&scene);
    wait_for("it says how far it is", || {
        machine.property("StatusText").contains("newest proven step 4")
    });

    // The figure that docs/systemd.md tells.
    let (_, exposure) = machine.run(&["systemd-analyze", "security", "--no-pager", UNIT]);
    let overall = exposure.lines().last().unwrap_or_default();
    assert!(overall.contains(": 9.3"), "{exposure}");

    // Its decisions are entries with fields.
    let run = scene.status()["run"].as_str().unwrap().to_owned();
    let marks = machine.entries(&[&format!("SUPERVISE_RUN={run}"), "SUPERVISE_KIND=decided.mark"]);
    let last = marks.last().unwrap_or_else(|| panic!("no mark: {}", machine.journal()));
    for (field, value) in [
        ("SUPERVISE_ATTEMPT", "1"),
        ("SUPERVISE_STEP", "4"),
        ("SUPERVISE_TERM", "1"),
        ("PRIORITY", "6"),
        ("SYSLOG_IDENTIFIER", "supervise"),
        ("_SYSTEMD_UNIT", "supervise-demo.service"),
    ] {
        assert_eq!(last[field], value, "{last}");
    }
    assert!(last["MESSAGE"].as_str().unwrap().contains("step 4"), "{last}");

    machine.does(&["kill", "--kill-who=main", "--signal=KILL", UNIT]);
    machine.came_back(1);
    assert_eq!(workers(&scene), first, "{}", machine.journal());

    machine.does(&["kill", "--kill-who=main", "--signal=STOP", UNIT]);
    machine.came_back(2);
    assert_eq!(workers(&scene), first, "{}", machine.journal());
    assert!(machine.journal().contains("atchdog timeout"), "{}", machine.journal());

    machine.does(&["stop", UNIT]);
    assert!(
        scene.workers().is_empty() && scene.guards().is_empty(),
        "{}",
        machine.journal()
    );
    assert_eq!(
        (machine.property("ActiveState"), machine.property("Result")),
        ("inactive".into(), "success".into())
    );

    // The power goes while it trains; enabled, it begins again by itself with the machine.
    machine.does(&["start", UNIT]);
    let before = workers(&scene);
    fs::write(machine.dir.join("wanted"), format!("{UNIT}.service\n")).unwrap();
    assert!(
        script(&["off", machine.dir.to_str().unwrap()])
            .status()
            .unwrap()
            .success()
    );
    assert!(scene.workers().is_empty());
    machine.boot();
    let after = workers(&scene);
    assert!(after.iter().all(|w| !before.contains(w)));
    scene.go();
    wait_for("the run is finished", || machine.property("ActiveState") == "inactive");
    assert_eq!(machine.property("Result"), "success", "{}", machine.journal());
    assert_eq!((scene.attempts(), scene.digest()), (3, Some(expected)));
    drop(machine);
    scene.assert_alone();
}

/// The user's variant of the unit, as `supervise install` writes it where systemd looks for it, under a manager of a user.
#[test]
fn a_users_own_service_is_started_taken_over_and_stopped() {
    const TEST: &str = "a_users_own_service_is_started_taken_over_and_stopped";
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene.set("demo.hold_at", json!(5));
    let expected = scene.expected_digest();
    let machine = match Machine::off(&scene) {
        Ok(machine) => machine,
        Err(refusal) => return refusal.tell(TEST),
    };
    let config = scene.write_config();
    let words = [
        "install",
        "--systemd",
        "--user",
        "--name",
        "demo",
        config.to_str().unwrap(),
    ];
    scene.ask(&words).expect(0).says("systemctl --user");
    let home = scene.path("home");
    machine.add_to_unit(&home.join(".config/systemd/user"));
    let manager = format!(
        "[Service]\nType=notify\nDelegate=yes\nKillMode=mixed\nEnvironment={RUNTIME} HOME={}\nExecStartPre=/bin/mkdir -p -m 700 /run/user/0\n\
         ExecStart=/lib/systemd/systemd --user\n",
        home.display()
    );
    let units = machine.dir.join("units");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("user@0.service"), manager).unwrap();
    machine.boot();
    machine.does(&["start", "user@0"]);

    let does = |arguments: &[&str]| {
        let (ok, text) = machine.users(arguments);
        assert!(
            ok,
            "{arguments:?}: {text}\n{}",
            machine.run(&["journalctl", "--no-pager", "-n", "60"]).1
        );
        text
    };
    does(&["enable", "--now", UNIT]);
    let first = workers(&scene);
    wait_for("step 4 is proven", || scene.proven() == 4);
    assert_eq!(does(&["is-enabled", UNIT]), "enabled");
    let told = machine.entries(&["SUPERVISE_KIND=decided.mark"]);
    assert!(
        told.iter().any(|e| e["_SYSTEMD_USER_UNIT"] == "supervise-demo.service"),
        "{told:?}"
    );

    does(&["kill", "--kill-who=main", "--signal=KILL", UNIT]);
    wait_for("it is ready again", || {
        does(&["show", "--value", "-p", "NRestarts", UNIT]) == "1"
            && does(&["show", "--value", "-p", "ActiveState", UNIT]) == "active"
    });
    assert_eq!(workers(&scene), first);

    does(&["stop", UNIT]);
    assert!(scene.workers().is_empty() && scene.guards().is_empty());
    does(&["start", UNIT]);
    workers(&scene);
    scene.go();
    wait_for("the run is finished", || {
        does(&["show", "--value", "-p", "ActiveState", UNIT]) == "inactive"
    });
    assert_eq!(scene.digest(), Some(expected));
    drop(machine);
    scene.assert_alone();
}
