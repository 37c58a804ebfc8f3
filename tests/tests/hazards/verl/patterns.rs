//! What verl, torch, NCCL and Ray print when something goes wrong.

use crate::bench::{Bench, fixtures};
use serde_json::json;
use std::fs;

/// The class and action of an attempt that resumed, printed this and failed.
fn of(text: &str) -> (String, String) {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::write(bench.path("printed"), text).unwrap();
    bench
        .script("cat printed\nexit 1\n")
        .set("supervisor.retries", json!(0))
        // It would wait for room for half an hour.
        .set("supervisor.policy", json!({"disk.full": "stop"}));
    let said = bench.run(&[]);
    assert!([3, 6].contains(&said.code), "{said:#?}");
    bench.diagnosis()
}

#[track_caller]
fn is(text: &str, class: &str, action: &str) {
    let found = of(text);
    assert_eq!((found.0.as_str(), found.1.as_str()), (class, action), "{text}");
}

/// The log of a genuine run, without its records: it began from scratch, and this one resumes.
fn genuine(name: &str) -> String {
    let log = fs::read_to_string(fixtures().join(format!("logs/{name}.rank0.log"))).unwrap();
    let lines = log.lines().filter(|line| !line.contains("step:"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A line as the end of a traceback in one of Ray's workers.
fn raised(line: &str) -> String {
    let prefix = "\u{1b}[36m(WorkerDict pid=4711, ip=10.0.0.2)\u{1b}[0m ";
    format!("{prefix}Traceback (most recent call last):\n{prefix}  File \"x.py\", line 1, in f\n{prefix}{line}\n")
}

/// [pattern.gpu_memory] `torch.OutOfMemoryError: CUDA out of memory` | `mem.cuda_oom`: launched once more, then the run stops
#[test]
fn gpu_memory() {
    is(
        &raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        "mem.cuda_oom",
        "relaunch_once",
    );
    // Of a genuine run.
    let log = genuine("sft_cuda_oom");
    is(&log, "mem.cuda_oom", "relaunch_once");
}

/// [pattern.host_memory] Ray's memory monitor: `ray.exceptions.OutOfMemoryError`, `node running low on memory` | `mem.ray_oom`: launched once more, then the run stops
#[test]
fn host_memory() {
    is(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n",
        "mem.ray_oom",
        "relaunch_once",
    );
    is(
        "7 worker(s) were killed due to the node running low on memory.\n",
        "mem.ray_oom",
        "relaunch_once",
    );
}

/// [pattern.nccl_timeout] NCCL's watchdog, ten minutes after a rank stopped answering | A consequence of what happened to the other rank: never the cause where there is another line
#[test]
fn nccl_timeout() {
    let watchdog = "[rank0]:[E1122 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580)\n";
    let ends = "[rank0]:[E1122 ProcessGroupNCCL.cpp:684] [Rank 0] Some NCCL operations have failed or timed out. To avoid data inconsistency, we are taking the entire process down.\n";
    is(&format!("{watchdog}{ends}"), "comm.nccl_timeout", "kill");
    let cause = raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.");
    is(&format!("{watchdog}{ends}{cause}"), "mem.cuda_oom", "relaunch_once");
}

/// [pattern.nccl] `NCCL error`, `ncclRemoteError`, `ncclSystemError`: a rank or the network is gone | A consequence, as above
#[test]
fn nccl() {
    let line = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2091, remote process exited or there was a network error, NCCL version 2.27\nncclRemoteError: A call failed possibly due to a network error\n";
    is(line, "comm.nccl_remote", "relaunch_later");
    is(
        &format!(
            "{line}{}",
            raised("RuntimeError: CUDA error: an illegal memory access was encountered")
        ),
        "gpu.app_fault",
        "relaunch_once",
    );
}

/// [pattern.worker_death] `ActorDiedError`, `The actor died unexpectedly`, `ActorUnavailableError` (a connection to it broke), `Worker exit type: SYSTEM_ERROR` | A consequence: an earlier line is looked for first
#[test]
fn worker_death() {
    let died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n";
    is(died, "ray.actor_died", "relaunch_later");
    let unheard = "ray.exceptions.ActorUnavailableError: The actor d5a1 is unavailable: The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14.\n";
    is(unheard, "ray.actor_died", "relaunch_later");
    is(
        &format!("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n{died}"),
        "mem.ray_oom",
        "relaunch_once",
    );
}

/// [pattern.node_loss] `NodeDiedError`, an `ActorUnavailableError` that names a node, `The node … has been marked dead` | `node.lost`: the machine is the cause, and it is launched again later
#[test]
fn node_loss() {
    for line in [
        "The node with node id: 3f1c and address: 10.0.0.2 has been marked dead because the detector has missed too many heartbeats from it.\n",
        "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable.\n",
        "ray.exceptions.ActorUnavailableError: The actor 5f01 is unavailable: The node of the actor does not answer.\n",
    ] {
        is(line, "node.lost", "node");
    }
}

/// [pattern.disk_full] `No space left on device`, `Disk quota exceeded`, errno 28 and 122 | `disk.full`: launched again when there may be space
#[test]
fn disk_full() {
    for line in [
        "OSError: [Errno 28] No space left on device",
        "OSError: [Errno 122] Disk quota exceeded",
    ] {
        is(&raised(line), "disk.full", "wait");
    }
    let log = genuine("sft_disk_full");
    is(&log, "disk.full", "wait");
}

/// [pattern.gpu_fault] Illegal memory access, uncorrectable ECC, `Xid` in the kernel's words | Told apart: a program's fault is tried once more, the device's later
#[test]
fn gpu_fault() {
    is(
        &raised("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        "gpu.app_fault",
        "relaunch_once",
    );
    is(
        &raised("RuntimeError: CUDA error: unspecified launch failure"),
        "gpu.app_fault",
        "relaunch_once",
    );
    is(
        &raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        "gpu.ecc_uncorrectable",
        "node",
    );
    is(
        "NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.\n",
        "gpu.fallen_off_bus",
        "node",
    );
}

/// [pattern.hydra_wrapper] `Error executing job with overrides` stands around every exception | It is no cause: the exception is
#[test]
fn hydra_wrapper() {
    let text = format!(
        "Error executing job with overrides: ['trainer.nnodes=1']\n{}",
        raised("OSError: [Errno 28] No space left on device")
    );
    is(&text, "disk.full", "wait");
    is(
        "Error executing job with overrides: ['trainer.nnodes=1']\n",
        "exit.unexplained",
        "relaunch_later",
    );
}

/// [pattern.configuration] `Could not override`, `Key … is not in struct`, `OverrideParseException`, `Ambiguous value for argument` | `cfg.args`: no relaunch can help, the run stops with 3
#[test]
fn configuration() {
    for line in [
        "Could not override 'trainer.sav_freq'.\n",
        "Key 'sav_freq' is not in struct\n",
        "hydra.errors.OverrideParseException: mismatched input\n",
        "Ambiguous value for argument 'a=b,c'\n",
    ] {
        is(line, "cfg.args", "stop");
    }
}

/// [pattern.old_layout] `Detected deprecated Megatron checkpoint layout`, `Found legacy PEFT checkpoint` | `ckpt.old_layout`: the step has to be migrated, no relaunch can help
#[test]
fn old_layout() {
    for line in [
        "RuntimeError: Detected deprecated Megatron checkpoint layout (legacy dist_ckpt/ directly under /c/global_step_2/actor).",
        "RuntimeError: Found legacy PEFT checkpoint at /c/global_step_2/actor/adapter_checkpoint.",
    ] {
        is(&raised(line), "ckpt.old_layout", "stop");
    }
}

/// [pattern.shard_missing] `No such file or directory: '…_world_size_W_rank_R.pt'` | `ckpt.corrupt`: that step is distrusted and an older one taken; that the number of ranks changed is found before the launch
#[test]
fn shard_missing() {
    let line =
        "FileNotFoundError: [Errno 2] No such file or directory: '/c/global_step_2/actor/model_world_size_2_rank_0.pt'";
    is(&raised(line), "ckpt.corrupt", "fall_back");
}

/// [pattern.megatron_incomplete] `is not a distributed checkpoint`, `Common file … does not exist`, `Checkpoint path … does not exist` | `ckpt.corrupt`: that step is distrusted and an older one taken
#[test]
fn megatron_incomplete() {
    for line in [
        "megatron.core.dist_checkpointing.core.CheckpointingException: /c/model/dist_ckpt is not a distributed checkpoint",
        "megatron.core.dist_checkpointing.core.CheckpointingException: Common file /c/model/dist_ckpt/common.pt does not exist",
        "AssertionError: Checkpoint path /c/model/dist_ckpt does not exist.",
    ] {
        is(&raised(line), "ckpt.corrupt", "fall_back");
    }
}

/// [pattern.pointer] `invalid literal for int() with base 10` while it looks for a step | An empty pointer is mended and the run goes on; anything else there stops it
#[test]
fn pointer() {
    is(
        &raised("ValueError: invalid literal for int() with base 10: ''"),
        "ckpt.tracker_torn",
        "relaunch",
    );
    is(
        &raised("ValueError: invalid literal for int() with base 10: '2/actor'"),
        "code.type_key",
        "stop",
    );
}

/// [pattern.hdfs] `load from hdfs is not implemented yet` | `cfg.args`: no relaunch can help, the run stops with 3
#[test]
fn hdfs() {
    is(
        &raised("NotImplementedError: load from hdfs is not implemented yet"),
        "cfg.args",
        "stop",
    );
}

/// [pattern.ray_address] `Failed to connect to Ray cluster at …`: a file in the temporary directory names a cluster that is dead; one that lives is joined without a word | A run on one machine gets a cluster of its own in a directory of its own; where one is meant, `ray.gcs`: launched again later
#[test]
fn ray_address() {
    Bench::ppo()
        .plan()
        .passes("++ray_kwargs.ray_init.address=local")
        .finds("ray_own");
    is(
        &raised("ConnectionError: Failed to connect to Ray cluster at 10.0.0.9:6379"),
        "ray.gcs",
        "relaunch_later",
    );
}

/// [pattern.gpus_missing, failure.fewer_gpus] `Total available GPUs … is less than total desired GPUs`: the cluster lost a node, or never had it | `ray.resources`: launched again later, within the retries
#[test]
fn gpus_missing() {
    let line = "ValueError: Total available GPUs 8.0 is less than total desired GPUs 16";
    is(&raised(line), "ray.resources", "relaunch_later");
}

/// [failure.placement_group] The name of a placement group is still taken when a run is started again in its cluster | A cluster of the run's own ends with each attempt; in another one, `ray.name_taken`: launched again later, when Ray has let it go
#[test]
fn placement_group() {
    let line =
        "ValueError: Failed to create placement group '3f1c' because name 'global_poolverl_group_8:0' already exists.";
    is(&raised(line), "ray.name_taken", "relaunch_later");
}

/// [pattern.scratch] `Training from scratch` | A fault where a resume was ordered, and nothing to remark where none was
#[test]
fn scratch() {
    is("Training from scratch\n", "ckpt.missing_part", "stop");
    let mut bench = Bench::ppo();
    bench
        .script("echo 'Training from scratch'\nexit 1\n")
        .set("supervisor.retries", json!(0));
    bench.run(&[]).tells(6, &[]);
    assert_eq!(bench.diagnosis().0, "exit.unexplained");
}

/// [pattern.ray_prefix] Ray puts name, pid and address before each line, colours it and collapses repeats | Prefix and colour are taken off before a line is read, and `RAY_DEDUP_LOGS=0` is set
#[test]
fn ray_prefix() {
    let line = "\u{1b}[36m(TaskRunnerV1 pid=71, ip=10.0.0.1)\u{1b}[0m Could not override 'a'.\n";
    is(line, "cfg.args", "stop");
    Bench::ppo()
        .plan()
        .exports("RAY_DEDUP_LOGS", "0")
        .exports("HYDRA_FULL_ERROR", "1");
}
