//! Which imported names are familiar, strange or dangerous.
//!
//! verl loads with `weights_only=False`, so whatever a pickle names is imported and what it calls is run. Three answers:
//! names that torch, numpy and plain Python data use are familiar; names on the danger list, and names that reach
//! *through* another module (`torch.serialization` → `os.system`), are dangerous; the rest is strange and shown. A
//! familiar name is decided first and by its full spelling, so no rule below can be talked out of the danger list.

/// What an imported name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Written by torch, numpy or plain data.
    Familiar,
    /// Unknown: harmless or not.
    Unfamiliar,
    /// On the danger list; why.
    Dangerous(&'static str),
}

/// What `module.name` is.
#[must_use]
pub fn class(module: &str, name: &str) -> Class {
    if is_familiar(module, name) {
        return Class::Familiar;
    }
    if module.starts_with("builtins.") || matches!(module, "builtins" | "__builtin__" | "__builtins__") {
        return builtin(name);
    }
    if module.is_empty() || name.is_empty() || !is_plain(module) || !is_plain(name) {
        return Class::Dangerous("this is no name that a trainer writes");
    }
    if let Some(why) = dangerous_module(module) {
        return Class::Dangerous(why);
    }
    let segments: Vec<&str> = name.split('.').collect();
    if segments.iter().any(|s| DANGEROUS_NAMES.contains(s)) {
        return Class::Dangerous("it runs code, or finds code to run");
    }
    if segments.len() > 1 && reaches_through(&segments) {
        return Class::Dangerous("it reaches through one module into another");
    }
    if dangerous_root(segments[0]) {
        return Class::Dangerous("it names another module through this one");
    }
    Class::Unfamiliar
}

