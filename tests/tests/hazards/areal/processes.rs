//! Processes: how they end, what they leave behind, and what another one makes of it.

use crate::areal_run::Run;
use serde_json::json;
use supervise_tests::harness::{alive, eventually, wait_for};

/// Starts a worker in a session of its own, which registers itself under a name, does not listen to SIGHUP and SIGINT, and
/// deletes the name when it is asked to end, as AReaL's do. Whoever is left of earlier attempts is noted.
const WITH_A_WORKER: &str = "\
name = os.path.join(files, 'actor')
for pid in os.listdir('/proc'):
    try:
        if b'as_a_worker' in open(f'/proc/{pid}/cmdline', 'rb').read().split(b'\\0') and files in os.readlink(f'/proc/{pid}/cwd'):
            note('left', pid)
    except OSError:
        pass
if os.path.exists(name):
    os.remove(name)
worker = '''
import os, signal, sys, time
def end(*_):
    time.sleep(0.3)
    if os.path.exists('actor'):
        os.remove('actor')
    sys.exit()
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with open('actor.new', 'w') as file:
    file.write(str(os.getpid()))
os.rename('actor.new', 'actor')
time.sleep(600)
'''
subprocess.run(['setsid', '--fork', sys.executable, '-c', worker, 'as_a_worker'], cwd=files, check=True)
while not os.path.exists(name):
    time.sleep(0.01)
own = open(name).read()
note('workers', own)
code = train()
still = os.path.exists(name) and open(name).read() == own
note('names', 'kept' if still else 'lost')
sys.exit(1 if code else 0)
";

fn workers(run: &Run) -> Vec<i32> {
    run.noted("workers").iter().map(|pid| pid.parse().unwrap()).collect()
}

/// [process.orphans, process.detached, resume.names_by_name] A controller that is killed leaves its workers, some in sessions of their own, with GPUs and ports; the next one registers its workers, and an old one that ends deletes the new record by its name | All that an attempt started is ended before the next is launched, wherever it hides
#[test]
fn workers_that_outlive_their_controller() {
    let run = Run::new(WITH_A_WORKER).killed_once();
    run.run(&[]).expect(0).says("step 8 is proven");
    assert_eq!(run.trained(), [1, 2, 3, 4, 5, 5, 6, 7, 8]);
    assert_eq!(run.noted("left"), Vec::<String>::new());
    assert_eq!(run.noted("names"), ["kept", "kept"]);
    let pids = workers(&run);
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !alive(*pid)), "{pids:?}");
}

/// [process.signals] The trainers handle no signal: SIGTERM ends the controller and leaves its workers | A stop ends all of them, and ends when they have
#[test]
fn a_stop() {
    let run = Run::new(WITH_A_WORKER).set("miniature", "step_ms", json!(60_000));
    let supervisor = run.start(&[]);
    let worker = eventually("a worker", || workers(&run).first().copied());
    assert!(alive(worker));
    supervisor.signal(15);
    let ended = supervisor.wait();
    assert!(!alive(worker), "{}", ended.expect(143).text);
    wait_for("all processes are gone", || run.scene.living().is_empty());
    assert_eq!((run.launches(), run.trained()), (1, Vec::new()));
}

/// [resume.orphans_names] A new launch deletes all records of the trial: two runs of one name destroy each other | A second run of the same trial is refused with 5 before it launches anything
#[test]
fn two_runs_of_one_name() {
    let run = Run::new(WITH_A_WORKER);
    let first = run.start(&[]);
    eventually("a worker", || workers(&run).first().copied());
    run.run(&[]).expect(5).says("is already running");
    first.wait().expect(0);
    assert_eq!((run.launches(), run.noted("names")), (1, vec!["kept".to_owned()]));
}

/// [process.exit_code] The old launchers never end with 0: success looks like failure | Their exit code counts for nothing: the run is over when its last step is proven
#[test]
fn a_launcher_that_never_ends_well() {
    let run = Run::launcher("areal.infra.launcher.local", "train()\nsys.exit(1)\n");
    run.run(&[]).expect(0).says("step 8 is proven");
    assert_eq!((run.launches(), run.trained()), (1, (1..=8).collect()));
}

