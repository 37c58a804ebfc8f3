//! A gang over two nodes of a real Slurm cluster: a rank killed, the guard killed, cancelled, a rank that hangs.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use supervise_tests::harness::{Cluster, Scene, alive, eventually, in_scene, names, send, wait_for};

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

fn parent_of(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.unwrap().trim().parse().unwrap()
}

/// A cluster of three nodes that gives one up long before its ranks have ended by themselves.
const THREE: &[(&str, &str)] = &[("NODES", "3"), ("SLURMDTIMEOUT", "10")];

/// A cluster, of two nodes where nothing else is set; `None`: there can be none here.
fn cluster<'a>(scene: &'a Scene, test: &str, settings: &[(&str, &str)]) -> Option<Cluster<'a>> {
    Cluster::with(scene, "slurm-nodes.sh", settings)
        .map_err(|refusal| refusal.tell(test))
        .ok()
}

#[test]
fn a_gang_on_two_nodes_goes_on_in_its_allocation() {
    const TEST: &str = "a_gang_on_two_nodes_goes_on_in_its_allocation";
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("demo.hold_at", json!(5))
        .set("supervisor.gang.workers", json!(1))
        .set("supervisor.gang.nodes", json!(2));
    let expected = scene.expected_digest();
    let Some(cluster) = cluster(&scene, TEST, &[]) else {
        return;
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
    // A number is left out where a launch waited for Slurm.
    let numbers: Vec<u32> = scene.names("attempts").iter().map(|n| n.parse().unwrap()).collect();
    assert!(
        numbers.len() >= 5 && numbers[1..].iter().all(|n| scene.resumed(*n) == Some(4)),
        "{}",
        cluster.output()
    );
    drop(cluster);
    scene.assert_alone();
}

/// A scene whose trainer waits before step 5, on two nodes, each of whose ranks records when it lived.
fn held_gang() -> Scene {
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("demo.hold_at", json!(5))
        .set("demo.lives", json!(true))
        .set("supervisor.gang.workers", json!(1))
        .set("supervisor.gang.nodes", json!(2));
    scene
}

/// First and last moment of each attempt in which a rank of it lived, by the ranks' own records.
fn lives(scene: &Scene) -> BTreeMap<u32, (u64, u64)> {
    let folder = scene.root().parent().unwrap().join("lives");
    let mut lives = BTreeMap::new();
    for name in names(&folder) {
        let attempt: u32 = name.split('.').next().unwrap().parse().unwrap();
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let (first, last) = text.trim().split_once(' ').unwrap();
        let life: &mut (u64, u64) = lives.entry(attempt).or_insert((u64::MAX, 0));
        life.0 = life.0.min(first.parse().unwrap());
        life.1 = life.1.max(last.parse().unwrap());
    }
    lives
}

/// No rank of an attempt lived when one of the next did, and the journal knew it before it launched that.
fn assert_one_after_another(scene: &Scene, output: &str) {
    let lives = lives(scene);
    let all: Vec<(u32, (u64, u64))> = lives.into_iter().collect();
    for pair in all.windows(2) {
        let ((before, (_, last)), (after, (first, _))) = (pair[0], pair[1]);
        assert!(
            last < first,
            "attempt {before} lived until {last}, and {after} from {first}\n{output}"
        );
    }
    let (mut ordered, mut open) = (None, None);
    for line in scene.journal() {
        if let Some(attempt) = line.pointer("/body/what/launch/order/attempt") {
            ordered = attempt.as_u64();
        }
        if line.pointer("/body/kind/act_done/result/Ok/launched").is_some() {
            assert_eq!(open, None, "attempt {ordered:?} was launched over it\n{output}");
            open = ordered;
        }
        if line.pointer("/body/kind/tree_gone").is_some() {
            open = None;
        }
    }
}

/// The ranks of a gang that waits before step 5.
fn held_ranks(scene: &Scene) -> Vec<i32> {
    let ranks = new_ranks(scene, &[]);
    wait_for("step 4 is proven", || scene.proven() == 4);
    ranks
}

/// A held gang in its job, what befalls it, and its end: with the weights of an uninterrupted run, never two writers, and nothing left.
fn befalls(
    (test, scene): (&str, Scene),
    (settings, options): (&[(&str, &str)], &[&str]),
    restarts: &str,
    fate: impl FnOnce(&Scene, &Cluster<'_>, &mut String, Vec<i32>),
) {
    let expected = scene.expected_digest();
    let Some(cluster) = cluster(&scene, test, settings) else {
        return;
    };
    let mut job = cluster.submit_with(options);
    let ranks = held_ranks(&scene);
    fate(&scene, &cluster, &mut job, ranks);
    scene.go();
    assert_eq!(cluster.ends(&job), "COMPLETED", "{}", cluster.output());
    assert_eq!(scene.digest(), Some(expected), "{}", cluster.output());
    assert_one_after_another(&scene, &cluster.output());
    assert_eq!(cluster.property(&job, "Restarts"), restarts);
    drop(cluster);
    scene.assert_alone();
}

#[test]
fn a_link_that_is_cut_for_long_makes_no_second_writer() {
    const TEST: &str = "a_link_that_is_cut_for_long_makes_no_second_writer";
    befalls((TEST, held_gang()), (&[], &[]), "0", |scene, cluster, _, first| {
        cluster.node("cut", "n2");
        std::thread::sleep(Duration::from_secs(75));
        cluster.node("heal", "n2");
        new_ranks(scene, &first);
    });
}

/// A cut that is over before anybody gives the node up.
#[test]
fn a_link_that_is_cut_for_half_a_minute_makes_no_second_writer() {
    const TEST: &str = "a_link_that_is_cut_for_half_a_minute_makes_no_second_writer";
    befalls((TEST, held_gang()), (&[], &[]), "0", |_, cluster, _, _| {
        cluster.node("cut", "n2");
        std::thread::sleep(Duration::from_secs(30));
        cluster.node("heal", "n2");
    });
}

#[test]
fn a_guard_that_dies_while_a_node_is_cut_off_is_waited_out() {
    const TEST: &str = "a_guard_that_dies_while_a_node_is_cut_off_is_waited_out";
    // The job goes on with a third node.
    let with_a_third: (_, &[&str]) = (THREE, &["--nodes=3", "--no-kill"]);
    befalls((TEST, held_gang()), with_a_third, "0", |scene, cluster, _, first| {
        cluster.node("cut", "n2");
        send(scene.guards()[0], libc::SIGKILL);
        // Nothing but the launcher of the nodes knows of them now: it goes, too.
        launchers(scene).into_iter().for_each(|pid| send(pid, libc::SIGKILL));
        let second = new_ranks(scene, &first);
        assert!(second.iter().all(|rank| alive(*rank)));
        cluster.node("heal", "n2");
    });
}

fn launchers(scene: &Scene) -> Vec<i32> {
    let all = in_scene(&scene.mark());
    let launchers = all.into_iter().filter(|(_, line)| line.contains(" __nodes "));
    launchers.map(|(pid, _)| pid).collect()
}

/// Names of the nodes of each attempt that was launched.
fn places(scene: &Scene) -> Vec<Vec<String>> {
    let journal = scene.journal();
    let on = journal
        .iter()
        .filter_map(|line| line.pointer("/body/kind/nodes/news/on/nodes"));
    on.map(|nodes| serde_json::from_value(nodes.clone()).unwrap()).collect()
}

#[test]
fn another_node_takes_the_place_of_one_without_power() {
    const TEST: &str = "another_node_takes_the_place_of_one_without_power";
    let mut scene = held_gang();
    scene.set("supervisor.gang.spares", json!(1));
    befalls((TEST, scene), (THREE, &[]), "0", |scene, cluster, _, first| {
        cluster.node("power-off", "n2");
        new_ranks(scene, &first);
        assert_eq!(places(scene), [["n1", "n2"], ["n1", "n3"]]);
        let status = cluster.does(&["supervise", "status", scene.root().to_str().unwrap()]);
        assert!(status.contains("n1, n3; lost: n2 (down"), "{status}");
        let told = cluster.does(&["supervise", "explain", scene.root().to_str().unwrap()]);
        let lost = told.contains("[node.silent]") || told.contains("[sched.node_fail]");
        assert!(lost && told.contains("n2"), "{told}");
        // None of it costs a retry.
        assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    });
}

#[test]
fn another_node_takes_the_place_of_one_whose_gpu_is_broken() {
    const TEST: &str = "another_node_takes_the_place_of_one_whose_gpu_is_broken";
    let mut scene = held_gang();
    scene
        .set("supervisor.gang.spares", json!(1))
        .set("demo.faults", json!([{"kind": "broken_gpu", "step": 3, "rank": 1}]));
    befalls((TEST, scene), (THREE, &[]), "0", |scene, cluster, _, _| {
        assert_eq!(places(scene), [["n1", "n2"], ["n1", "n3"]], "{}", cluster.output());
        let status = cluster.does(&["supervise", "status", scene.root().to_str().unwrap()]);
        assert!(status.contains("n1, n3; lost: n2 (gpu.ecc_uncorrectable)"), "{status}");
    });
}

/// The rank that it took with it was heard first.
#[test]
fn a_cause_is_heard_that_was_still_on_its_way_from_another_node() {
    const TEST: &str = "a_cause_is_heard_that_was_still_on_its_way_from_another_node";
    let mut scene = held_gang();
    scene
        .set("supervisor.gang.spares", json!(1))
        .set("demo.faults", json!([{"kind": "broken_gpu", "step": 5, "rank": 1}]));
    befalls((TEST, scene), (THREE, &[]), "0", |scene, cluster, _, first| {
        let here = network_of(scene.guards()[0]);
        let elsewhere = first.into_iter().find(|rank| network_of(*rank) != here);
        let node_worker = parent_of(elsewhere.unwrap());
        send(node_worker, libc::SIGSTOP);
        scene.go();
        wait_for("the gang is ended", || scene.status()["mode"] == "stopping");
        send(node_worker, libc::SIGCONT);
        wait_for("it runs again", || places(scene).len() > 1);
        assert_eq!(places(scene), [["n1", "n2"], ["n1", "n3"]], "{}", cluster.output());
    });
}

#[test]
fn a_job_that_has_too_few_nodes_left_is_requeued_without_the_lost_one() {
    const TEST: &str = "a_job_that_has_too_few_nodes_left_is_requeued_without_the_lost_one";
    let lives_on: (_, &[&str]) = (THREE, &["--no-kill"]);
    befalls((TEST, held_gang()), lives_on, "1", |scene, cluster, job, first| {
        cluster.node("power-off", "n2");
        wait_for("it is requeued", || cluster.property(job, "Restarts") == "1");
        new_ranks(scene, &first);
        assert_eq!(cluster.property(job, "ExcNodeList"), "n2", "{}", cluster.output());
        assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    });
}

/// The lost node is neither the supervisor's nor the last one: Slurm ends the job itself, and starts it again on the nodes that are left.
#[test]
fn a_job_that_slurm_ends_with_its_node_is_one_history() {
    const TEST: &str = "a_job_that_slurm_ends_with_its_node_is_one_history";
    befalls((TEST, held_gang()), (THREE, &[]), "1", |scene, cluster, job, first| {
        cluster.node("power-off", "n2");
        wait_for("Slurm requeues it", || cluster.property(job, "Restarts") == "1");
        new_ranks(scene, &first);
        assert_eq!(places(scene), [["n1", "n2"], ["n1", "n3"]], "{}", cluster.output());
        assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    });
}

/// The lost node is the supervisor's: nobody says a last word, and the next one waits until the one before cannot write any more.
#[test]
fn a_job_that_slurm_ends_with_its_first_node_is_one_history() {
    const TEST: &str = "a_job_that_slurm_ends_with_its_first_node_is_one_history";
    let mut scene = held_gang();
    scene
        .set("supervisor.lease", json!({"ttl": "45s"}))
        .set("supervisor.grace", json!({"save": "5s", "stop": "5s", "orphan": "10s"}));
    befalls((TEST, scene), (THREE, &[]), "1", |scene, cluster, job, first| {
        cluster.node("power-off", "n1");
        wait_for("Slurm requeues it", || cluster.property(job, "Restarts") == "1");
        // The lease of the one before is waited out.
        std::thread::sleep(Duration::from_secs(75));
        new_ranks(scene, &first);
        assert_eq!(places(scene), [["n1", "n2"], ["n2", "n3"]], "{}", cluster.output());
        assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    });
}

#[test]
fn a_gang_goes_on_through_what_slurm_does_to_its_job() {
    const TEST: &str = "a_gang_goes_on_through_what_slurm_does_to_its_job";
    befalls((TEST, held_gang()), (&[], &[]), "0", |scene, cluster, job, first| {
        // A rank dies while nobody answers for Slurm: nothing is launched before somebody does.
        cluster.controller("stop");
        send(first[1], libc::SIGKILL);
        wait_for("it waits", || scene.status()["mode"] == "waiting");
        cluster.controller("start");
        let first = new_ranks(scene, &first);

        // Somebody requeues it.
        cluster.does(&["scontrol", "requeue", job]);
        wait_for("it runs again", || cluster.property(job, "Restarts") == "1");
        let second = new_ranks(scene, &first);

        // Its time is cut short, and the notice comes.
        cluster.does(&["scontrol", "update", &format!("jobid={job}"), "EndTime=now+20"]);
        cluster.does(&["scancel", "--signal=USR1", "--batch", job]);
        wait_for("it runs once more", || cluster.property(job, "Restarts") == "2");
        cluster.does(&["scontrol", "update", &format!("jobid={job}"), "TimeLimit=30"]);
        let third = new_ranks(scene, &second);

        // Its supervisor is killed: Slurm calls that a failure, and somebody submits it again.
        for (pid, line) in in_scene(&scene.mark()) {
            if line.contains("supervise run ") {
                send(pid, libc::SIGKILL);
            }
        }
        assert_eq!(cluster.ends(job), "FAILED", "{}", cluster.output());
        *job = cluster.submit();
        new_ranks(scene, &third);
        assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    });
}

/// More urgent work takes the nodes: the steps hear of it when the grace begins, the batch script when it ends.
/// The machine of the cluster's controller is none of its nodes: nothing there can be connected to.
#[test]
fn a_stop_from_a_login_node_reaches_the_supervisor_on_its_node() {
    let scene = held_gang();
    let Some(cluster) = cluster(
        &scene,
        "a_stop_from_a_login_node_reaches_the_supervisor_on_its_node",
        &[],
    ) else {
        return;
    };
    let job = cluster.submit();
    held_ranks(&scene);
    let said = cluster.does(&["supervise", "stop", scene.root().to_str().unwrap()]);
    assert!(said.contains("stopped") && said.contains("exit code 7"), "{said}");
    assert_eq!(cluster.ends(&job), "FAILED", "{}", cluster.output());
    assert!(cluster.output().contains("supervise stop on "), "{}", cluster.output());
    drop(cluster);
    scene.assert_alone();
}

#[test]
fn a_gang_that_makes_way_for_another_job_comes_back() {
    const TEST: &str = "a_gang_that_makes_way_for_another_job_comes_back";
    let with_grace: (&[_], &[_]) = (&[("GRACE", "8")], &[]);
    befalls((TEST, held_gang()), with_grace, "1", |scene, cluster, job, first| {
        let runs = |job: &str| cluster.property(job, "JobState") == "RUNNING";
        let urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodes=2", "--exclusive"];
        let urgent = [&urgent[..], &["--output=/dev/null", "--wrap", "sleep 10"]].concat();
        let urgent = cluster.does(&urgent);
        wait_for("the other job runs", || runs(&urgent));
        // Nothing of the gang lives beside it.
        assert!(ranks(scene).is_empty(), "{}", cluster.output());
        wait_for("it runs again", || {
            cluster.property(job, "Restarts") == "1" && runs(job)
        });
        new_ranks(scene, &first);
        assert_eq!(scene.status()["charged"], 0, "{}", cluster.output());
    });
}

#[test]
fn a_rank_that_spins_on_another_node_is_found_and_named() {
    const TEST: &str = "a_rank_that_spins_on_another_node_is_found_and_named";
    is_found_and_named(TEST, "spin", "spins: ");
}

#[test]
fn a_rank_that_sleeps_on_another_node_is_found_and_named() {
    const TEST: &str = "a_rank_that_sleeps_on_another_node_is_found_and_named";
    is_found_and_named(TEST, "hang", "waits (sleep)");
}

/// A rank on the other node hangs: seen by what the ranks of both nodes did before, long before the hard limit.
fn is_found_and_named(test: &str, kind: &str, how: &str) {
    // A minute of healthy steps.
    const AT: u64 = 2000;
    let mut scene = Scene::new(env!("CARGO_BIN_EXE_supervise"));
    scene
        .set("trainer.total_training_steps", json!(AT + 20))
        .set("trainer.save_freq", json!(100))
        .set("trainer.max_actor_ckpt_to_keep", json!(2))
        .set("supervisor.gang.workers", json!(1))
        .set("supervisor.gang.nodes", json!(2))
        .set(
            "supervisor.stall",
            json!({"minimum": "20s", "factor": 1.0, "hard": "10m"}),
        )
        // Ranks that compute for more than a twentieth of the time matter.
        .set("demo.hidden", json!([192, 192]))
        .set("demo.step_ms", json!(30))
        .set("demo.faults", json!([{"kind": kind, "step": AT, "rank": 1}]));
    let expected = scene.expected_digest();
    let Some(cluster) = cluster(&scene, test, &[]) else {
        return;
    };
    let job = cluster.submit();
    for step in (500..=AT - 100).step_by(500) {
        wait_for("it gets on", || scene.proven() >= step);
    }
    wait_for("the rank hangs", || !scene.faults().is_empty());
    wait_for("it is found", || cluster.output().contains("stuck"));
    assert_eq!(cluster.ends(&job), "COMPLETED", "{}", cluster.output());
    let told = cluster.output();
    let (_, hangs) = told.split_once("worker 1 on node n2 (pid ").unwrap();
    let words = hangs.split([';', '\n']).next().unwrap();
    assert!(words.contains(how), "{told}");
    assert!(told.contains("worker 0 on node n1 (pid "), "{told}");
    assert_eq!(scene.digest(), Some(expected), "{told}");
    drop(cluster);
    scene.assert_alone();
}

/// The daemon of a node is started again, as an update of Slurm's does: the ranks never notice.
#[test]
fn a_gang_lives_through_a_restart_of_a_nodes_daemon() {
    const TEST: &str = "a_gang_lives_through_a_restart_of_a_nodes_daemon";
    befalls((TEST, held_gang()), (&[], &[]), "0", |scene, cluster, _, first| {
        for node in ["n2", "n1"] {
            cluster.node("kill-daemon", node);
            cluster.node("start-daemon", node);
        }
        assert!(first.iter().all(|rank| alive(*rank)));
        // A rank dies afterwards: the new daemons start the next attempt.
        send(first[0], libc::SIGKILL);
        new_ranks(scene, &first);
    });
}
