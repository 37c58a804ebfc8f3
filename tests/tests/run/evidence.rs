//! Evidence of a failure is kept beside the attempt, and decides where the output says nothing.

use super::scene;
use super::told::LittleMemory;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use supervise_tests::harness::{Refusal, eventually};

/// The only attempt's directories below a place, wherever the run directory stands.
pub(super) fn evidence(below: &Path) -> Option<PathBuf> {
    let mut open = vec![below.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).ok()?.flatten() {
            let path = entry.path();
            if path.ends_with("attempts/0001/evidence") {
                return Some(path);
            }
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    None
}

#[test]
fn a_failure_leaves_evidence_beside_its_attempt() {
    let scene = scene();
    let worker = scene.program("fake_worker");
    let words = ["run", "--set", "supervisor.retries=0", "--"];
    let mut words = words.to_vec();
    words.extend([worker.to_str().unwrap(), "error", "7", "the last words"]);
    scene.ask(&words).expect(6);
    let dir = evidence(&scene.path("")).unwrap();
    // The helper writes on after the run has ended.
    let exits: Value = eventually("it is known how each process ended", || {
        serde_json::from_str(&fs::read_to_string(dir.join("exits.json")).ok()?).ok()
    });
    let worker = |e: &&Value| e["worker"] == 0;
    let ends: Vec<&Value> = exits.as_array().unwrap().iter().filter(worker).collect();
    assert_eq!(ends[0]["exit"]["code"], 7, "{exits}");
    let command = ends[0]["command"].as_str().unwrap_or_default();
    assert!(
        command.contains("fake_worker error 7") && ends[0]["pid"].is_u64(),
        "{exits}"
    );
    for (name, words) in [
        ("memory.txt", ["# /proc/meminfo"; 2]),
        ("tail-0.log", ["the last words"; 2]),
        ("kernel.txt", ["# lines since the launch", "/dev/kmsg"]),
    ] {
        eventually(name, || {
            let text = fs::read_to_string(dir.join(name)).ok()?;
            words.iter().any(|w| text.contains(w)).then_some(())
        });
    }
}

/// The record of a rank as PyTorch's flight recorder writes it: the calls that it entered, and those it finished.
pub(super) fn record(entered: u64, done: u64) -> String {
    let call = |number: u64| {
        json!({
            "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number, "p2p_seq_id": 0, "is_p2p": false,
            "profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "input_dtypes": ["Float"], "state": "scheduled",
            "retired": number <= done,
        })
    };
    let entries: Vec<Value> = (1..=entered).map(call).collect();
    let groups = json!({"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}});
    json!({"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries}).to_string()
}

#[test]
fn a_timeout_of_nccl_names_the_rank_that_the_others_waited_for() {
    let mut scene = scene();
    for (rank, entered) in [(0, 2), (1, 1)] {
        scene.env(&format!("RECORD_{rank}"), &record(entered, 1));
    }
    let said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.";
    // The directory is made beside the launch.
    let script = format!(
        "until [ -d \"${{TORCH_FR_DUMP_TEMP_FILE%/*}}\" ]; do sleep 0.05; done; for rank in 0 1; do printenv RECORD_$rank > \"$TORCH_FR_DUMP_TEMP_FILE$rank\"; done; echo '{said}' >&2; exit 1"
    );
    let named = "rank 1 did not enter all_reduce number 2 of group 0 (default_pg)";
    let run = scene.start_plain(&["retries=0"], &["sh", "-c", &script]);
    run.wait().expect(6).says("comm.nccl_timeout").says(named);
    scene
        .ask(&["explain"])
        .expect(0)
        .says(named)
        .says("evidence/collectives.txt:1");
}

/// The record of the job that Slurm keeps is gone a few minutes after its end (`MinJobAge`).
#[test]
fn slurms_record_of_the_job_is_kept_beside_a_failure() {
    let mut scene = scene();
    let fake = scene.path("slurm");
    fs::create_dir(&fake).unwrap();
    let record = "JobId=77 JobName=train\n   JobState=RUNNING Reason=None Dependency=(null)\n   TimeLimit=02:00:00 Requeue=1 NodeList=gpu-07\n";
    let text = format!(
        "#!/bin/sh\necho \"$*\" >>{0}/asked\n[ \"$*\" = 'show job 77' ] || exit 1\nprintf '{record}'\n",
        fake.display()
    );
    fs::write(fake.join("scontrol"), text).unwrap();
    fs::set_permissions(fake.join("scontrol"), fs::Permissions::from_mode(0o755)).unwrap();
    let programs = Path::new(super::SUPERVISE).parent().unwrap().display();
    let path = format!("{}:{programs}:{}", fake.display(), std::env::var("PATH").unwrap());
    scene.env("PATH", &path).env("SLURM_JOB_ID", "77");
    let worker = scene.program("fake_worker");
    let run = scene.start_plain(
        &["retries=0"],
        &[worker.to_str().unwrap(), "error", "7", "the last words"],
    );
    run.wait().expect(6);
    let dir = evidence(&scene.path("")).unwrap();
    let kept = eventually("the record is kept", || {
        fs::read_to_string(dir.join("slurm.txt"))
            .ok()
            .filter(|t| t.contains("NodeList"))
    });
    assert!(
        kept.starts_with("JobId=77 JobName=train\n") && kept.contains("NodeList=gpu-07"),
        "{kept}"
    );
}

/// As torch 2.11 writes it where `@record` is around `main` (`elastic/multiprocessing/errors/error_handler.py`).
const RECORDS: &str = r#"
import json, os, time, traceback
def main():
    raise ValueError("a batch of rank " + os.environ["RANK"] + " is empty")
try:
    main()
except Exception as e:
    shape = {"message": f"{type(e).__name__}: {e}", "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}
    while not os.path.isdir(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])): time.sleep(0.02)
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": shape}, file)
    time.sleep(1)
    os._exit(1)
"#;

#[test]
fn what_torchs_error_handler_writes_is_kept_for_each_rank() {
    let scene = scene();
    let program = scene.path("train.py");
    fs::write(&program, RECORDS).unwrap();
    let gang = ["retries=0", "gang.launcher=gang", "gang.workers=2", "gang.gpus=none"];
    scene
        .start_plain(&gang, &["python3", program.to_str().unwrap()])
        .wait()
        .expect(3)
        .says("the error file of worker")
        .says("code.type_key");
    let dir = evidence(&scene.path("")).unwrap();
    for rank in 0..2 {
        let text = fs::read(dir.join(format!("error-{rank}.json"))).unwrap();
        let told: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            told["message"]["message"],
            format!("ValueError: a batch of rank {rank} is empty")
        );
        let stack = told["message"]["extraInfo"]["py_callstack"]
            .as_str()
            .unwrap_or_default();
        assert!(stack.contains("in main"), "{told}");
    }
}

#[test]
fn a_full_shared_memory_is_named_where_a_worker_dies_of_it() {
    let test = "a worker that dies of a full /dev/shm";
    let mounts = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]);
        command
    };
    let little = "mount -t tmpfs -o size=1m tmpfs /dev/shm";
    if !mounts(little).output().is_ok_and(|o| o.status.success()) {
        return Refusal::new("no mount namespace can be made here").tell(test);
    }
    let scene = scene();
    let program = scene.path("full.py");
    let text = "import mmap\nf = open('/dev/shm/large', 'w+b')\nf.truncate(8 << 20)\nm = mmap.mmap(f.fileno(), 8 << 20)\n\
        for at in range(0, 8 << 20, 4096):\n    m[at] = 1\n";
    fs::write(&program, text).unwrap();
    let script = format!(
        "{little} && exec {} run --set supervisor.trainer=plain --set supervisor.retries=0 -- python3 {}",
        scene.program("supervise").display(),
        program.display()
    );
    let ended = scene
        .other(Path::new("unshare"))
        .args(["--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("mem.shm") && said.contains("/dev/shm is full"), "{said}");
}

#[test]
fn a_run_that_leaks_is_restarted_right_after_a_save_and_ends_with_the_same_weights() {
    // Without a restart it is killed in step 18 of 30. A slope counts from eight samples on, which are 400 MB; the restart came at 610 MiB.
    let Some(little) = LittleMemory::make("leak", "900M") else {
        let why = "no control group with a limit of memory can be made here";
        return Refusal::new(why).tell("a run that leaks is restarted");
    };
    let mut scene = scene();
    let wrapper = scene.path("enter.sh");
    let text = format!(
        "#!/bin/sh\necho $$ > {} || exit 5\nexec {} \"$@\"\n",
        little.entrance().display(),
        scene.program("demo_trainer").display()
    );
    fs::write(&wrapper, text).unwrap();
    scene
        .set(
            "supervisor.command",
            json!(["/bin/sh", wrapper, "--config", "{config}", "{overrides}"]),
        )
        .set("supervisor.memory", json!({"restart_after_save": "auto"}))
        .set("supervisor.kill", json!({"cgroup": "off"}))
        .set("trainer.total_training_steps", json!(30))
        .set("trainer.save_freq", json!(5))
        .set("demo.step_ms", json!(1000));
    let expected = scene.expected_digest();
    scene.env("DEMO_LEAK_MB", "50");
    scene.run(&[]).expect(0).says("a restart now gives the memory back");
    assert_eq!(scene.digest(), Some(expected));
    assert!(scene.attempts() >= 2);
    scene.assert_alone();
}
