//! Batch scripts of Slurm's, and what is said of its jobs.

use crate::render::{decided, fact, launched};
use crate::world::{Said, World};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use supervise::render::record::words;
use supervise_core::event::{EventKind, OperatorRequest};
use supervise_core::id::{Ms, WallMs};
use supervise_core::journal::record::{Decision, RunOutcome};

const DEMO: &str = "trainer:
  default_local_dir: ckpt
  total_training_steps: 8
  save_freq: 2
  n_gpus_per_node: 8
algorithm:
  adv_estimator: grpo
supervisor:
  trainer: verl
  command: [/bin/true, '{overrides}']
  grace: {save: 10m, stop: 60s}
";

#[test]
fn the_example_is_what_the_command_prints() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_supervise")).parent().unwrap();
    let home = tempfile::tempdir().unwrap();
    // Called by its name, as a person does.
    let out = Command::new("supervise")
        .args(["sbatch", "examples/configs/verl_sft.yaml", "--", "--time=24:00:00"])
        .current_dir(top)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    // The example is of no machine.
    let here = top.canonicalize().unwrap();
    let text = text.replace(here.to_str().unwrap(), "/path/to/supervise");
    let example = top.join("examples/slurm/supervise.sbatch");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&example, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&example).unwrap(), text);
}

#[test]
fn a_job_that_could_only_be_refused_is_not_written() {
    let world = World::new();
    let yaml = "trainer:\n  default_local_dir: ckpt\n  nnodes: 2\n  n_gpus_per_node: 8\n  total_training_steps: 8\n";
    world.write("sft.yaml", yaml);
    let sbatch = |command: &[&str]| {
        let args = [&["sbatch", "sft.yaml", "--", "--"], command].concat();
        world.run(&args)
    };
    let sft = ["-m", "verl.trainer.sft_trainer"];
    sbatch(&[&["torchrun", "--nproc-per-node=8"], &sft[..]].concat())
        .refuses(78, &["2 machines are asked for", "supervises a run on one"]);
    // Its ranks are started on both nodes, by us: that needs a job.
    let said = sbatch(&[&["python3"], &sft[..]].concat());
    said.tells(0, &["#SBATCH --nodes=2\n", "#SBATCH --gres=gpu:8\n"]);
    assert!(!said.err.contains("a Ray cluster"), "{said:?}");
    let run = world.run(&["run", "sft.yaml", "--", "python3", "-m", "verl.trainer.sft_trainer"]);
    run.refuses(78, &["needs 2 nodes", "no Slurm job", "supervise sbatch"]);
    // A login node is told the plan as well.
    let plan = world.run(&["plan", "sft.yaml", "--", "python3", "-m", "verl.trainer.sft_trainer"]);
    plan.tells(78, &["would be refused here", "needs 2 nodes", "no Slurm job"]);
}

