//! The tables: words separated by blanks, and for familiar names one module a line.

/// Modules that are dangerous under any prefix.
pub(super) const HARD_ROOTS: &str = "
    os posix nt subprocess sys builtins runpy importlib shutil socket ctypes pty pdb multiprocessing
    posixsubprocess commands popen2 winreg pickle cPickle marshal imp
";

/// Top-level modules that no training state names.
pub(super) const DANGEROUS_ROOTS: &str = "
    __builtin__ __builtins__ aiohttp argparse ast asyncio asyncore atexit bdb cProfile cffi cloudpickle cmd
    code codeop codecs compileall concurrent configparser contextlib copy_reg copyreg dask dbm dill distutils
    doctest ensurepip faulthandler fcntl fileinput ftplib functools gc getpass glob http
    httplib httpx idlelib imaplib inspect io IPython joblib lib2to3 linecache mailcap mmap modulefinder
    nntplib ntpath operator pathlib optparse paramiko pickletools pip pkg_resources pkgutil platform poplib posixpath
    profile psutil py_compile pydoc requests rlcompleter sched setuptools shelve shlex signal site smtplib
    smtpd socketserver sqlite3 ssl sysconfig tarfile telnetlib tempfile thread _thread threading timeit
    tkinter trace tracemalloc types unittest urllib urllib2 urllib3 urlparse uu uuid venv virtualenv
    webbrowser wsgiref xmlrpc xmlrpclib yaml zipapp zipfile zipimport _osx_support _aix_support _pyrepl
    _operator _io _codecs _collections_abc _functools _frozen_importlib _frozen_importlib_external _imp
    _bootsubprocess _compat_pickle _pydecimal _ctypes _socket _winapi _sitebuiltins pexpect ptyprocess plumbum
    cython Cython pyximport pythoncom win32com win32api boto3 botocore
    anydbm dumbdbm dbhash gdbm whichdb SocketServer BaseHTTPServer CGIHTTPServer SimpleHTTPServer
    SimpleXMLRPCServer DocXMLRPCServer Tkinter robotparser
";

/// Modules inside trusted packages that load or run code.
pub(super) const DANGEROUS_MODULES: &str = "
    torch.hub torch.jit torch.package torch.compiler torch._dynamo torch._inductor torch.multiprocessing
    torch.utils.cpp_extension torch.utils.bottleneck torch.utils.collect_env torch.utils._config_module
    torch.utils.model_zoo torch.utils.data.datapipes torch.utils.file_baton torch.utils.model_dump
    torch.utils.tensorboard torch.utils.benchmark torch.utils.hipify torch.utils.throughput_benchmark
    torch.testing torch.onnx torch.fx torch.export torch.classes torch.ops torch._ops torch._classes
    torch.library torch.profiler torch.distributed.elastic torch.distributed.run torch.distributed.launch
    torch.distributed.launcher torch.distributed.rpc torch._lazy torch._functorch torch._export numpy.f2py
    numpy.testing numpy.distutils numpy.ctypeslib numpy.lib.npyio numpy.lib._npyio_impl logging.config
    logging.handlers numpy.core._internal transformers.dynamic_module_utils transformers.utils.import_utils
    pandas.io pandas.core.computation scipy.io
";

/// Names that run code or fetch it, whatever module they are taken from.
pub(super) const DANGEROUS_NAMES: &str = "
    system popen Popen popen2 popen3 popen4 spawn spawnl spawnv spawnve spawnvp fork forkpty execv execve
    execl execvp check_output check_call getoutput getstatusoutput startfile eval exec execfile compile
    getattr setattr delattr __import__ import_module __getattribute__ __getattr__ __setattr__ __globals__
    __builtins__ __subclasses__ __class__ __bases__ __mro__ __base__ __dict__ __code__ __call__ __reduce__
    __reduce_ex__ __init__ __loader__ __spec__ attrgetter methodcaller itemgetter partial partialmethod
    run_path run_module runcode runsource runctx runstring rmtree unlink remove removedirs rmdir chmod chown
    urlopen urlretrieve load_library load_inline LoadLibrary CDLL dlopen cdll _load_from_bytes loads load
    load_module load_state_dict_from_url load_url exec_module open open_code breakpoint FunctionType CodeType
    LambdaType read_pickle memmap fromfile tofile genfromtxt loadtxt savetxt save FileHandler starmap
    register_module locals globals vars dump dumps from_file from_buffer namedtuple
