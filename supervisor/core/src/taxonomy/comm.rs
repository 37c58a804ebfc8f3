//! Communication between ranks: mostly the echo of another's death.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "comm.port_in_use",
        Kind::Transient,
        Some(Action::Relaunch),
        "End what holds the port, or choose another.",
    )
    .lines(&[
        holds("EADDRINUSE"),
        line("Address already in use", r"Address already in use"),
        line("errno: 98|Errno 98", r"errno: 98\b|\[Errno 98\]"),
        line("in use|occupied|not available|taken", r"\bport \d+ is (?:already )?(?:in use|occupied|not available|taken)"),
    ])
    .errors(&["EADDRINUSE", "Address already in use"])
    .examples("OSError: [Errno 98] Address already in use", "port 29500 is free"),
    class(
        "comm.desync",
        Kind::Deterministic,
        Some(Action::RelaunchOnce),
        "Find the rank whose program took another way: the collectives of the ranks do not match.",
    )
    .lines(&[
        holds("Detected mismatch between collectives"),
        line("collective", r"different (?:shape|dtype|size)s?.{0,60}collective|collective.{0,80}(?:different (?:shape|dtype)|mismatch(?:ed)? (?:shape|dtype|size))"),
        line("desync", r"\bdesync(?:hroni[sz]ed)?\b.{0,60}(?:detected|rank|error|debug)|Some NCCL operations have failed or timed out.*desync"),
        line("Detected inconsistent", r"Detected inconsistent (?:collective|tensor)"),
        line("while rank", r"ranks? .{0,40}(?:calls|called|entered) .{0,40}while rank"),
    ])
    .examples(
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=12, OpType=BROADCAST)",
        "TORCH_NCCL_DESYNC_DEBUG=1",
    ),
    class(
        "comm.gloo",
        Kind::Deterministic,
        Some(Action::Stop),
        "Name the network interface (GLOO_SOCKET_IFNAME), or correct the name that is set.",
    )
    .lines(&[
        line("ifa != nullptr|ifa_|Unable to find", r"ifa != nullptr|\bifa_\w+|Unable to find (?:address|interface) for"),
        line("interface|ifname", r"(?:[Gg]loo|GLOO|makeDevice).{0,120}(?:interface|ifname).{0,60}(?:not found|unable|failed|invalid|no such)|Unable to find interface"),
        line("GLOO_SOCKET_IFNAME", r"(?:[Ee]rror|failed|[Ii]nvalid|unable).{0,120}GLOO_SOCKET_IFNAME"),
    ])
    .examples(
        "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find interface for: eth9",
        "GLOO_SOCKET_IFNAME=eth0",
    ),
    class(
        "comm.init",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Check the network between the nodes: addresses, interfaces, firewalls; the ranks never found each other.",
    )
    .lines(&[
        line("init_process_group", r"init_process_group.{0,120}(?:[Tt]imed? ?out|failed|[Ee]rror)|(?:[Tt]imed? ?out|failed).{0,80}init_process_group"),
        line("initializing process group", r"[Tt]imed? ?out initializing process group"),
        line("Bootstrap", r"Bootstrap ?: (?:no socket interface found|.{0,40}failed)"),
        line("no socket interface found", r"no socket interface found"),
        line("ranks to join|waiting for|wait for", r"(?:waiting for|wait for) .{0,40}ranks? .{0,40}(?:to join|timed? ?out)"),
    ])
    .examples(
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1",
        "init_process_group done in 2.1 s",
    ),
    class(
        "comm.store",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Look at the node of rank 0, which keeps the store; relaunch with another port.",
    )
    .lines(&[
        holds("DistStoreError"),
        line("waiting for clients", r"Timed out after \d+ seconds waiting for clients\. \d+/\d+ clients joined"),
        line("TCPStore|recvValue|recvVector|sendBytes|recvBytes|recvString|failed to recv", r"TCPStore.{0,160}(?:timed? ?out|timeout|recv failed|failed to recv|connection (?:was )?(?:reset|closed))|(?:recvValue|recvVector|sendBytes|recvBytes|recvString).{0,120}(?:failed|TCPStore)|failed to recv, got 0 bytes"),
        line("Rendezvous", r"RendezvousTimeoutError|RendezvousConnectionError|RendezvousClosedError|RendezvousStateError|RendezvousGracefulExitError"),
        line("c10d store", r"The connection to the C10d store has failed"),
        line("wait timeout|Socket Timeout|Timeout waiting for key", r"wait timeout after \d+ms, keys: |Socket Timeout.{0,40}store|Timeout waiting for key"),
        line("client socket", r"The client socket has timed out after \d+m?s while trying to connect to"),
    ])
    .examples(
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        "TCPStore started on port 29500",
    ),
    class(
        "comm.nccl_timeout",
        Kind::Cascade,
        Some(Action::Kill),
        "Find the rank that is not in that collective: stacks, flight recorder dumps, and what it printed last.",
    )
    .lines(&[
        line("Watchdog caught collective operation timeout", r"Watchdog caught collective operation timeout"),
        line("ProcessGroupNCCL", r"ProcessGroupNCCL.*(?:timed out|Terminating the process|heartbeat monitor (?:timed|thread)|watchdog (?:got stuck|hang)|stuck)"),
        line("WorkNCCL(", r"WorkNCCL\(.*(?:timed? ?out|ran for \d+ milliseconds)"),
        line("To avoid data inconsistency", r"To avoid data inconsistency, we are taking the entire process down"),
        line("Some NCCL operations have failed", r"Some NCCL operations have failed or timed out"),
        line("dump signal due to", r"Received a dump signal due to a collective timeout"),
        line("HCCL", r"HCCL (?:error|function error).{0,160}(?:times? ?out|EI0002)"),
        holds("Application timeout caused pair closure"),
        holds("failed to pass monitoredBarrier"),
        line("barrier|Timed out waiting", r"(?:monitoredBarrier|barrier).{0,80}(?:[Tt]imed? ?out|failed to pass|Application timeout)|Timed out waiting \d+ms for (?:recv|send) operation"),
        line("gloo|ProcessGroupWrapper", r"(?:[Gg]loo|ProcessGroupGloo|ProcessGroupWrapper).{0,160}(?:[Tt]imed? ?out|timeout)"),
    ])
    .examples(
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
        "ProcessGroupNCCL initialization options: size: 8, TIMEOUT(ms): 600000",
    ),
    class(
        "comm.nccl_remote",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Find the rank that ended first; where none did, look at the network between the nodes.",
    )
    .lines(&[
        holds("ncclRemoteError"),
        line("ncclSystemError", r"ncclSystemError"),
        line("NCCL", r"NCCL (?:error|Error|WARN).{0,200}(?:remote process exited|unhandled (?:system|cuda) error|connection closed by remote|Connection closed by remote peer|Call to (?:recv|send|connect)\w* (?:from|to|failed))"),
        line("unhandled", r"unhandled (?:system|cuda) error \(run with NCCL_DEBUG"),
        line("DistBackendError", r"DistBackendError"),
        line("ncclUnhandledCudaError|ncclInternalError|ncclInvalidUsage", r"ncclUnhandledCudaError|ncclInternalError|ncclInvalidUsage"),
        line("NCCL communicator", r"NCCL communicator (?:was|has been) aborted"),
        line("NET/Socket|socketProgress|ncclSocket|misc/socket", r"(?:NET/Socket|socketProgress|ncclSocket\w*|misc/socket).{0,160}(?:[Cc]onnection (?:closed|reset)|failed|[Bb]roken pipe)"),
    ])
    .examples(
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error, NCCL version 2.27.5",
        "NCCL version 2.27.5+cuda12.9",
    ),
    class(
        "comm.conn",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Find the process that ended first; where none did, look at the network.",
    )
    .lines(&[
        line("Gloo connectFullMesh failed", r"Gloo connectFullMesh failed"),
        line("onnection", r"[Cc]onnection (?:closed by peer|reset by peer|refused)"),
        line("Connection reset|ConnectionReset", r"ConnectionResetError|Connection reset"),
        line("ConnectionRefusedError", r"ConnectionRefusedError"),
        line("ConnectionAbortedError", r"ConnectionAbortedError"),
        line("RemoteDisconnected|Remote end closed", r"RemoteDisconnected\b|Remote end closed connection without response"),
        line("Broken pipe", r"Broken pipe"),
        line("BrokenPipeError", r"BrokenPipeError"),
        line("socketStartConnect", r"socketStartConnect.{0,80}(?:failed|refused|error|timed out)"),
        line("Connection timed out|Errno 110", r"Connection timed out|Errno 110\]"),
    ])
    .errors(&[
        "Connection reset",
        "Connection closed",
        "Connection refused",
        "BrokenPipeError",
        "DistBackendError",
        "DistNetworkError",
        "EOFError",
    ])
    .examples(
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:51234",
        "connection to the store is up",
    ),
    class(
        "comm.launcher_teardown",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Look above: the launcher ends the others because one of them failed.",
    )
    .lines(&[
        line("Sending process", r"Sending process \d+ closing signal"),
        holds("ChildFailedError"),
        holds("torch.multiprocessing.spawn.ProcessRaisedException"),
        holds("torch.multiprocessing.errors.ProcessRaisedException"),
        line("WorkerFailedError", r"WorkerFailedError: Worker .{1,60} failed with exit code"),
        line("ProcessExitedException", r"ProcessExitedException"),
        line("Unable to shutdown process", r"Unable to shutdown process"),
        line("forcefully exiting via", r"forcefully exiting via"),
        line("srun: error", r"srun: error: .{1,200}: tasks? .{1,200}: (?:Killed|Terminated|Exited|Aborted|Segmentation|Bus error|Out Of Memory|Illegal|Floating)"),
        line("srun: ", r"srun: (?:Job step aborted|Terminating StepId|Force Terminated|First task exited)"),
        line("prterun|mpirun|mpiexec", r"(?:prterun|mpirun|mpiexec).{0,120}(?:noticed that process|detected that one or more processes|exited on signal)"),
        line("failed (exitcode", r"failed \(exitcode: -?\d+\) local_rank"),
        line("Root Cause", r"^Root Cause \(first observed failure\)"),
        line("MPI_ABORT", r"MPI_ABORT was invoked"),
        line("death signal", r"Received (?:15|2|1) death signal, shutting down workers"),
        line("Child process", r"Child process .{0,40}(?:exited|terminated) with (?:code|exit code|signal)"),
        line("launch.py|sigkill_handler", r"(?:launch\.py|sigkill_handler).{0,60}(?:Killing subprocess|exits with return code)"),
    ])
    .errors(&["ChildFailedError", "ProcessRaisedException", "ProcessExitedException"])
    .examples(
        "W1102 10:01:22.123000 812 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 910 closing signal SIGTERM",
        "processes 910 and 911 are up",
    ),
];
