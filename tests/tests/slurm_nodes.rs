//! A gang over two nodes of a real Slurm cluster: a rank killed, the guard killed, cancelled.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::json;
use std::fs;
use std::path::PathBuf;
use supervise_tests::harness::{Cluster, Scene, eventually, in_scene, send, wait_for};

/// Ranks, in no order: processes of the trainer on either node.
fn ranks(scene: &Scene) -> Vec<i32> {
    let all = in_scene(&scene.mark());
    let ranks = all.into_iter().filter(|(_, line)| line.starts_with("demo_trainer "));
    ranks.map(|(pid, _)| pid).collect()
}

fn new_ranks(scene: &Scene, before: &[i32]) -> Vec<i32> {
    eventually("two new ranks run", || {
        let ranks = ranks(scene);
        (ranks.len() == 2 && ranks.iter().all(|r| !before.contains(r))).then_some(ranks)
    })
}

fn steps(cluster: &Cluster<'_>) -> String {
    cluster.does(&["squeue", "--steps", "--noheader", "--format", "%j"])
}

/// Namespace of a process's network: each node has its own.
fn network_of(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
}

#[test]
fn a_gang_on_two_nodes_goes_on_in_its_allocation() {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.gang.workers", json!(1))
        .set("supervisor.gang.nodes", json!(2));
    let expected = scene.expected_digest();
    let cluster = match Cluster::new(&scene, "slurm-nodes.sh") {
        Ok(cluster) => cluster,
        Err(refusal) => return refusal.tell("a_gang_on_two_nodes_goes_on_in_its_allocation"),
    };
    let job = cluster.submit();
    let first = new_ranks(&scene, &[]);
    assert_ne!(network_of(first[0]), network_of(first[1]), "one rank on each node");
    wait_for("step 4 is proven", || scene.proven() == 4);

    // A rank on either node dies: the attempt after it is in the same allocation, on both.
    send(first[0], libc::SIGKILL);
    let second = new_ranks(&scene, &first);
    send(second[1], libc::SIGKILL);
    let third = new_ranks(&scene, &second);
    assert!(first.iter().chain(&second).all(|pid| !third.contains(pid)));

    // So does the guard: the step that it had started is ended before another one begins.
    let guards = scene.guards();
    send(guards[0], libc::SIGKILL);
    let fourth = new_ranks(&scene, &third);
    assert_eq!(
        steps(&cluster).lines().filter(|s| s.starts_with("supervise-")).count(),
        1
    );

    // It is cancelled: nothing is left on either node, and it goes on where it was.
    cluster.does(&["scancel", &job]);
    assert_eq!(cluster.ends(&job), "CANCELLED");
    wait_for("nothing of it lives", || in_scene(&scene.mark()).is_empty());
    let job = cluster.submit();
    new_ranks(&scene, &fourth);
    scene.go();
    assert_eq!(cluster.ends(&job), "COMPLETED", "{}", cluster.output());

    assert_eq!(scene.digest(), Some(expected), "{}", cluster.output());
    let attempts = u32::try_from(scene.attempts()).unwrap();
    assert!(
        attempts >= 5 && (2..=attempts).all(|n| scene.resumed(n) == Some(4)),
        "{}",
        cluster.output()
    );
    drop(cluster);
    scene.assert_alone();
}