#[test]
fn a_command_for_one_node_of_several_is_not_submitted_alone() {
    let world = World::new();
    let flags = "t.py --output_dir out --save_steps 2 --logging_steps 1";
    let asked = |before: &str, command: &str| {
        let words = format!("sbatch {before} -- --time=1-0 -- {command} {flags}");
        world.run(&words.split_whitespace().collect::<Vec<_>>())
    };
    let refused = asked("", "torchrun --nnodes=2 --nproc_per_node=8");
    refused.refuses(78, &["starts the ranks of one node", "gang.nodes=2", "put srun before"]);
    asked("", "accelerate launch --num_machines 4 --machine_rank 0").refuses(78, &["the training has 4"]);
    // Both hints work.
    asked("", "srun torchrun --nnodes=2 --rdzv_backend=c10d").tells(0, &["exec "]);
    let gang = "--set supervisor.gang.launcher=gang --set supervisor.gang.nodes=2 --set supervisor.gang.workers=8";
    asked(gang, "python3").tells(0, &["#SBATCH --nodes=2"]);
    let torchrun = world.path("torchrun");
    fs::write(&torchrun, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&torchrun, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(world.path("t.py"), "").unwrap();
    let plan = format!("plan -- {torchrun} --nnodes 2 --node_rank 1 {flags}");
    let plan = world.run(&plan.split_whitespace().collect::<Vec<_>>());
    plan.tells(0, &["node 1 of 2", "[one_node]"]);
}

#[test]
fn the_script_asks_for_what_the_yaml_says() {
    let world = World::new();
    world.write("my run.yaml", DEMO);
    let said = world.run(&["sbatch", "my run.yaml", "--set", "trainer.nnodes=2", "--", "-p", "gpu"]);
    said.tells(
        0,
        &[
            "#SBATCH --job-name=my-run\n",
            "#SBATCH --nodes=2\n",
            "#SBATCH --gres=gpu:8\n",
            "#SBATCH --requeue\n",
            "#SBATCH --open-mode=append\n",
            "#SBATCH --signal=B:USR1@720\n",
            "#SBATCH -p gpu\n",
            "supervise run 'my run.yaml' --set trainer.nnodes=2\n",
        ],
    );
    // In the job Ray is started on both, by us.
    assert!(!said.err.contains("a Ray cluster over all of them"), "{said:?}");
    let theirs = [
        "sbatch",
        "my run.yaml",
        "--set",
        "trainer.nnodes=2",
        "--set",
        "supervisor.gang.launcher=driver",
    ];
    let said = world.run(&theirs);
    assert!(said.err.contains("a Ray cluster over all of them"), "{said:?}");
    let cpus = world.run(&["sbatch", "my run.yaml", "--set", "trainer.device=cpu", "--name", "x"]);
    cpus.tells(0, &["#SBATCH --job-name=x\n", "#SBATCH --nodes=1\n"]);
    assert!(!cpus.out.contains("gres"), "{cpus:?}");
    let command = world.run(&["sbatch", "my run.yaml", "--", "-t", "5", "--", "/bin/echo", "a b"]);
    command.tells(
        0,
        &["#SBATCH -t 5\n", "supervise run 'my run.yaml' -- /bin/echo 'a b'\n"],
    );
}

#[test]
fn options_that_work_against_the_run_are_told() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let told = |set: &[&str], options: &[&str]| {
        let said = world.run(&[&["sbatch", "ppo.yaml"], set, &["--"], options].concat());
        assert_eq!(said.code, 0, "{said:?}");
        said.err
    };
    let two = ["--set", "trainer.nnodes=2"];
    let spare = ["--set", "trainer.nnodes=2", "--set", "supervisor.gang.spares=1"];
    let cases: [(&[&str], &[&str], &str); 15] = [
        (
            &two,
            &["--nodes=1"],
            "--nodes=1: the run needs 2 nodes, and is refused with 1",
        ),
        (&[], &["-N", "4"], "-N 4: the run uses 1 of them"),
        (&spare, &["-N2"], "-N 2: no node is left for `gang.spares`"),
        (
            &[],
            &["--gres=gpu:4"],
            "--gres=gpu:4: the run needs 8 GPUs on each node",
        ),
        (&[], &["--gpus-per-node=h100:1"], "the run needs 8 GPUs on each node"),
        (&two, &["-G", "8"], "-G 8: the run needs 16 GPUs in all"),
        (
            &[],
            &["--chdir=/tmp"],
            "--chdir=/tmp: paths of the run are relative to it, and no more to /",
        ),
        (
            &[],
            &["--export=NONE"],
            "--export=NONE: the job has nothing else of this shell's environment",
        ),
        (&[], &["--export", "HOME"], "--export=HOME: the job has nothing else"),
        (
            &[],
            &["-t12"],
            "-t 12: 12m is no more than the 12m that are kept for the last save",
        ),
        (&[], &["--signal=B:USR1@60"], "720 leave it its time"),
        (&[], &["--signal=USR1@900"], "it counts instead of B:USR1@720"),
        (&[], &["--open-mode=truncate"], "loses the output from before"),
        (
            &[],
            &["--array=0-3"],
            "--array=0-3: each task of the array is the same run",
        ),
        (
            &["--set", "supervisor.gang.spares=1"],
            &["--exclusive"],
            "gang.spares: 1: it counts where ranks or Ray are started on several nodes",
        ),
    ];
    for (set, options, note) in cases {
        let err = told(set, options);
        assert!(err.contains(note), "{options:?}: {err}");
    }
    let fine = [
        "--nodes=2",
        "--time=1-0",
        "--export=ALL,WANDB_MODE=offline",
        "--exclusive",
    ];
    assert_eq!(told(&two, &fine), "");
}

#[test]
fn a_script_is_written_once() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let write = ["sbatch", "ppo.yaml", "--output", "ppo.sbatch"];
    world
        .run(&write)
        .tells(0, &["ppo.sbatch is written", "sbatch ppo.sbatch"]);
    world.run(&write).tells(0, &["is written"]);
    world.write("ppo.sbatch", "somebody's own");
    world.run(&write).refuses(64, &["says something else", "--force"]);
    world
        .run(&[&write[..], &["--force"]].concat())
        .tells(0, &["is written"]);
    let text = fs::read_to_string(world.path("ppo.sbatch")).unwrap();
    assert_eq!(
        text.lines().last(),
        world.run(&["sbatch", "ppo.yaml"]).out.lines().last()
    );
}