";

/// Names that torch, numpy and plain data use, by module.
pub(super) const FAMILIAR: &str = "
builtins: set frozenset dict list tuple int long float complex bool str unicode bytes bytearray slice range
builtins: xrange object Ellipsis NotImplemented
__builtin__: set frozenset dict list tuple int long float complex bool str unicode bytes bytearray slice range
__builtin__: xrange object Ellipsis NotImplemented
collections: OrderedDict defaultdict deque Counter
datetime: datetime date time timedelta timezone
decimal: Decimal
fractions: Fraction
uuid: UUID SafeUUID
pathlib: Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath
pathlib._local: Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath
argparse: Namespace
types: SimpleNamespace
copyreg: _reconstructor
copy_reg: _reconstructor
_codecs: encode
_io: BytesIO StringIO
io: BytesIO StringIO
numpy: ndarray dtype bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64
numpy: longdouble complex64 complex128 str_ bytes_ object_ void datetime64 timedelta64
numpy.core.multiarray: _reconstruct scalar
numpy._core.multiarray: _reconstruct scalar
numpy.core.numeric: _frombuffer
numpy._core.numeric: _frombuffer
numpy.random: RandomState Generator
numpy.random._pickle: __randomstate_ctor __generator_ctor __bit_generator_ctor
numpy.random._mt19937: MT19937
numpy.random._pcg64: PCG64 PCG64DXSM
numpy.random._philox: Philox
numpy.random._sfc64: SFC64
numpy.random.bit_generator: SeedSequence __pyx_unpickle_SeedSequence
torch: Size device dtype layout Tensor strided sparse_coo contiguous_format preserve_format Generator
torch: per_tensor_affine per_channel_affine
torch.nn.parameter: Parameter Buffer UninitializedParameter
torch._tensor: _rebuild_from_type_v2 Tensor
torch.serialization: _get_layout
torch.torch_version: TorchVersion
torch._C: Size device dtype Generator _TensorBase
torch.distributed.tensor: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial _StridedShard
torch.distributed.tensor: _Partial Placement
torch.distributed._tensor: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial _StridedShard
torch.distributed._tensor: _Partial Placement
torch.distributed.tensor._dtensor_spec: DTensorSpec TensorMeta ShardOrderEntry
torch.distributed._tensor._dtensor_spec: DTensorSpec TensorMeta
torch.distributed._tensor.api: DTensor
torch.distributed.tensor._api: DTensor
torch.distributed.tensor.placement_types: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial
torch.distributed.tensor.placement_types: _StridedShard _Partial Placement
torch.distributed._tensor.placement_types: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial
torch.distributed._tensor.placement_types: _StridedShard _Partial Placement
torch.distributed._tensor.device_mesh: DeviceMesh
torch.distributed.device_mesh: DeviceMesh _MeshEnv
torch.distributed._mesh_layout: _MeshLayout
torch.distributed.remote_device: _remote_device
torch.distributed._shard.sharded_tensor.api: ShardedTensor ShardedTensor.ProcessGroupState
torch.distributed._shard.sharded_tensor.metadata: ShardedTensorMetadata TensorProperties MEM_FORMAT_ENCODING
torch.distributed._shard.sharded_tensor.shard: Shard
torch.distributed._shard.metadata: ShardMetadata
torch.distributed._shard.sharding_spec.api: EnumerableShardingSpec
torch.distributed._shard.sharding_spec.chunk_sharding_spec: ChunkShardingSpec
torch.distributed._shard.sharding_spec: EnumerableShardingSpec ChunkShardingSpec ShardMetadata
torch.distributed.checkpoint.metadata: Metadata TensorStorageMetadata TensorProperties ChunkStorageMetadata
torch.distributed.checkpoint.metadata: BytesStorageMetadata MetadataIndex StorageMeta _MEM_FORMAT_ENCODING
torch.distributed.checkpoint.filesystem: _StorageInfo _StoragePrefix
torch.optim.lr_scheduler: LambdaLR CosineAnnealingLR LinearLR ConstantLR SequentialLR
";
