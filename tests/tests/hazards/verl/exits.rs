//! How verl's processes end, and what is made of it.

use crate::bench::Bench;
use serde_json::json;

/// Attempts in a row that cost no retry.
const SPARED: usize = 20;

/// A run whose only attempt does this; its exit code, class and action.
fn ends(script: &str) -> (i32, String, String) {
    ends_after(script, 1)
}

/// The same of the last of several attempts.
fn ends_after(script: &str, attempts: usize) -> (i32, String, String) {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench
        .script(script)
        .set("supervisor.retries", json!(0))
        // It would wait for room for half an hour.
        .set("supervisor.policy", json!({"disk.full": "stop"}));
    let code = bench.run(&[]).code;
    assert_eq!(bench.attempts(), attempts);
    let (class, action) = bench.diagnosis();
    (code, class, action)
}

fn is(found: &(i32, String, String), code: i32, class: &str, action: &str) {
    assert_eq!((found.0, found.1.as_str(), found.2.as_str()), (code, class, action));
}

/// [exit.exception] Exit code 1 for whatever an exception was, anywhere | The code says nothing: the first traceback that is no consequence of another does
#[test]
fn an_exception() {
    is(&ends("exit 1\n"), 6, "exit.unexplained", "relaunch_later");
    let told = "printf 'Traceback (most recent call last):\\n  File x\\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate\\n'\nexit 1\n";
    is(&ends(told), 6, "mem.cuda_oom", "relaunch_once");
}

/// [exit.override] Exit code 1 from Hydra for an override it cannot apply | Told from its words: no relaunch can help, the run stops with 3 at once
#[test]
fn a_bad_override() {
    let told = "echo \"Could not override 'trainer.sav_freq'.\"\necho \"Key 'sav_freq' is not in struct\"\nexit 1\n";
    is(&ends(told), 3, "cfg.args", "stop");
}

/// [exit.sigterm_early] Before Ray is there, SIGTERM ends the driver by that signal | Somebody's wish: it is launched again later, and costs no retry; twenty in a row without progress are enough
#[test]
fn sigterm_before_ray() {
    is(
        &ends_after("kill -TERM $$\n", SPARED + 1),
        6,
        "op.signal",
        "relaunch_later",
    );
}

/// [exit.sigterm_late] Once Ray is there, its handler turns SIGTERM into exit code 15 | The same as the signal
#[test]
fn sigterm_after_ray() {
    is(&ends_after("exit 15\n", SPARED + 1), 6, "op.signal", "relaunch_later");
}

/// [exit.sigkill] SIGKILL leaves no word; a shell between makes it 137 | Where the kernel's log or the counters of our control group say that memory was short, `mem.host_oom`; else a kill by nobody known: launched again, and charged to the budget only
#[test]
fn sigkill() {
    is(&ends("kill -KILL $$\n"), 6, "kill.unknown", "relaunch_later");
    is(&ends("exit 137\n"), 6, "kill.unknown", "relaunch_later");
}

/// [exit.success] Exit code 0 at the end, and also after a resume that trained nothing | It is an end only with the last planned step proven
#[test]
fn success_is_a_proven_last_step() {
    is(&ends("exit 0\n"), 3, "end.early_success", "stop");
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.lose(2, "");
    std::fs::write(bench.tracker(), "1").unwrap();
    copy_step(&bench);
    bench
        .set("trainer.total_training_steps", json!(2))
        .script("mv second checkpoints/global_step_2\n");
    bench.run(&[]).tells(0, &["step 2 is proven"]);
}

/// The second step, outside of the root.
fn copy_step(bench: &Bench) {
    let from = crate::bench::fixtures().join("verl_ppo_fsdp2_w2/global_step_2");
    supervise_tests::harness::copy_tree(&from, &bench.path("second")).unwrap();
}

/// [exit.torchrun] torchrun ends with 1 and a report of which rank ended how | The report is a consequence; the rank's own last exception is the cause
#[test]
fn torchrun() {
    let told = "cat <<'E'
[rank1]: Traceback (most recent call last):
[rank1]:   File \"x.py\", line 1, in <module>
[rank1]: OSError: [Errno 28] No space left on device
W1122 02:00:00.0 1 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 7 closing signal SIGTERM
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
E
exit 1
";
    is(&ends(told), 3, "disk.full", "wait");
}

/// [exit.ray_job] `ray job submit` ends with 0 or 1 only, whatever the driver ended with; and the job goes on where the command is killed or stopped | The cause is read from the job's output; each attempt's job has a name of its own, is stopped by it, and has ended in Ray's own words before the next one
#[test]
fn ray_job() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let ray = bench.program(
        "ray",
        "echo \"$2 $3 $4\" >> calls\n[ \"$2\" = stop ] && exit 0\necho 'torch.OutOfMemoryError: CUDA out of memory.'\nexit 1\n",
    );
    let words = [
        ray.as_str(),
        "job",
        "submit",
        "--no-wait",
        "--",
        "python3",
        "-m",
        "verl.trainer.main_ppo",
    ];
    bench
        .set("supervisor.command", json!(words))
        .set("supervisor.retries", json!(1))
        .set("supervisor.rehearse", json!(false));
    let said = bench.run(&[]);
    said.tells(3, &["--no-wait is taken out", "mem.cuda_oom"]);
    let run = said.out.split_whitespace().skip_while(|w| *w != "run").nth(1).unwrap();
    let of = |n: u32| {
        let id = format!("supervise-{run}-{n}");
        [format!("submit --submission-id={id} --"), format!("stop {id} ")]
    };
    let calls = std::fs::read_to_string(bench.path("calls")).unwrap();
    assert_eq!(calls.lines().collect::<Vec<_>>(), [of(1), of(2)].concat());
}