#[test]
fn bad_input_is_refused_before_anything_is_submitted() {
    let world = World::new();
    world.write("ppo.yaml", &DEMO.replace("save_freq: 2", "save_freq: [2"));
    world.run(&["sbatch", "ppo.yaml"]).refuses(78, &["ppo.yaml"]);
    world.write("ppo.yaml", DEMO);
    world.run(&["sbatch"]).refuses(64, &["expected the trainer's YAML"]);
    world
        .run(&["sbatch", "ppo.yaml", "--name", "a/b"])
        .refuses(64, &["--name a/b", "expected"]);
    world.run(&["sbatch", "ppo.yaml", "--", "gpu"]).refuses(
        64,
        &["expected options of sbatch", "gpu", "sbatch ppo.yaml -- -- COMMAND"],
    );
    // The second `--` was forgotten.
    world
        .run(&["sbatch", "ppo.yaml", "--", "--time=24:00:00", "python3", "train.py"])
        .refuses(
            64,
            &["expected options of sbatch", "python3", "sbatch ppo.yaml -- -- COMMAND"],
        );
    world
        .run(&["sbatch", "ppo.yaml", "--", "--wrap=true"])
        .refuses(64, &["--wrap"]);
}

#[test]
fn what_is_no_regular_file_is_neither_read_nor_replaced() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let made = Command::new("mkfifo").arg(world.path("pipe")).status().unwrap();
    assert!(made.success());
    fs::create_dir(world.path("dir")).unwrap();
    for (path, is) in [("/dev/null", "a device"), ("pipe", "a pipe"), ("dir", "a directory")] {
        for force in [&[][..], &["--force"]] {
            world
                .run(&[&["sbatch", "ppo.yaml", "--output", path][..], force].concat())
                .refuses(64, &[path, is, "no regular file", "name a file"]);
        }
    }
    // A unit is written by the same code.
    let unit = "etc/systemd/user/supervise-ppo.service";
    for (is, refusal) in [("pipe", "is a pipe"), ("yaml", "is the trainer's YAML")] {
        world.write("etc/systemd/user/beside", "");
        let _ = fs::remove_file(world.path(unit));
        match is {
            "pipe" => fs::rename(world.path("pipe"), world.path(unit)).unwrap(),
            _ => fs::hard_link(world.path("ppo.yaml"), world.path(unit)).unwrap(),
        }
        let out = world
            .command()
            .args(["install", "--systemd", "--user", "ppo.yaml", "--force"])
            .env("XDG_CONFIG_HOME", world.path("etc"))
            .output()
            .unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(64) && err.contains(refusal), "{err}");
    }
    assert_eq!(fs::read_to_string(world.path("ppo.yaml")).unwrap(), DEMO);
    world
        .run(&["diagnose", "/dev/null"])
        .refuses(64, &["/dev/null is a device"]);
}

#[test]
fn the_configuration_is_not_written_over() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    fs::hard_link(world.path("ppo.yaml"), world.path("other")).unwrap();
    for path in ["ppo.yaml", "./ppo.yaml", "other"] {
        world
            .run(&["sbatch", "ppo.yaml", "--output", path, "--force"])
            .refuses(64, &["is the trainer's YAML ppo.yaml itself", "name another file"]);
    }
    assert_eq!(fs::read_to_string(world.path("ppo.yaml")).unwrap(), DEMO);
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    world
        .run(&["sbatch", "ppo.yaml", "--output", "jbos/ppo.sbatch"])
        .refuses(69, &["there is no directory jbos", "mkdir -p jbos"]);
    assert!(!world.path("jbos").exists());
}

#[test]
fn the_script_runs_where_it_was_written() {
    let world = World::new();
    world.write("my run/ppo.yaml", DEMO);
    let here = fs::canonicalize(world.path("my run")).unwrap();
    let out = world
        .command()
        .args(["sbatch", "ppo.yaml", "--output", "-", "--", "-D", "/elsewhere"])
        .current_dir(&here)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let ours = text.find(&format!("#SBATCH \"--chdir={}\"\n", here.display()));
    let theirs = text.find("#SBATCH -D /elsewhere\n");
    assert!(ours.is_some() && ours < theirs, "{text}");
    assert!(!here.join("-").exists(), "`-` is standard output");
}

