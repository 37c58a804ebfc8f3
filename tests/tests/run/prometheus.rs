//! A real Prometheus reads the metrics of real runs, its alerts fire, and the dashboard finds what it draws.

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

    /// The answer to a query; nothing while it begins.
    fn finds(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|b| format!("%{b:02x}")).collect();
        let answer = self.ask(&format!("/api/v1/query?query={encoded}"));
        assert_ne!(answer["status"], "error", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Whatever the dashboard asks for has been found since this began, with the labels that it is shown by.
    fn draws_the_dashboard(&self) {
        for (query, shown) in dashboard() {
            let ever = format!("max_over_time(({query})[30m:1s])");
            let found = eventually(&query, || self.finds(&ever).into_iter().next());
            for (label, _) in shown.split("{{").filter_map(|rest| rest.split_once("}}")) {
                assert!(found["metric"][label].is_string(), "{label} of {query}: {found}");
            }
        }
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

/// All that the dashboard asks for, in seconds instead of minutes, and how it shows that.
fn dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(top().join("contrib/grafana/supervise.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let list = |v: &Value| v.as_array().unwrap().clone();
    let annotations = list(&all["annotations"]["list"]);
    let targets = list(&all["panels"])
        .into_iter()
        .flat_map(|panel| list(&panel["targets"]));
    let query = |one: Value| {
        let expr = one["expr"].as_str().unwrap();
        let query = expr.replace("$run", ".*").replace("offset 1m", "offset 2s");
        let shown = one["legendFormat"].as_str().or(one["titleFormat"].as_str());
        (query, shown.unwrap_or_default().to_owned())
    };
    annotations.into_iter().chain(targets).map(query).collect()
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
fn alerts_fire_on_runs_that_stall_give_up_fill_their_disk_and_lose_their_supervisor_and_the_dashboard_draws_them() {
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
    let sign = scene.path("fail-now");
    let fails = scene.start_plain(
        &["retries=1", "backoff.initial=10ms", &run_dir],
        &[
            "sh",
            "-c",
            "until [ -e \"$0\" ]; do sleep 0.1; done; echo lost; exit 3",
            sign.to_str().unwrap(),
        ],
    );
    let server = serve(&scene, &[]);
    let prometheus = Prometheus::start(&program, &scene, &server, &hastened());
    let failed = eventually("the run that will fail has been known for a while", || {
        let found = prometheus.finds("supervise_run_info{root=~\".*/fails\"} offset 2s");
        Some(found.first()?["metric"]["run"].as_str()?.to_owned())
    });
    fs::write(sign, "").unwrap();
    let _ = fails.wait();
    prometheus.fires("SuperviseRunNeedsPerson", &failed);
    prometheus.fires("SuperviseRunStalled", &stalled);
    if let Some((full, _mount)) = filling(&scene) {
        let run = full.start(&[]);
        let id = eventually("the run that fills its disk is known", || {
            full.status()["run"].as_str().map(str::to_owned)
        });
        prometheus.fires("SuperviseRunOutOfRoom", &id);
        prometheus.draws_the_dashboard();
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
