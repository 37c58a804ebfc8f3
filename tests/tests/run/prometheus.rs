//! A real Prometheus reads the metrics of real runs, and its alerts fire.

use super::metrics::{program, top};
use super::serve::{Server, asked, run_of, serve};
use super::{SUPERVISE, saved, scene};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use supervise_tests::harness::{Mount, PATIENCE, Scene, eventually, send};

/// Prometheus; it ends when it goes out of sight.
struct Prometheus {
    child: Child,
    at: String,
}

impl Prometheus {
    /// Reads what a server has, every second, by the token of this scene's user; `rules`: its alerts.
    fn start(program: &str, scene: &Scene, server: &Server, rules: &str) -> Prometheus {
        let token = scene.path("home/.local/state/supervise/serve.token");
        assert!(token.exists(), "{token:?}");
        fs::write(scene.path("alerts.yaml"), rules).unwrap();
        // As docs/serve.md has it.
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [alerts.yaml]\n\
             scrape_configs:\n  \
             - job_name: supervise\n    \
               authorization: {{credentials_file: {}}}\n    \
               static_configs: [{{targets: [\"{}\"]}}]\n",
            token.display(),
            server.at
        );
        let file = scene.path("prometheus.yaml");
        fs::write(&file, config).unwrap();
        let log = scene.path("prometheus.log");
        let child = Command::new(program)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", scene.path("tsdb").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(scene.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut started = Prometheus {
            child,
            at: String::new(),
        };
        started.at = eventually("Prometheus listens", || {
            let text = fs::read_to_string(&log).unwrap();
            let line = text.lines().find(|l| l.contains("msg=\"Listening on\""))?;
            let (_, at) = line.split_once("address=")?;
            Some(at.trim().to_owned())
        });
        started
    }

    /// Null while it begins.
    fn ask(&self, path: &str) -> Value {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (_, body) = asked(stream, &format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.at));
        serde_json::from_str(&body).unwrap_or_default()
    }

    /// Names and runs of the alerts that fire.
    fn firing(&self) -> BTreeSet<(String, String)> {
        let answer = self.ask("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array();
        let firing = alerts.into_iter().flatten().filter(|a| a["state"] == "firing");
        let label = |a: &Value, name: &str| a["labels"][name].as_str().unwrap_or_default().to_owned();
        firing.map(|a| (label(a, "alertname"), label(a, "run"))).collect()
    }

    fn fires(&self, alert: &str, run: &str) {
        let wanted = (alert.to_owned(), run.to_owned());
        eventually(&format!("{alert} fires for {run}"), || {
            self.firing().contains(&wanted).then_some(())
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The alerts that are shipped, in seconds instead of minutes and hours.
fn hastened() -> String {
    let rules = fs::read_to_string(top().join("contrib/prometheus/alerts.yaml")).unwrap();
    let mut out = String::new();
    for line in rules.lines() {
        match line.trim_start().strip_prefix("for: ") {
            Some(_) => out.push_str(&format!("{}for: 1s\n", &line[..line.len() - line.trim_start().len()])),
            None => out.push_str(&format!("{line}\n")),
        }
    }
    let stalled = "supervise_run_last_progress_timestamp_seconds > 3600";
    assert!(out.contains(stalled), "{out}");
    out.replace(stalled, "supervise_run_last_progress_timestamp_seconds > 5")
}

/// A run that saves 8 MiB at every step into a room for 20 of them, and waits before step 14.
fn filling(home: &Scene) -> Option<(Scene, Mount)> {
    let mut scene = Scene::new(SUPERVISE);
    let mount = match Mount::tiny(&scene, "tiny", 160 << 20) {
        Ok(mount) => mount,
        Err(refusal) => {
            refusal.tell("an alert on a disk that fills");
            return None;
        }
    };
    // The files that are kept of the run need room of their own.
    let run_dir = scene.path("run");
    scene
        .env("HOME", home.path("home").to_str().unwrap())
        .set_root(&mount.point.join("checkpoints"))
        .set("supervisor.run_dir", json!(run_dir))
        .set("trainer.save_freq", json!(1))
        .set("trainer.total_training_steps", json!(1000))
        .set("trainer.n_gpus_per_node", json!(1))
        .set("supervisor.gang.workers", json!(1))
        .set("demo.samples", json!(1_000_000))
        .set("demo.step_ms", json!(400))
        .set("demo.hold_at", json!(14));
    Some((scene, mount))
}

#[test]
fn the_alerts_fire_on_runs_that_stall_give_up_fill_their_disk_and_lose_their_supervisor() {
    let Some(program) = program("prometheus") else { return };
    // One that ends well: nothing is said of it.
    let mut scene = scene();
    scene.set_root(&scene.path("well"));
    scene.run(&[]).expect(0);
    let well = run_of(&scene);
    scene.set_root(&scene.path("checkpoints")).set("demo.hold_at", json!(5));
    let stalls = scene.start(&[]);
    saved(&scene, 4);
    let stalled = run_of(&scene);
    let run_dir = format!("run_dir={}", scene.path("fails").display());
    let _ = scene
        .start_plain(
            &["retries=1", "backoff.initial=10ms", &run_dir],
            &["sh", "-c", "echo lost; exit 3"],
        )
        .wait();
    let server = serve(&scene, &[]);
    let prometheus = Prometheus::start(&program, &scene, &server, &hastened());
    let failed = eventually("the run that failed is read", || {
        let answer = prometheus.ask("/api/v1/query?query=supervise_run_outcome%7Boutcome!=%22finished%22%7D%20==%201");
        let found = answer["data"]["result"].as_array()?.first()?.clone();
        Some(found["metric"]["run"].as_str()?.to_owned())
    });
    prometheus.fires("SuperviseRunNeedsPerson", &failed);
    prometheus.fires("SuperviseRunStalled", &stalled);
    if let Some((full, _mount)) = filling(&scene) {
        let run = full.start(&[]);
        let id = eventually("the run that fills its disk is known", || {
            full.status()["run"].as_str().map(str::to_owned)
        });
        prometheus.fires("SuperviseRunOutOfRoom", &id);
        run.signal(libc::SIGTERM);
        let _ = run.wait();
    }
    let guards = scene.guards();
    stalls.kill();
    guards.into_iter().for_each(|pid| send(pid, libc::SIGKILL));
    prometheus.fires("SuperviseSupervisorGone", &stalled);
    let all = prometheus.firing();
    assert!(all.iter().all(|(_, run)| *run != well), "{all:?}");
    let targets = prometheus.ask("/api/v1/targets");
    assert_eq!(targets["data"]["activeTargets"][0]["health"], "up", "{targets}");
    drop(prometheus);
    server.stops();
    scene.go();
    scene.run(&[]).expect(0);
}