#[test]
fn what_may_go_wrong_on_the_node_is_noted() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let quiet = world.run(&["sbatch", "ppo.yaml"]);
    quiet.tells(0, &["exec "]);
    assert_eq!(quiet.err, "");
    let said = world.run(&[
        "sbatch",
        "ppo.yaml",
        "--",
        "--signal=TERM@5",
        "--no-requeue",
        "--array",
        "0-3",
        "--",
        "no-such-program",
    ]);
    said.tells(0, &["exec ", "#SBATCH --array 0-3\n"]);
    for note in [
        "note: --signal=TERM@5: ",
        "note: --no-requeue: ",
        "note: --array=0-3: ",
        "`no-such-program` was not found in PATH",
    ] {
        assert_eq!(said.err.matches(note).count(), 1, "{note}: {said:?}");
    }
    world.write(
        "bare.yaml",
        &DEMO
            .replace("  command: [/bin/true, '{overrides}']\n", "")
            .replace("trainer: verl", "trainer: plain"),
    );
    world
        .run(&["sbatch", "bare.yaml"])
        .refuses(78, &["supervise sbatch bare.yaml -- -- COMMAND"]);
}

/// An `sbatch` that does as `script` says.
fn with_sbatch(world: &World, script: &str) -> Said {
    let sbatch = world.write("bin/sbatch", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&sbatch, fs::Permissions::from_mode(0o755)).unwrap();
    let out = world
        .command()
        .args(["sbatch", "ppo.yaml", "--submit", "--", "-t", "5"])
        .env("PATH", format!("{}:/usr/bin:/bin", world.path("bin")))
        .output()
        .unwrap();
    Said {
        code: out.status.code().unwrap(),
        out: String::from_utf8(out.stdout).unwrap(),
        err: String::from_utf8(out.stderr).unwrap(),
    }
}

#[test]
fn the_users_own_sbatch_submits_it() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    with_sbatch(&world, r#"cat >got; echo "$@" >args; echo "17;cluster""#)
        .tells(0, &["job 17 is submitted", "squeue -j 17"]);
    let script = fs::read_to_string(world.path("got")).unwrap();
    assert!(
        script.contains("#SBATCH -t 5\n") && script.contains("\nexec "),
        "{script}"
    );
    assert_eq!(fs::read_to_string(world.path("args")).unwrap(), "--parsable\n");
    with_sbatch(&world, "echo 'sbatch: error: invalid partition' >&2; exit 1")
        .refuses(69, &["not submitted", "invalid partition", "--output FILE"]);
    with_sbatch(&world, "echo hello").refuses(69, &["cannot be understood", "hello"]);
}

#[test]
fn without_an_sbatch_the_error_says_what_else_there_is() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let nowhere: PathBuf = world.path("bin").into();
    let out = world
        .command()
        .args(["sbatch", "ppo.yaml", "--submit"])
        .env("PATH", nowhere)
        .output()
        .unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(69), "{err}");
    assert!(err.contains("sbatch: ") && err.contains("--output FILE"), "{err}");
}

#[test]
fn a_machine_that_is_taken_away_is_told_of() {
    let s = launched();
    let job = |restarts, ends| EventKind::Allocation {
        job: "17".to_owned(),
        restarts,
        ends,
        left: None,
    };
    for (kind, says) in [
        (job(0, None), "this is job 17 of Slurm's; no end is known"),
        (
            job(2, Some(WallMs(0))),
            "this is job 17 of Slurm's, started again 2 times; it ends at 1970-01-01",
        ),
        (
            EventKind::Operator(OperatorRequest::HandBack {
                by: "SIGUSR1".into(),
                left: Some(Ms::secs(300)),
            }),
            "SIGUSR1: the machine is taken away in 5m",
        ),
    ] {
        let told = words(&fact(kind.clone()), &s).unwrap_or_default();
        assert!(told.starts_with(says), "{kind:?}: {told}");
    }
    for (what, says) in [
        (
            Decision::HandBack {
                by: "SIGUSR1".to_owned(),
                until: None,
            },
            "attempt 2: stops in time, to go on when the scheduler starts it again: why",
        ),
        (
            Decision::Finish {
                outcome: RunOutcome::OutOfTime,
            },
            "preempted: the next start resumes: why",
        ),
    ] {
        assert_eq!(words(&decided(what, "why"), &s).as_deref(), Some(says));
    }
}