/// [process.tee] The exit status of their jobs is that of `tee`: always 0 | Success is what is proven on disk: an exit code of 0 before the last step is no end
#[test]
fn a_launcher_that_always_ends_well() {
    let run = Run::launcher("areal.infra.launcher.local", "train()\nsys.exit(0)\n").killed_once();
    run.run(&[]).expect(0).says("step 8 is proven");
    assert_eq!(run.trained(), [1, 2, 3, 4, 5, 5, 6, 7, 8]);
}

/// [process.two_hours] Every wait between processes lasts two hours before it fails | Silence is ended after `stall.startup`, and between steps after some times the duration of a step
#[test]
fn a_wait_that_does_not_end() {
    let run = Run::new("if attempt == 1:\n    time.sleep(600)\nsys.exit(train())\n");
    let run = run.set("supervisor", "stall", json!({ "startup": "5s" }));
    run.run(&[]).expect(0).says("step 8 is proven");
    assert!(run.launches() >= 2);
    assert_eq!(run.trained(), (1..=8).collect::<Vec<_>>());
}

/// [load.hang_in_controller] Under a controller the same error is never answered: it waits for two hours, and every call after that fails | A load that is not followed by a step is ended after `stall.startup`
#[test]
fn a_load_that_is_never_answered() {
    let hang = "\
if attempt == 1:
    say('Recover', 'INFO', 'Recovering from StepInfo(epoch=0, epoch_step=4, global_step=4, steps_per_epoch=1000).')
    time.sleep(600)
sys.exit(train())
";
    let run = Run::new(hang).set("supervisor", "stall", json!({ "startup": "5s", "minimum": "5s" }));
    run.saved(4);
    run.run(&[]).expect(0).says("step 8 is proven");
    assert!(run.launches() >= 2);
    let trained = run.trained();
    assert_eq!((trained.first(), trained.last()), (Some(&5), Some(&8)), "{trained:?}");
}

/// [load.base_exception] What a damaged checkpoint raises is no `Exception`: no handler of AReaL's sees it | Its words are known: what could not be loaded is not loaded again, and an older copy is put back
#[test]
fn a_load_that_raises() {
    let raise = "\
if attempt == 3:
    say('Recover', 'INFO', 'Recovering from StepInfo(epoch=0, epoch_step=4, global_step=4, steps_per_epoch=1000).')
    print('Traceback (most recent call last):', file=sys.stderr)
    print('  File \"x.py\", line 1, in load', file=sys.stderr)
    print('torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])', file=sys.stderr)
    sys.exit(1)
code = train()
if attempt == 1:
    wait_for_a_copy()
sys.exit(1 if code else 0)
";
    let run = Run::new(raise).until(2);
    run.run(&[]).expect(0);
    let run = run.until(8).killed_once();
    run.run(&[]).expect(0).says("step 8 is proven");
    assert_eq!(run.trained(), [1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8]);
}

/// [resume.clean_start] To begin anew on purpose, `recover_info` has to be deleted by hand | `run --fresh`: what is there goes aside, and nothing is deleted
#[test]
fn a_clean_start() {
    let run = Run::new("sys.exit(train())\n");
    run.saved(4);
    run.run(&["--fresh", "--yes"]).expect(0).says("start from scratch");
    assert_eq!(run.trained(), (1..=8).collect::<Vec<_>>());
    let aside = run.aside();
    assert!(aside.iter().any(|name| name.starts_with("live.")), "{aside:?}");
}

/// [signal.configuration] A configuration that it refuses ends it with 1 at each launch | Told from its words: no relaunch can help, the run stops with 3 at once
#[test]
fn a_configuration_that_areal_refuses() {
    let refused = "\
print('Traceback (most recent call last):', file=sys.stderr)
print('  File \"x.py\", line 1, in load', file=sys.stderr)
print(\"omegaconf.errors.ConfigKeyError: Key 'freq_step' not in 'RecoverConfig'\", file=sys.stderr)
sys.exit(1)
";
    let run = Run::new(refused);
    run.run(&[]).expect(3).says("ConfigKeyError");
    assert_eq!(run.launches(), 1);
}
