//! Programs: configuration, code, data, numbers, native crashes.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "cfg.batch",
        Kind::Deterministic,
        Some(Action::Stop),
        "Choose a batch size that the number of GPUs and the micro batch divide.",
    )
    .lines(&[
        line("divisible|multiple of", r"(?:AssertionError|ValueError|Error|AssertError)\b.{0,200}(?:divisible|be a multiple of)"),
        line("only support equal chunk", r"Error: only support equal chunk"),
        line("real_train_batch_size", r"AssertionError.*real_train_batch_size"),
        line("train_batch_size|batch related parameters", r"Check batch related parameters|train_batch_size is not equal to micro_batch"),
        line("micro_batch", r"AssertionError.*micro_batch"),
    ])
    .examples(
        "AssertionError: real_train_batch_size (30) must be divisible by minimal possible batch size (8)",
        "padding the batch so that it is divisible by 8",
    ),
    class(
        "cfg.command",
        Kind::Deterministic,
        Some(Action::Stop),
        "Correct the command: the program is not there, or may not be executed.",
    )
    .lines(&[line("not found|No such file|Permission denied", r"^(?:\S*(?:sh|bash|env|exec)|\S+\.sh): (?:line \d+: |\d+: |\xE2\x80\x98?)?\S+: (?:command not found|not found|No such file or directory|Permission denied)$|^\S*env: .{1,80}: No such file or directory$"), line("command not found", r"^(?:\S+: ){0,2}(?:line \d+: |\d+: )?\S+: command not found$"), line("executable file not found", r"executable file not found in \$PATH"),
        line("FATAL: ", r"^(?:\w+: )?FATAL: +(?:could not open image|container creation failed: mount .{0,200}(?:exist|no such file)|stat \S+: no such file)"),
        line("EnvironmentLocationNotFound|EnvironmentNameNotFound", r"^(?:ERROR conda\S*: )?Environment(?:Location|Name)NotFound: "),
    ])
    .examples("run.sh: line 12: torchrun: command not found", "checkpoint not found, the command goes on")
    .told_by("exit codes 126 and 127"),
    class(
        "cfg.args",
        Kind::Deterministic,
        Some(Action::Stop),
        "Correct the setting that the line names.",
    )
    .lines(&[
        line("load from hdfs", r"load from hdfs is not implemented yet"),
        line("Could not override", r"Could not override '"),
        line("is not in struct", r"Key '.*' is not in struct"),
        holds("OverrideParseException"),
        holds("Ambiguous value for argument"),
        line("unrecognized arguments", r"error: unrecognized arguments"),
        line("usage: ", r"^usage: "),
        line("error: argument", r"error: argument [^:]+: "),
        line("the following arguments are required", r"error: the following arguments are required"),
        line("ambiguous option", r"error: ambiguous option"),
        line("ConfigAttributeError|ConfigKeyError", r"ConfigAttributeError|ConfigKeyError"),
        holds("MissingMandatoryValue"),
        holds("MissingConfigException"),
        line("Interpolation", r"InterpolationKeyError|InterpolationResolutionError|InterpolationToMissingValueError"),
        line("omegaconf.errors", r"omegaconf\.errors\.\w+"),
        line("hydra|ConfigCompositionException", r"hydra\.errors\.\w+|HydraException|ConfigCompositionException"),
        line("Could not find|Could not load", r"^In '[^']{1,80}': Could not (?:find|load) '|^Could not load '[^']{1,80}'\.?$"),
        line("You must specify", r"^You must specify '[^']{1,80}', e\.g, "),
        line("Primary config", r"Primary config (?:directory|module) not found|Cannot find primary config"),
        line("validation error", r"\d+ validation errors? for \w*(?:Config|Args|Settings|Arguments)"),
        line("Error: ", r"^Error: (?:No such option|Missing option|Invalid value for|Got unexpected extra argument|Missing argument)"),
        line("submission failed", r"(?:srun|sbatch|salloc): error: Batch job submission failed: (?:Invalid|Requested partition configuration)"),
        line("yaml.", r"yaml\.(?:scanner|parser|constructor|composer)\.\w+Error"),
        line("DeepSpeedConfigError", r"DeepSpeedConfigError"),
        line("already exists and is not empty", r"^ValueError: Output directory \(.{1,300}\) already exists and is not empty"),
        line("No valid checkpoint found", r"^ValueError: No valid checkpoint found in output directory \("),
        // More processes than GPUs.
        line("Duplicate GPU detected", r"Duplicate GPU detected ?:"),
        line("invalid device ordinal", r"(?:CUDA|HIP|cuda)\b.{0,40}invalid device ordinal"),
    ])
    .errors(&[
        "ConfigAttributeError",
        "ConfigKeyError",
        "MissingMandatoryValue",
        "MissingConfigException",
        "hydra.errors",
        "omegaconf.errors",
        "Invalid recover mode",
        "Unknown scheduler type",
        "AllocationValidationError",
        "GatewayTrainController",
        "fileroot '",
        "flattened_range is not supported",
        "ArgumentError",
        "TOMLDecodeError",
        "dacite.exceptions.",
        "HfArgumentParser",
        "remaining_argv: ",
    ])
    .examples(
        "train.py: error: unrecognized arguments: --learning_rates 1e-6",
        "the usage of the cache is 12 %",
    )
    .told_by("exit code 2"),
    class(
        "loader.version",
        Kind::Deterministic,
        Some(Action::Stop),
        "Mend the environment: a library is missing, or of another version than it was built for.",
    )
    .lines(&[
        line("GLIBC", r"version `GLIBC(?:XX)?_[\d.]+' not found"),
        line("cannot open shared object", r"(?:lib\w+|\.so).{0,60}cannot open shared object file"),
        line("undefined symbol", r"undefined symbol: \w+"),
        holds("no kernel image is available for execution on the device"),
        holds("cannot allocate memory in static TLS block"),
        holds("libcuda.so cannot found"),
        line("Failed to find C compiler|Ninja is required", r"^[\w.]*Error: (?:Failed to find C compiler|Ninja is required to load)"),
        line("CUDAMismatchException", r"^[\w.]*CUDAMismatchException: "),
        line("operator", r"^[\w.]*Error: operator \S+::\w+ does not exist"),
        // A kernel that this kind of GPU cannot run.
        line("only supports|only supported on", r"^[\w.]*Error: .{0,80}only support(?:s|ed on) (?:Ampere|Hopper|Blackwell|GPUs)\b"),
        line("compute capability", r"^[\w.]*Error: .{0,120}(?:at least|requires?|needs?|minimum).{0,40}compute capability"),
        line("Tried to instantiate class", r"Tried to instantiate class '[^']{1,80}', but it does not exist"),
        line("CXXABI", r"version `CXXABI_[\d.]+' not found"),
 // torch 2.6 and later load weights only, unless they are told otherwise: the file is as it was saved.
        line("Weights only load failed", r"Weights only load failed"),
        line("serious vulnerability", r"^ValueError: Due to a serious vulnerability issue in `torch\.load`"),
        line("numpy.dtype size changed", r"numpy\.dtype size changed, may indicate binary incompatibility"),
        line("compiled|built", r"(?:ImportError|RuntimeError).{0,200}(?:compiled|built) (?:with|against|for|using).{0,80}(?:CUDA|torch|NumPy|version)"),
    ])
    .examples(
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by flash_attn_2_cuda.so)",
        "glibc 2.35, torch 2.10.0, all shared objects found",
    ),
    class(
        "code.shape",
        Kind::Deterministic,
        Some(Action::Stop),
        "Correct the model or the batch: the shapes in the line do not go together.",
    )
    .lines(&[
        line("mat1 and mat2", r"mat1 and mat2 (?:shapes cannot be multiplied|must have the same dtype)"),
        line("is invalid for input of size", r"shape '.*' is invalid for input of size"),
        line("must match the size of tensor", r"size of tensor a \(\d+\) must match the size of tensor b"),
        line("Expected size|Sizes of tensors", r"RuntimeError: .*Expected size \d+ but got size \d+|RuntimeError: Sizes of tensors must match"),
        line("shape mismatch", r"(?:RuntimeError|IndexError|ValueError): .{0,40}shape mismatch"),
        line("expanded size of the tensor", r"expanded size of the tensor \(\d+\) must match the existing size"),
        line("Given groups=", r"Given groups=\d+, weight of size"),
        line("could not be broadcast", r"operands could not be broadcast together"),
        line("does not match the broadcast shape", r"does not match the broadcast shape"),
        line("Expected input batch_size", r"Expected input batch_size \(\d+\) to match target batch_size"),
        line("batch1|batch2", r"batch[12] (?:tensor|must|dimension)|Expected size for first two dimensions of batch2"),
    ])
    .examples(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x896 and 4864x896)",
        "shape of the input: [32, 896], no mismatch",
    ),
    class(
        "num.nan",
        Kind::Deterministic,
        Some(Action::FallBack),
        "Go back to the newest finite step; look at the learning rate, the loss scale and that step's batch.",
    )
    .lines(&[
        line("probability tensor contains either", r"probability tensor contains either"),
        line("found NaN in|found Inf in", r"found (?:NaN|Inf) in (?:local )?(?:grad|loss|param)"),
        line("Unexpected result", r"Unexpected result -?(?:nan|inf)\b"),
        line("nan values in its", r"returned nan values in its"),
        line("Current loss scale already at minimum", r"Current loss scale already at minimum"),
        line("Minimum loss scale reached", r"Minimum loss scale reached"),
        line("FloatingPointError", r"^FloatingPointError: "),
        line("Detected nan", r"Error: Detected nan and/or inf values in"),
        line("nan|=inf|= inf|is inf|was inf|became inf|nonfinite|non-finite|not finite", r"(?:Error|Exception|fatal|abort|stopping|exiting|terminat)\w*\b.{0,120}\b(?:loss|grad(?:ient)?(?:[ _]norm)?|logits?|weights?|parameters?|kl|entropy)\b.{0,60}\b(?:nan|inf|non-?finite|not finite)\b"),
        line("nan|=inf|= inf|is inf|was inf|became inf|nonfinite|non-finite|not finite", r"\b(?:loss|grad(?:ient)?(?:[ _]norm)?)\b.{0,30}(?:is|was|became|=|:)\s*(?:nan|inf|not finite|non-?finite)\b.{0,80}(?:stop|abort|exit|terminat|rais|cannot continue)"),
        line("non-finite|nonfinite|not finite", r"(?:Error|Exception)\b.{0,160}(?:non-?finite|not finite)"),
    ])
    .errors(&["probability tensor contains", "is nan", "non-finite"])
    .examples(
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "loss is nan-safe: masked tokens count nothing",
    )
    .told_by("records of training whose loss or gradient norm is not finite to the end"),
    class(
        "num.spike",
        Kind::Report,
        None,
        "Look at the curve and at the samples of these steps.",
    )
    .told_by("the numbers of the training records against their own band"),
    class(
        "data.loader",
        Kind::Unclear,
        Some(Action::RelaunchLater),
        "Look for the OOM killer and at /dev/shm; use fewer data loader workers.",
    )
    .lines(&[
        line("DataLoader worker", r"DataLoader worker .* (?:exited unexpectedly|is killed by signal)"),
        line("exited unexpectedly", r"worker\(s\).{0,60}exited unexpectedly"),
        line("encountered in worker", r"Unexpected (?:segmentation fault|floating-point exception) encountered in worker"),
    ])
    .examples(
        "RuntimeError: DataLoader worker (pid(s) 3812, 3813) exited unexpectedly",
        "This DataLoader will create 16 worker processes in total.",
    ),
    class(
        "data.bad_sample",
        Kind::Deterministic,
        Some(Action::RelaunchOnce),
        "Look at the samples of that step: take the broken one out, or have the loader pass over it.",
    )
    .lines(&[line("image file|reading image", r"(?:Error|Exception).{0,80}(?:cannot identify image file|image file is truncated|broken data stream when reading image)"), line("ArrowInvalid: ", r"^(?:pyarrow\.lib\.)?ArrowInvalid: ")])
    .errors(&[
        "JSONDecodeError",
        "UnicodeDecodeError",
        "ArrowInvalid",
        "UnidentifiedImageError",
        "image file is truncated",
        "broken data stream",
        "DatasetGenerationError",
        "ParquetError",
        "Parquet magic bytes not found",
        "DecompressionBombError",
        "InvalidDataError",
        "Error -3 while decompressing",
        "CRC check failed",
    ])
    .examples(
        "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 4120 (char 4119)",
        "skipped 3 rows that json could not decode",
    ),
    class(
        "compile.cache",
        Kind::Transient,
        Some(Action::RelaunchOnce),
        "Relaunch with a fresh cache directory (TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR).",
    )
    .lines(&[
        line("triton", r"triton.{0,80}(?:CompilationError|OutOfResources)|triton.{0,120}cache.{0,120}(?:Error|No such file|failed|corrupt)"),
        line("out of resource", r"\bOutOfResources: out of resource"),
        line("ptxas", r"ptxas (?:fatal|error)|`ptxas` failed|ptxas.{0,40}(?:failed with error|died)"),
        line("_inductor|InductorError", r"torch\._inductor\.exc\.\w+|InductorError"),
        line("BackendCompilerFailed", r"BackendCompilerFailed"),
        line("Error building extension", r"Error building extension '"),
        line("CppCompileError", r"CppCompileError"),
        line("torch._dynamo.exc", r"torch\._dynamo\.exc\.(?:InternalTorchDynamoError|BackendCompilerFailed)"),
        line("nvcc|ninja", r"nvcc (?:fatal|error)|ninja: build stopped"),
        line("PassManager::run|LLVM ERROR", r"PassManager::run failed|LLVM ERROR"),
        line("torchinductor|triton", r"No such file or directory: '[^']*(?:torchinductor|triton)[^']*'"),
    ])
    .examples(
        "torch._inductor.exc.InductorError: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/torchinductor_root/x/kernel.so'",
        "triton cache: 318 kernels, all hit",
    ),
    class(
        "code.syntax_import",
        Kind::Deterministic,
        Some(Action::Stop),
        "Correct the program or its environment: a restart runs the same code.",
    )
    .errors(&["SyntaxError", "ImportError", "ModuleNotFoundError", "NameError", "IndentationError", "TabError", "UnboundLocalError"])
    .lines(&[line("python: |python3: |python3.", r"^(?:\S*/)?python[\d.]*: (?:No module named|Error while finding module specification)"), line("Error loading module from", r"Error loading module from '"), line("Failed to import ", r"^(?:\w+Error: )?Failed to import \S+ because of the following error"), holds("failed to import on the worker")])
    .examples(
        "ModuleNotFoundError: No module named 'flash_attn'",
        "WARNING: flash_attn is not installed (No module named 'flash_attn'), the slow path is used",
    ),
    class(
        "file.permission",
        Kind::Deterministic,
        Some(Action::Stop),
        "Give this user the right to that path, or choose another.",
    )
    .lines(&[line("can't open file", r"python[\d.]*: can't open file '.{1,300}\[Errno 13\]")])
    .errors(&["PermissionError", "Errno 13]"])
    .examples(
        "PermissionError: [Errno 13] Permission denied: '/data/run/global_step_20'",
        "permissions of the cache were checked",
    ),
    class(
        "file.missing",
        Kind::Deterministic,
        Some(Action::RelaunchOnce),
        "Put the file there or correct the path; on a network file system check the mount.",
    )
    .errors(&["FileNotFoundError", "Errno 2]", "NotADirectoryError"])
    .lines(&[line("can't open file", r"python[\d.]*: can't open file '.{1,300}\[Errno 2\]")])
    .examples(
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'",
        "generation_config.json not found, defaults are used",
    ),
    class(
        "code.type_key",
        Kind::Deterministic,
        Some(Action::RelaunchOnce),
        "Correct the program; after progress look at the batch of that step first.",
    )
    .errors(&[
        "TypeError",
        "KeyError",
        "AttributeError",
        "IndexError",
        "ValueError",
        "ZeroDivisionError",
        "AssertionError",
        "NotImplementedError",
        "RecursionError",
        "ValidationError",
        "jinja2.exceptions.",
        "in forked subprocess",
    ])
    .examples("KeyError: 'attention_mask'", "ignored a KeyError of an optional field"),
    class(
        "code.at_start",
        Kind::Deterministic,
        Some(Action::Stop),
        "Correct the program or its settings: it fails before its first step, and would again.",
    )
    .told_by("an error of the class code.type_key before the first step"),
    class(
        "code.exception",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Read the traceback: the class of its exception says nothing more.",
    )
    .told_by("an exception that no other class knows"),
    class(
        "native.crash",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Look at the core dump or the native stack; update or pin the library that it names.",
    )
    .lines(&[
        holds("Fatal Python error"),
        line("segmentation fault|Segfault encountered", r"segmentation fault(?: at|\b[^s])|segmentation fault\s*$|Segfault encountered"),
        holds("double free or corruption"),
        holds("core dumped"),
        line("malloc():|free():|corrupted|munmap_chunk", r"malloc\(\): |free\(\): invalid|corrupted (?:size vs|double-linked|unsorted)|munmap_chunk\(\)"),
        line("terminate called", r"terminate called (?:after throwing an instance of|without an active exception|recursively)"),
        line("Illegal instruction", r"(?-i:Illegal instruction)\b"),
        line("Floating point exception", r"(?-i:Floating point exception)\b"),
        line("stack smashing detected", r"stack smashing detected"),
        line("SIGSEGV|SIGILL|SIGFPE|SIGABRT", r"(?:received|got|caught|signal:?|Signal|exitcode).{0,30}\bSIG(?:SEGV|ILL|FPE|ABRT)\b|\*\*\* SIGSEGV|Signal \d+ \(SIG(?:SEGV|ILL|FPE|ABRT)\)"),
        line("Caught signal", r"Caught signal (?:4|6|8|11) "),
        line("pure virtual method called", r"pure virtual method called"),
        // The kernel's line, of what may be a part of the run.
        line("]: segfault at ", r"\b(?:python|pt_|torch|ray|vllm|sglang|engine)[^\s\[]{0,16}\[\d+\]: segfault at [0-9a-f]+ ip "),
        line("terminated with signal SIG", r"process \d+ terminated with signal SIG(?:SEGV|ILL|FPE|ABRT)\b"),
    ])
    .examples("Fatal Python error: Segmentation fault", "the segmentation faults of the test images are masked")
    .told_by("SIGSEGV, SIGABRT, SIGILL, SIGFPE; exit codes 132, 134, 136, 139"),
];
