//! A batch script that `supervise sbatch` writes, under a real Slurm: a worker killed, requeued in mid-run, handed back, cancelled.

use serde_json::{Value, json};
use supervise_tests::harness::{Cluster, Scene, eventually, send, wait_for};

/// Waits until a job was started again so often, and runs.
fn came_back(cluster: &Cluster<'_>, job: &str, restarts: &str) {
    wait_for(&format!("restart {restarts} runs"), || {
        cluster.property(job, "Restarts") == restarts && cluster.property(job, "JobState") == "RUNNING"
    });
}

fn workers(scene: &Scene, before: &[i32]) -> Vec<i32> {
    eventually("two new workers run", || {
        let workers = scene.workers();
        (workers.len() == 2 && workers.iter().all(|w| !before.contains(w))).then_some(workers)
    })
}

/// How the terms of a run ended.
fn outcomes(scene: &Scene) -> Vec<Value> {
    let journal = scene.journal();
    let of = |line: &Value| line.pointer("/body/what/finish/outcome").cloned();
    journal.iter().filter_map(of).collect()
}

#[test]
fn a_job_goes_on_through_all_that_slurm_does_to_it() {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.gang.gpus", json!("auto"));
    let expected = scene.expected_digest();
    let cluster = match Cluster::new(&scene, "slurm.sh") {
        Ok(cluster) => cluster,
        Err(refusal) => return refusal.tell("a_job_goes_on_through_all_that_slurm_does_to_it"),
    };
    let job = cluster.submit();
    let first = workers(&scene, &[]);
    wait_for("step 4 is proven", || scene.proven() == 4);
    let status = cluster.does(&["supervise", "status", scene.root().to_str().unwrap()]);
    assert!(status.contains(&format!("Slurm job {job}")), "{status}");

    // A worker dies: the attempt after it is in the same allocation.
    send(first[0], libc::SIGKILL);
    let second = workers(&scene, &first);
    assert_eq!(cluster.property(&job, "Restarts"), "0");

    // Somebody requeues it.
    cluster.does(&["scontrol", "requeue", &job]);
    came_back(&cluster, &job, "1");
    let third = workers(&scene, &second);

    // Its time is cut short, and the notice comes: no save comes before, for the trainer is held.
    cluster.does(&["scontrol", "update", &format!("jobid={job}"), "EndTime=now+20"]);
    cluster.does(&["scancel", "--signal=USR1", "--batch", &job]);
    came_back(&cluster, &job, "2");
    cluster.does(&["scontrol", "update", &format!("jobid={job}"), "TimeLimit=30"]);
    let fourth = workers(&scene, &third);
    assert_eq!(
        outcomes(&scene).last(),
        Some(&json!("out_of_time")),
        "{}",
        cluster.output()
    );

    assert_eq!(scene.status()["scheduler"]["restarts"], 2);

    // It is cancelled, and submitted again.
    cluster.does(&["scancel", &job]);
    assert_eq!(cluster.ends(&job), "CANCELLED");
    wait_for("nothing of it lives", || {
        scene.workers().is_empty() && scene.guards().is_empty()
    });
    assert_eq!(outcomes(&scene).last(), Some(&json!("stopped")), "{}", cluster.output());
    // Three attempts in a row proved no new step, and none of them cost a retry.
    assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    let job = cluster.submit();
    workers(&scene, &fourth);
    scene.go();
    assert_eq!(cluster.ends(&job), "COMPLETED", "{}", cluster.output());

    assert_eq!(scene.digest(), Some(expected));
    // One history, in which each attempt but the first began where the newest proven step was.
    let attempts = u32::try_from(scene.attempts()).unwrap();
    assert!(
        (2..=attempts).all(|n| scene.resumed(n) == Some(4)),
        "{}",
        cluster.output()
    );
    // The first run's output was not cut off by the second.
    assert!(
        cluster.output().contains("attempt 1") && cluster.output().contains("requeued"),
        "{}",
        cluster.output()
    );
    drop(cluster);
    scene.assert_alone();
}
