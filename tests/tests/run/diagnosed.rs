//! A run is settled with what `supervise diagnose` says of the logs of its workers, unless it names what else it knows.

use super::scene;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use supervise_tests::harness::Scene;

/// Excerpts that are played by a real process: every so many of the labelled ones.
const EVERY: usize = 97;

/// Two ranks under torchrun, as it prints when one of them is killed: the launcher itself ends with 1.
const TORCHRUN: &str = "step:1 - loss:0.5
step:2 - loss:0.4
W1128 13:44:08.231000 24060 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 24070 closing signal SIGTERM
E1128 13:44:08.240000 24060 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -9) local_rank: 1 (pid: 24071) of binary: /usr/bin/python3
Traceback (most recent call last):
  File \"/usr/bin/torchrun\", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
======================================================
t.py FAILED
------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_13:44:08
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 24071)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 24071
======================================================
";

/// What the other rank of such a run says before its launcher does.
const ECHO: &str = "[rank0]: Traceback (most recent call last):
[rank0]:   File \"t.py\", line 52, in <module>
[rank0]:     dist.barrier()
[rank0]: RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:51335
";

/// The account of attempt 1: its diagnosis, and the words about it.
fn explained(scene: &Scene) -> Value {
    let told = scene.ask(&["explain", "--json"]);
    let told: Value = serde_json::from_str(&told.expect(0).text).unwrap();
    let attempts = told["attempts"].as_array().unwrap();
    attempts.iter().find(|a| a["attempt"] == 1).unwrap()["diagnosis"].clone()
}

/// What `diagnose` says of the logs of attempt 1.
fn diagnosed(scene: &Scene, exit: i32) -> Value {
    let attempt = scene.path("run").join("attempts/0001");
    let mut logs: Vec<PathBuf> = fs::read_dir(&attempt)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    let exit = format!("--exit-code={exit}");
    let mut words = vec!["diagnose", "--json", &exit];
    words.extend(logs.iter().map(|l| l.to_str().unwrap()));
    serde_json::from_str(&scene.ask(&words).expect(0).text).unwrap()
}

/// Runs a shell script as each of so many workers of a plain run, once.
fn run(scene: &Scene, script: &str, workers: usize) {
    let run_dir = format!("run_dir={}", scene.path("run").display());
    let gang = format!("gang.workers={workers}");
    let settings = ["retries=0", &run_dir, &gang, "policy={disk.full: stop, ray.*: stop}"];
    let run = scene.start_plain(&settings, &["sh", "-c", script]);
    assert_ne!(run.wait().code, Some(0));
}

fn corpus() -> Vec<(PathBuf, i32)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let labels = fs::read_to_string(folder.join("labels.tsv")).unwrap();
    let rows = labels.lines().skip(1).filter_map(|line| {
        let mut cells = line.split('\t');
        let file = folder.join(cells.next()?);
        Some((file, cells.next()?.parse().ok().filter(|code| *code != 0)?))
    });
    rows.step_by(EVERY).collect()
}

#[test]
fn excerpts_that_real_processes_print_have_the_class_of_diagnose() {
    let corpus = corpus();
    assert!(corpus.len() > 10);
    for (log, exit) in corpus {
        let scene = scene();
        run(&scene, &format!("cat {}; exit {exit}", log.display()), 1);
        let (run, logs) = (explained(&scene), diagnosed(&scene, exit));
        assert_eq!(run["class"], logs["class"], "{}: {run}", log.display());
        if let Some(line) = logs["root"]["line"].as_u64() {
            let text = run["text"].as_str().unwrap();
            assert!(
                text.starts_with(&format!("worker 0 line {line}: ")),
                "{}: {text}",
                log.display()
            );
        }
    }
}

#[test]
fn a_rank_that_is_killed_under_its_launcher_is_a_kill_and_named() {
    for said in [TORCHRUN.to_owned(), format!("{ECHO}{TORCHRUN}")] {
        let scene = scene();
        let log = scene.path("said");
        fs::write(&log, said).unwrap();
        run(&scene, &format!("cat {}; exit 1", log.display()), 1);
        let d = explained(&scene);
        assert_eq!(d["class"], "kill.unknown", "{d}");
        assert_eq!(diagnosed(&scene, 1)["class"], "kill.unknown");
        let text = d["text"].as_str().unwrap();
        assert!(
            text.starts_with("rank 1 under the launcher of worker 0 was killed by SIGKILL"),
            "{text}"
        );
    }
}

#[test]
fn the_worker_that_tells_why_is_blamed_and_its_output_shown() {
    let scene = scene();
    let killed = "if [ $RANK = 2 ]; then echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'; sleep 60; fi; \
         sleep 1; if [ $RANK = 1 ]; then echo 'RuntimeError: Connection closed by peer'; exit 1; fi; sleep 60";
    run(&scene, killed, 3);
    let d = explained(&scene);
    assert_eq!((&d["class"], &d["worker"]), (&"mem.cuda_oom".into(), &2.into()), "{d}");
    assert_eq!(diagnosed(&scene, 1)["class"], "mem.cuda_oom");
    scene.ask(&["explain"]).expect(0).says("--worker 2");
    let shown = scene.ask(&["logs"]);
    shown
        .expect(0)
        .says("CUDA out of memory")
        .says("worker 2 of attempt 1 tells why it ended");
    scene.ask(&["logs", "--attempt", "1"]).says("CUDA out of memory");
}

#[test]
fn what_changes_the_class_of_the_logs_is_named() {
    // The output says nothing; the exception that ended the interpreter does.
    let scene = scene();
    let train = scene.path("train.py");
    fs::write(
        &train,
        "import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)\nraise RuntimeError('CUDA error: an illegal memory access was encountered')\n",
    )
    .unwrap();
    let run_dir = format!("run_dir={}", scene.path("run").display());
    let settings = ["retries=0", &run_dir];
    let run = scene.start_plain(&settings, &["python3", train.to_str().unwrap()]);
    assert_ne!(run.wait().code, Some(0));
    let d = explained(&scene);
    assert_eq!(d["class"], "gpu.app_fault", "{d}");
    let text = d["text"].as_str().unwrap();
    assert!(text.starts_with("the exception that ended worker 0: "), "{text}");
}

#[test]
fn an_end_without_a_newline_is_read() {
    let scene = scene();
    let script = "echo step 1; printf 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'; exit 1";
    run(&scene, script, 1);
    let (d, logs) = (explained(&scene), diagnosed(&scene, 1));
    assert_eq!(
        (&d["class"], &logs["class"]),
        (&"mem.cuda_oom".into(), &"mem.cuda_oom".into()),
        "{d}"
    );
}
