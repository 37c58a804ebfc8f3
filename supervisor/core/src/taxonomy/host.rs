//! Memory, disks and services of the machine and around it.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "mem.ray_oom",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Give the node more memory or its tasks less: Ray ends workers before the kernel does.",
    )
    .lines(&[
        holds("ray.exceptions.OutOfMemoryError"),
        holds("killed due to the node running low on memory"),
        line("Worker exit type: NODE_OUT_OF_MEMORY", r"Worker exit type: NODE_OUT_OF_MEMORY"),
        line("(OOM)", r"Workers? \(tasks / actors\) killed due to memory pressure \(OOM\)"),
    ])
    .examples(
        "ray.exceptions.OutOfMemoryError: 7 worker(s) were killed due to the node running low on memory.",
        "ray: memory monitor interval 250 ms, threshold 0.95",
    ),
    class(
        "mem.host_oom",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Look at the memory of the machine over time: a leak grows with the steps, a peak comes with a save or a long batch.",
    )
    .lines(&[
        line("Out of memory: Kill", r"Out of memory: Kill(?:ed)? process \d+"),
        line("Memory cgroup out of memory", r"Memory cgroup out of memory"),
        line("oom_kill|oom-kill", r"Detected \d+ oom[_-]kill event"),
        line("oom-kill|oom-killer", r"oom-kill:constraint=|invoked oom-killer"),
        line("oom_reaper", r"oom_reaper: reaped process"),
        line("earlyoom|systemd-oomd", r"earlyoom\S*: sending SIG(?:TERM|KILL) to process|systemd-oomd\S*: Killed "),
        line("OOMKilled", r"(?-i:OOMKilled)(?:[^:=]|[:=] ?true|$)"),
        line("OOM Killed", r"have been OOM Killed"),
        line("OUT_OF_ME", r"(?:State|state|status|JobState)[=: ]+OUT_OF_MEMORY|\b(?-i:OUT_OF_ME(?:MORY|\+))\s+\d+:\d+"),
        line("Exceeded", r"Exceeded (?:job|step) memory limit"),
        line("memory.events", r"memory\.events:? oom_kill (?:rose|[1-9])"),
        line("Errno 12|allocate memory|DefaultCPUAllocator", r"OSError: \[Errno 12\]|Cannot allocate memory(?:\s*$|[^ ]| [^i]| in [^s])|DefaultCPUAllocator: (?:can't|not enough) "),
        line("MemoryError", r"^(?:numpy\S*\.)?_?(?:Array)?MemoryError(?::|$)"),
        holds("std::bad_alloc"),
        holds("TERM_MEMLIMIT"),
        line("oom-kill|OOM killer", r"Failed with result 'oom-kill'|process of this unit has been killed by the OOM killer"),
        line("low on resource", r"The node was low on resource: \[?memory"),
        line("MemoryPressure", r"The node had condition: \[[^\]]*MemoryPressure"),
    ])
    .examples(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=48213.0. Some of the step tasks have been OOM Killed.",
        "    oomKilled: false",
    ),
    class(
        "mem.engine_oom",
        Kind::Deterministic,
        Some(Action::RelaunchOnce),
        "Give the engine less or the GPU more: lower the engine's share of memory, its context length or its batch.",
    )
    .lines(&[
        holds("No available memory for the cache blocks"),
        holds("on startup is less than desired GPU memory utilization"),
        line("Not enough memory", r"Not enough memory\. Please try (?:to )?(?:increas|reduc|decreas)"),
        line("out of memory. Try to lower", r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"),
        line("mem-fraction-static", r"(?:out of memory|not enough|failed|OOM).{0,160}--mem-fraction-static"),
        line("KV cache", r"(?:larger|greater|more) than the (?:maximum number of tokens that can be stored in|available) KV cache|KV cache is needed, which is larger than the available"),
        line("pool is full|Out of memory even", r"(?:KV cache|token).{0,30}pool (?:memory )?is full(?:\W*$|[^.]{0,3} and)|Out of memory even after retracting"),
    ])
    .examples(
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "INFO: Available KV cache memory: 41.20 GiB",
    ),
    class(
        "mem.cuda_oom",
        Kind::Deterministic,
        Some(Action::RelaunchOnce),
        "Lower the micro batch or the length, or turn on offloading; where it comes at one step only, look at that step's longest sample.",
    )
    .lines(&[
        line("OutOfMemoryError", r"(?-i:torch\.(?:cuda\.)?OutOfMemoryError)(?::|$)|^OutOfMemoryError: CUDA"),
        line("out of memory. Tried to allocate", r"(?:CUDA|HIP|NPU|XPU) out of memory\. Tried to allocate"),
        line("CUDA error: out of memory", r"CUDA error: out of memory"),
        holds("CUDA_ERROR_OUT_OF_MEMORY"),
        holds("cudaErrorMemoryAllocation"),
        holds("CUBLAS_STATUS_ALLOC_FAILED"),
        holds("CUDNN_STATUS_ALLOC_FAILED"),
        // A handle needs memory of its own; nothing else fails at its creation while the GPU works.
        line("STATUS_NOT_INITIALIZED", r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED"),
        line("out of memory", r"(?:NCCL|Cuda failure|Cuda failure 2).{0,60}out of memory"),
        holds("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
    ])
    .errors(&["OutOfMemoryError", "CUDA out of memory"])
    .examples(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "on CUDA out of memory the batch is halved (auto_find_batch_size)",
    ),
    class(
        "mem.shm",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Give /dev/shm more room (`--shm-size`, `emptyDir` in memory), or use fewer data loader workers.",
    )
    .lines(&[
        line("Bus error|SIGBUS", r"killed by signal: Bus error|^(?:\S+: line \d+:\s+\d+ )?Bus error\b|^SIGBUS\b|\*\*\* SIGBUS\b|(?:[Ss]ignal|[Ee]xit ?code|[Kk]illed|[Tt]erminated|[Dd]ied|[Rr]eceived|[Gg]ot|[Cc]aught|by|with|:).{0,24}\bSIGBUS\b|(?:Signal|signal|exitcode).{0,20}\bBus error|Fatal Python error: Bus error"),
        line("shared memory", r"unable to (?:open|write to|resize|allocate|mmap) (?:a )?shared memory|out of shared memory|Insufficient shared memory"),
        line("torch_", r"unable to (?:open|write to|mmap).{0,40}(?:file|object|filename) ?</torch_"),
        line("/dev/shm", r"(?:No space left|not enough|exhausted|is full|write error|Errno 28).{0,120}/dev/shm|/dev/shm.{0,120}(?:No space left|is full|Errno 28|exhausted)"),
        line("'/psm_|'/wnsm_|'/torch_", r"No space left on device: '/(?:psm_|wnsm_|torch_)"),
        line("/dev/shm/nccl", r"(?:failed to extend|[Ee]rror while creating shared memory segment) /dev/shm/nccl"),
        line("shm_open|posix_fallocate|shared memory segment", r"(?:shm_open|posix_fallocate|shared memory segment).{0,120}(?:failed|No space|error)"),
    ])
    .examples(
        "RuntimeError: DataLoader worker (pid 229) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
        "/dev/shm: 62 GB free of 64 GB",
    )
    .told_by("SIGBUS, exit code 135"),
    class(
        "disk.full",
        Kind::Deterministic,
        Some(Action::Wait),
        "Make room; the checkpoint that was being written is not trusted.",
    )
    .lines(&[
        holds("No space left on device"),
        line("Errno 28", r"Errno 28\b"),
        holds("ENOSPC"),
        holds("database or disk is full"),
        line("Not enough disk space", r"Not enough disk space\. Needed: "),
        holds("Disk quota exceeded"),
        line("Errno 122", r"Errno 122\b"),
        holds("EDQUOT"),
        holds("basic_ios::clear: iostream error"),
        line("unexpected pos", r"inline_container\.cc.{0,20}unexpected pos \d+ vs"),
        holds("DiskPressure"),
        line("OutOfDiskError", r"OutOfDiskError(?::|$|\()"),
        holds("local disk's utilization is over capacity"),
        line("out of disk", r"failed, likely out of disk space|failed due to out of disk|Out of disk space with"),
        line("low on resource", r"The node was low on resource: \[?(?:ephemeral-storage|nodefs|imagefs)"),
        line("ephemeral", r"ephemeral local storage usage exceeds the total limit|exceeded its local ephemeral storage limit"),
        line("Usage of EmptyDir", r"Usage of EmptyDir volume .{1,80} exceeds the limit"),
    ])
    .errors(&["Errno 28", "Errno 122", "No space left", "iostream error"])
    .examples(
        "OSError: [Errno 28] No space left on device",
        "disk: 1.2 TB of 4 TB left on /data",
    ),
    class(
        "mem.ray_store",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Give Ray's object store more memory or its spill directory more room.",
    )
    .lines(&[
        holds("ObjectStoreFullError"),
        line("object store", r"object store.{0,60}(?:is full|out of memory|full or)|(?:[Ff]ailed to put object|put.{0,20}) .{0,60}object store"),
        line("spill", r"(?:[Ff]ailed to spill|spill(?:ing)? (?:worker|objects?).{0,40}(?:failed|error))"),
    ])
    .examples(
        "ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full.",
        "object store memory: 200 GB, spilling to /tmp/ray",
    ),
    class(
        "disk.readonly",
        Kind::Transient,
        Some(Action::Wait),
        "Look at the mount on that machine; go on when it answers again.",
    )
    .lines(&[
        holds("Read-only file system"),
        holds("Stale file handle"),
        line("Errno", r"\[Errno (?:5|30|107|108|116)\]"),
        line("Input/output error", r"Input/output error"),
        holds("Transport endpoint is not connected"),
        holds("Cannot send after transport endpoint shutdown"),
        line("I/O error", r"(?:blk_update_request|Buffer|EXT4-fs|XFS|nvme).{0,60}I/O error"),
        line("for volume|attach or mount", r"MountVolume\.\w+ failed for volume|Unable to attach or mount volumes|AttachVolume\.\w+ failed for volume"),
        line("Remounting filesystem read-only", r"Remounting filesystem read-only"),
    ])
    .errors(&["Errno 5]", "Errno 30]", "Errno 116]"])
    .examples(
        "OSError: [Errno 116] Stale file handle: '/mnt/ckpt/global_step_40'",
        "the reference model is read-only; its file system cache is warm",
    ),
    class(
        "disk.slow",
        Kind::Transient,
        Some(Action::Wait),
        "Look at the load of the file system; a save is never ended because it is slow.",
    )
    .lines(&[
        line("D state|D-state|uninterruptible", r"(?:writer|sav(?:e|ing)|checkpoint).{0,120}(?:\bD[- ]state\b|uninterruptible)"),
        line("is taking|has taken|still running|still writing|not finished|not yet|not done", r"\bsav(?:e|ing)\b.{0,60}(?:is taking|has taken|still (?:running|writing)|not (?:yet )?(?:finished|done)).{0,60}(?:median|usual)"),
    ])
    .examples("WARNING: the save of step 40 is taking 2412 s (median 180 s)", "the save of step 40 took 311 s, 1.7 times the median")
    .told_by("the length of saves against their own median, and writers in uninterruptible sleep"),
    class(
        "host.dns",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Look at the name service of that machine.",
    )
    .lines(&[
        holds("Temporary failure in name resolution"),
        holds("Name or service not known"),
        line("NameResolutionError|resolve host|Failed to resolve|nodename nor servname|getaddrinfo|Errno -", r"NameResolutionError|Could not resolve host|Failed to resolve '|nodename nor servname provided|getaddrinfo (?:failed|ENOTFOUND)|Errno -[23]\]"),
    ])
    .examples(
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "name resolution took 3 ms",
    ),
    class(
        "hub.auth",
        Kind::Deterministic,
        Some(Action::Stop),
        "Check the token (`HF_TOKEN`) or key, the name of what is asked for, and that its terms are accepted.",
    )
    .lines(&[
        line("GatedRepoError", r"GatedRepoError"),
        line("RepositoryNotFoundError", r"RepositoryNotFoundError"),
        line("gated repo", r"(?:access|Access|gated) .{0,40}gated repo|You are trying to access a gated repo"),
        line("Client Error", r"(?:HTTPError|HfHubHTTPError|HTTPStatusError|^).{0,20}40[13] Client Error: (?:Unauthorized|Forbidden) for url:"),
        line("Client error '40", r"Client error '40[13] [^']{0,40}' for url 'https?://(?:huggingface|hf)"),
        line("is not a local folder", r"is not a local folder and is not a valid model identifier"),
        holds("Invalid user token"),
        holds("Invalid credentials in Authorization header"),
        holds("token available to HF does not allow"),
        line("RevisionNotFoundError|EntryNotFoundError", r"(?:RevisionNotFoundError|EntryNotFoundError: 404)"),
        line("does not appear to have", r"^[\w.]*Error: .{1,200}does not appear to have (?:a|any) files? named"),
        line("CredentialsError", r"^botocore\.exceptions\.\w*CredentialsError"),
        line("when calling the", r"^[\w.]*ClientError: .{0,40}\((?:AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|403|Forbidden)\) when calling the"),
        line("DatasetNotFoundError", r"DatasetNotFoundError: .{0,200}(?:gated dataset|on the Hub|cannot be accessed)"),
    ])
    .examples(
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url https://huggingface.co/some/model/resolve/main/config.json.",
        "reward server answered 401 tokens in 3 s",
    ),
    class(
        "hub.rate",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Download once into a local cache and set HF_HUB_OFFLINE=1: then no start depends on the hub.",
    )
    .lines(&[
        line("429 Client|Error 429|Error: 429|HTTP 429|Too Many Requests", r"429 Client Error|HTTP(?:Status)?Error:? 429|HTTP 429|Too Many Requests for url"),
        line("lient error '429|Server error '5", r"Client error '429 |Server error '5\d\d [^']{0,40}' for url 'https?://(?:huggingface|hf|cdn)"),
        line("Server Error", r"HfHubHTTPError.{0,30}5\d\d Server Error|5\d\d Server Error: .{0,60} for url: https?://(?:huggingface|hf|cdn)"),
        line("huggingface|hf.co", r"(?:ReadTimeout|ConnectTimeout|ConnectionError|MaxRetryError|ProxyError|SSLError).{0,200}(?:huggingface|\bhf)\.co\b"),
        line("hf.co", r"\bhf\.co\b.{0,200}(?:Max retries exceeded|Read timed out|Connection aborted|timed out)"),
        line("huggingface.co", r"huggingface\.co.{0,200}(?:Max retries exceeded|Read timed out|Connection aborted|timed out)"),
        line("hf-mirror.com|modelscope.cn", r"(?:hf-mirror\.com|modelscope\.cn).{0,200}(?:Max retries exceeded|Read timed out|Connection aborted|timed out)"),
        line("LocalEntryNotFoundError", r"LocalEntryNotFoundError"),
        line("couldn't connect to", r"couldn't connect to '?https://huggingface\.co"),
        holds("CAS service error"),
        line("OfflineModeIsEnabled", r"OfflineModeIsEnabled"),
    ])
    .errors(&["500 Server Error", "502 Server Error", "503 Server Error", "504 Server Error"])
    .examples(
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/some/model",
        "requests: 429 of 512 done",
    ),
    class(
        "store.remote",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Look at the state of the object store; a local copy of data and checkpoints helps.",
    )
    .lines(&[
        line("SlowDown", r"(?-i:SlowDown)\b.{0,80}(?:reduce|request|error|operation)|\((?-i:SlowDown)\)"),
        holds("RequestTimeTooSkewed"),
        line("RequestTimeout", r"\((?-i:RequestTimeout)\)|(?-i:RequestTimeout):"),
        line("botocore", r"botocore\.(?:\w+\.)*(?:ClientError|\w*Timeout\w*|EndpointConnectionError|ConnectionClosedError|ResponseStreamingError|\w+Error)"),
        line("S3", r"\b(?-i:S3\w*(?:Error|Exception|TransferFailed\w*))"),
        line("An error occurred", r"An error occurred \((?:503|500|InternalError|ServiceUnavailable|Throttling\w*)\) when calling the"),
        line("hdfs|RemoteException|StandbyException|SafeModeException|BlockMissingException", r"hdfs.{0,120}(?:exception|error|failed|could not)|(?:RemoteException|StandbyException|SafeModeException|BlockMissingException)"),
        line("google.", r"google\.(?:api_core|cloud)\.\S*exceptions\.(?:ServiceUnavailable|TooManyRequests|InternalServerError|DeadlineExceeded|RetryError|GatewayTimeout)"),
        line("azure.core", r"azure\.core\.exceptions\.(?:ServiceRe\w+Error|HttpResponseError|\w*Timeout\w*)"),
        line("oss2", r"oss2\.exceptions\.(?:ServerError|RequestError)"),
        line("FSTimeoutError", r"\bFSTimeoutError(?::|\s*$)"),
        line("503 S", r"503 (?:Service Unavailable|Slow ?Down).{0,120}(?:s3|gs|oss|storage|bucket)|(?:s3|bucket|storage|oss).{0,120}503 (?:Service Unavailable|Slow ?Down)"),
    ])
    .examples(
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation (reached max retries: 4): Please reduce your request rate.",
        "SlowDown schedule of the learning rate is off",
    ),
    class(
        "host.fds",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Raise the limit of this user (`ulimit -n`, `ulimit -u`, the pids limit of the container), or find what is not closed.",
    )
    .lines(&[
        holds("Too many open files"),
        line("Errno 24", r"Errno 24\b"),
        line("Resource temporarily unavailable", r"(?:fork|clone|thread|BlockingIOError|pthread_create|OpenBLAS|OMP|Errno 11).{0,120}Resource temporarily unavailable"),
        holds("can't start new thread"),
        line("pthread_create", r"pthread_create.{0,60}(?:fail|EAGAIN|error)"),
        holds("received 0 items of ancdata"),
        line("low on resource", r"The node was low on resource: \[?pids"),
    ])
    .examples(
        "OSError: [Errno 24] Too many open files: '/data/shard-0001.parquet'",
        "open files limit: 1048576",
    ),
    class(
        "host.clock",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Set the clock of that machine (NTP).",
    )
    .lines(&[
        line("certificate", r"certificate.{0,40}(?:is )?not yet valid"),
        line("clock skew|clock drift", r"clock (?:skew|drift) (?:too|is too|of .* exceeds)|Clock skew detected"),
    ])
    .examples(
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid (_ssl.c:1006)",
        "clock of the term: 0 ms",
    ),
];