/// Modules are reached through lower-case or private names; a class inside a class is neither.
fn reaches_through(segments: &[&str]) -> bool {
    let (last, owners) = segments.split_last().unwrap_or((&"", &[]));
    last.starts_with("__") || owners.iter().any(|s| !s.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Whether this is Python's `getattr`, under either of its module's names.
pub(super) fn is_getattr(module: &str, name: &str) -> bool {
    matches!(module, "builtins" | "__builtin__") && name == "getattr"
}

/// Whether a name looks like that of a class, or of a class inside a class.
pub(super) fn is_class_name(name: &str) -> bool {
    is_plain(name) && name.split('.').all(|s| s.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn is_plain(name: &str) -> bool {
    name.split('.')
        .all(|s| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

fn builtin(name: &str) -> Class {
    if name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Warning") {
        Class::Unfamiliar
    } else {
        Class::Dangerous("a Python built-in that runs, finds or changes things")
    }
}

fn dangerous_module(module: &str) -> Option<&'static str> {
    let root = module.split('.').next().unwrap_or_default();
    if dangerous_root(root) {
        return Some("the module runs programs or code, reaches files, the network or the interpreter");
    }
    let inside = |m: &&&str| module == **m || module.strip_prefix(**m).is_some_and(|r| r.starts_with('.'));
    if DANGEROUS_MODULES.iter().any(|m| inside(&m)) {
        return Some("the module loads or runs code");
    }
    // `six.moves.os`, `numpy.testing.os`: a module named as part of another.
    let through = module
        .split('.')
        .skip(1)
        .any(|s| HARD_ROOTS.contains(&s.trim_start_matches('_')));
    through.then_some("it reaches through one module into another")
}

fn dangerous_root(root: &str) -> bool {
    DANGEROUS_ROOTS.contains(&root) || HARD_ROOTS.contains(&root.trim_start_matches('_'))
}

/// Modules that are dangerous under any prefix.
const HARD_ROOTS: &[&str] = &[
    "os",
    "posix",
    "nt",
    "subprocess",
    "sys",
    "builtins",
    "runpy",
    "importlib",
    "shutil",
    "socket",
    "ctypes",
    "pty",
    "pdb",
    "multiprocessing",
    "posixsubprocess",
    "commands",
    "popen2",
    "winreg",
    "pickle",
    "cPickle",
    "marshal",
    "imp",
];

/// Top-level modules that no training state names.
const DANGEROUS_ROOTS: &[&str] = &[
    "__builtin__",
    "__builtins__",
    "aiohttp",
    "antigravity",
    "ast",
    "asyncio",
    "asyncore",
    "atexit",
    "bdb",
    "cProfile",
    "cffi",
    "cloudpickle",
    "cmd",
    "code",
    "codeop",
    "codecs",
    "compileall",
    "concurrent",
    "configparser",
    "contextlib",
    "copy_reg",
    "copyreg",
    "dask",
    "dbm",
    "dill",
    "distutils",
    "docker",
    "doctest",
    "ensurepip",
    "faulthandler",
    "fcntl",
    "fileinput",
    "ftplib",
    "functools",
    "gc",
    "getpass",
    "gettext",
    "glob",
    "http",
    "httplib",
    "httpx",
    "idlelib",
    "imaplib",
    "inspect",
    "io",
    "IPython",
    "joblib",
    "lib2to3",
    "linecache",
    "mailcap",
    "mmap",
    "modulefinder",
    "nntplib",
    "ntpath",
    "operator",
    "optparse",
    "paramiko",
    "pickletools",
    "pip",
    "pkg_resources",
    "pkgutil",
    "platform",
    "poplib",
    "posixpath",
    "profile",
    "psutil",
    "py_compile",
    "pydoc",
    "requests",
    "rlcompleter",
    "sched",
    "setuptools",
    "sh",
    "shelve",
    "shlex",
    "signal",
    "site",
    "smtplib",
    "smtpd",
    "socketserver",
    "sqlite3",
    "ssl",
    "sysconfig",
    "tarfile",
    "telnetlib",
    "tempfile",
    "test",
    "thread",
    "_thread",
    "threading",
    "timeit",
    "tkinter",
    "trace",
    "tracemalloc",
    "turtle",
    "types",
    "unittest",
    "urllib",
    "urllib2",
    "urllib3",
    "urlparse",
    "uu",
    "venv",
    "virtualenv",
    "webbrowser",
    "wsgiref",
    "xmlrpc",
    "xmlrpclib",
    "yaml",
    "zipapp",
    "zipfile",
    "zipimport",
    "_osx_support",
    "_aix_support",
    "_pyrepl",
    "_operator",
    "_io",
    "_codecs",
    "_collections_abc",
    "_functools",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "_imp",
    "_bootsubprocess",
    "_compat_pickle",
    "_pydecimal",
    "_ctypes",
    "_socket",
    "_winapi",
    "_sitebuiltins",
    "_aix_support",
    "pexpect",
    "ptyprocess",
    "plumbum",
    "invoke",
    "fabric",
    "cython",
    "Cython",
    "pyximport",
    "pythoncom",
    "win32com",
    "win32api",
    "fire",
    "boto3",
    "botocore",
];

/// Modules inside trusted packages that load or run code.
const DANGEROUS_MODULES: &[&str] = &[
    "torch.hub",
    "torch.jit",
    "torch.package",
    "torch.compiler",
    "torch._dynamo",
    "torch._inductor",
    "torch.multiprocessing",
    "torch.utils.cpp_extension",
    "torch.utils.bottleneck",
    "torch.utils.collect_env",
    "torch.utils._config_module",
    "torch.utils.model_zoo",
    "torch.utils.data.datapipes",
    "torch.utils.file_baton",
    "torch.utils.model_dump",
    "torch.utils.tensorboard",
    "torch.utils.benchmark",
    "torch.utils.hipify",
    "torch.utils.throughput_benchmark",
    "torch.testing",
    "torch.onnx",
    "torch.fx",
    "torch.export",
    "torch.classes",
    "torch.ops",
    "torch._ops",
    "torch._classes",
    "torch.library",
    "torch.profiler",
    "torch.distributed.elastic",
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "torch.distributed.rpc",
    "torch._lazy",
    "torch._functorch",
    "torch._export",
    "numpy.f2py",
    "numpy.testing",
    "numpy.distutils",
    "numpy.ctypeslib",
    "numpy.lib.npyio",
    "numpy.lib._npyio_impl",
    "logging.config",
    "logging.handlers",
    "numpy.core._internal",
    "transformers.dynamic_module_utils",
    "transformers.utils.import_utils",
    "pandas.io",
    "pandas.core.computation",
    "scipy.io",
];

/// Names that run code or fetch it, whatever module they are taken from.
const DANGEROUS_NAMES: &[&str] = &[
    "system",
    "popen",
    "Popen",
    "popen2",
    "popen3",
    "popen4",
    "spawn",
    "spawnl",
    "spawnv",
    "spawnve",
    "spawnvp",
    "fork",
    "forkpty",
    "execv",
    "execve",
    "execl",
    "execvp",
    "check_output",
    "check_call",
    "getoutput",
    "getstatusoutput",
    "startfile",
    "eval",
    "exec",
    "execfile",
    "compile",
    "getattr",
    "setattr",
    "delattr",
    "__import__",
    "import_module",
    "__getattribute__",
    "__getattr__",
    "__setattr__",
    "__globals__",
    "__builtins__",
    "__subclasses__",
    "__class__",
    "__bases__",
    "__mro__",
    "__base__",
    "__dict__",
    "__code__",
    "__call__",
    "__reduce__",
    "__reduce_ex__",
    "__init__",
    "__loader__",
    "__spec__",
    "attrgetter",
    "methodcaller",
    "itemgetter",
    "partial",
    "partialmethod",
    "run_path",
    "run_module",
    "runcode",
    "runsource",
    "runctx",
    "runstring",
    "rmtree",
    "unlink",
    "remove",
    "removedirs",
    "rmdir",
    "chmod",
    "chown",
    "urlopen",
    "urlretrieve",
    "load_library",
    "load_inline",
    "LoadLibrary",
    "CDLL",
    "dlopen",
    "cdll",
    "_load_from_bytes",
    "loads",
    "load",
    "load_module",
    "load_state_dict_from_url",
    "load_url",
    "exec_module",
    "open",
    "open_code",
    "breakpoint",
    "FunctionType",
    "CodeType",
    "LambdaType",
    "read_pickle",
    "memmap",
    "fromfile",
    "tofile",
    "genfromtxt",
    "loadtxt",
    "savetxt",
    "save",
    "FileHandler",
    "starmap",
    "register_module",
    "locals",
    "globals",
    "vars",
];

fn is_familiar(module: &str, name: &str) -> bool {
    if FAMILIAR.iter().any(|(m, names)| *m == module && names.contains(&name)) {
        return true;
    }
    match module {
        "torch" => crate::dtype::Dtype::from_torch(name).is_some() || is_storage(name),
        "torch.cuda" | "torch.storage" => is_storage(name),
        "torch._utils" => name.starts_with("_rebuild_") && is_plain(name) && !name.contains('.'),
        "numpy.dtypes" => name.ends_with("DType") && !name.contains('.'),
        _ => is_numpy_scalar(module, name),
    }
}

fn is_storage(name: &str) -> bool {
    crate::dtype::Dtype::from_storage(name).is_some() || name == "TypedStorage"
}

fn is_numpy_scalar(module: &str, name: &str) -> bool {
    const SCALARS: &[&str] = &[
        "bool",
        "bool_",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "longdouble",
        "complex64",
        "complex128",
        "str_",
        "bytes_",
        "object_",
        "void",
        "datetime64",
        "timedelta64",
    ];
    module == "numpy" && SCALARS.contains(&name)
}

const BUILTINS: &[&str] = &[
    "set",
    "frozenset",
    "dict",
    "list",
    "tuple",
    "int",
    "long",
    "float",
    "complex",
    "bool",
    "str",
    "unicode",
    "bytes",
    "bytearray",
    "slice",
    "range",
    "xrange",
    "object",
    "Ellipsis",
    "NotImplemented",
];

/// What torch's distributed tensors are made of, under the names several versions gave them.
const DTENSOR: &[&str] = &[
    "DTensor",
    "DeviceMesh",
    "DTensorSpec",
    "TensorMeta",
    "Shard",
    "Replicate",
    "Partial",
    "_StridedShard",
    "_Partial",
    "Placement",
];

const RANDOM: &[&str] = &["__randomstate_ctor", "__generator_ctor", "__bit_generator_ctor"];

const FAMILIAR: &[(&str, &[&str])] = &[
    ("builtins", BUILTINS),
    ("__builtin__", BUILTINS),
    ("collections", &["OrderedDict", "defaultdict", "deque", "Counter"]),
    ("datetime", &["datetime", "date", "time", "timedelta", "timezone"]),
    ("decimal", &["Decimal"]),
    ("fractions", &["Fraction"]),
    ("uuid", &["UUID", "SafeUUID"]),
    (
        "pathlib",
        &[
            "Path",
            "PosixPath",
            "WindowsPath",
            "PurePath",
            "PurePosixPath",
            "PureWindowsPath",
        ],
    ),
    (
        "pathlib._local",
        &[
            "Path",
            "PosixPath",
            "WindowsPath",
            "PurePath",
            "PurePosixPath",
            "PureWindowsPath",
        ],
    ),
    ("argparse", &["Namespace"]),
    ("types", &["SimpleNamespace"]),
    ("copyreg", &["_reconstructor"]),
    ("copy_reg", &["_reconstructor"]),
    // numpy's own way to carry bytes through protocol 2.
    ("_codecs", &["encode"]),
    ("_io", &["BytesIO", "StringIO"]),
    ("io", &["BytesIO", "StringIO"]),
    ("numpy", &["ndarray", "dtype"]),
    ("numpy.core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy._core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy.core.numeric", &["_frombuffer"]),
    ("numpy._core.numeric", &["_frombuffer"]),
    ("numpy.random", &["RandomState", "Generator"]),
    ("numpy.random._pickle", RANDOM),
    ("numpy.random._mt19937", &["MT19937"]),
    ("numpy.random._pcg64", &["PCG64", "PCG64DXSM"]),
    ("numpy.random._philox", &["Philox"]),
    ("numpy.random._sfc64", &["SFC64"]),
    (
        "numpy.random.bit_generator",
        &["SeedSequence", "__pyx_unpickle_SeedSequence"],
    ),
    (
        "torch",
        &[
            "Size",
            "device",
            "dtype",
            "layout",
            "Tensor",
            "strided",
            "sparse_coo",
            "contiguous_format",
            "preserve_format",
            "Generator",
            "per_tensor_affine",
            "per_channel_affine",
        ],
    ),
    ("torch.nn.parameter", &["Parameter", "Buffer", "UninitializedParameter"]),
    ("torch._tensor", &["_rebuild_from_type_v2", "Tensor"]),
    ("torch.serialization", &["_get_layout"]),
    ("torch.torch_version", &["TorchVersion"]),
    ("torch._C", &["Size", "device", "dtype", "Generator", "_TensorBase"]),
    ("torch.distributed.tensor", DTENSOR),
    ("torch.distributed._tensor", DTENSOR),
    (
        "torch.distributed.tensor._dtensor_spec",
        &["DTensorSpec", "TensorMeta", "ShardOrderEntry"],
    ),
    (
        "torch.distributed._tensor._dtensor_spec",
        &["DTensorSpec", "TensorMeta"],
    ),
    ("torch.distributed._tensor.api", &["DTensor"]),
    ("torch.distributed.tensor._api", &["DTensor"]),
    ("torch.distributed.tensor.placement_types", DTENSOR),
    ("torch.distributed._tensor.placement_types", DTENSOR),
    ("torch.distributed._tensor.device_mesh", &["DeviceMesh"]),
    ("torch.distributed.device_mesh", &["DeviceMesh", "_MeshEnv"]),
    ("torch.distributed._mesh_layout", &["_MeshLayout"]),
    ("torch.distributed.remote_device", &["_remote_device"]),
    (
        "torch.distributed._shard.sharded_tensor.api",
        &["ShardedTensor", "ShardedTensor.ProcessGroupState"],
    ),
    (
        "torch.distributed._shard.sharded_tensor.metadata",
        &["ShardedTensorMetadata", "TensorProperties", "MEM_FORMAT_ENCODING"],
    ),
    ("torch.distributed._shard.sharded_tensor.shard", &["Shard"]),
    ("torch.distributed._shard.metadata", &["ShardMetadata"]),
    (
        "torch.distributed._shard.sharding_spec.api",
        &["EnumerableShardingSpec"],
    ),
    (
        "torch.distributed._shard.sharding_spec.chunk_sharding_spec",
        &["ChunkShardingSpec"],
    ),
    (
        "torch.distributed._shard.sharding_spec",
        &["EnumerableShardingSpec", "ChunkShardingSpec", "ShardMetadata"],
    ),
    (
        "torch.distributed.checkpoint.metadata",
        &[
            "Metadata",
            "TensorStorageMetadata",
            "TensorProperties",
            "ChunkStorageMetadata",
            "BytesStorageMetadata",
            "MetadataIndex",
            "StorageMeta",
            "_MEM_FORMAT_ENCODING",
        ],
    ),
    (
        "torch.distributed.checkpoint.filesystem",
        &["_StorageInfo", "_StoragePrefix"],
    ),
    (
        "torch.optim.lr_scheduler",
        &[
            "LambdaLR",
            "CosineAnnealingLR",
            "LinearLR",
            "ConstantLR",
            "SequentialLR",
        ],
    ),
];
