//! The danger lists: words separated by blanks.

/// Modules that are dangerous under any prefix.
pub(super) const HARD_ROOTS: &str = "
    os posix nt subprocess sys builtins runpy importlib shutil socket ctypes pty pdb multiprocessing
    posixsubprocess commands popen2 winreg pickle cPickle marshal imp cloudpickle dill joblib multiprocess
    interpreters xxsubinterpreters
";

/// Python's own top-level modules in all versions since 3.8, without the few that plain data uses.
pub(super) const STANDARD_ROOTS: &str = "
    _abc _aix_support _android_support _apple_support _ast _ast_unparse _asyncio _bisect _blake2 _bootlocale
    _bootsubprocess _bz2 _codecs _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw
    _collections _collections_abc _colorize _compat_pickle _compression _contextvars _crypt _csv _ctypes
    _ctypes_test _curses _curses_panel _dbm _dummy_thread _dummy_threading _elementtree _frozen_importlib
    _frozen_importlib_external _functools _gdbm _hashlib _heapq _hmac _imp _interpchannels _interpqueues
    _interpreters _io _ios_support _json _locale _lsprof _lzma _markupbase _md5 _msi _multibytecodec
    _multiprocessing _opcode _opcode_metadata _operator _osx_support _overlapped _pickle _posixshmem
    _posixsubprocess _py_abc _py_warnings _pydatetime _pydecimal _pyio _pylong _pyrepl _queue _remote_debugging
    _scproxy _sha1 _sha256 _sha3 _sha512 _signal _sitebuiltins _socket _sqlite3 _sre _ssl _stat _statistics
    _string _strptime _suggestions _symtable _sysconfig _testbuffer _testcapi _testclinic _testimportmultiple
    _testinternalcapi _testmultiphase _thread _threading_local _tkinter _tokenize _tracemalloc _typing _tzpath
    _uuid _warnings _weakref _weakrefset _winapi _xxinterpchannels _xxinterpqueues _xxsubinterpreters _xxtestfuzz
    _zstd aifc annotationlib antigravity argparse ast asynchat asyncio asyncore atexit audioop base64 bdb binascii
    binhex bisect builtins bz2 cgi cgitb chunk cmd code codecs codeop colorsys compileall compression concurrent
    configparser contextlib contextvars copy copyreg cProfile crypt csv ctypes curses dbm difflib dis distutils
    doctest dummy_threading email encodings ensurepip faulthandler fcntl filecmp fileinput fnmatch formatter
    ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http
    idlelib imaplib imghdr imp importlib inspect io itertools keyword lib2to3 linecache locale lzma macpath
    mailbox mailcap marshal mimetypes mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt ntpath
    nturl2path opcode operator optparse os ossaudiodev parser pathlib pdb pickle pickletools pipes pkgutil
    platform plistlib poplib posix posixpath pprint profile profiling pstats pty pwd py_compile pyclbr pydoc
    pydoc_data pyexpat queue quopri readline reprlib resource rlcompleter runpy sched secrets select selectors
    shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile
    sre_constants sre_parse ssl stat stringprep subprocess sunau symbol symtable sys sysconfig syslog tabnanny
    tarfile telnetlib tempfile termios test textwrap this threading timeit tkinter token tokenize tomllib trace
    traceback tracemalloc tty turtle turtledemo types unicodedata unittest urllib uu uuid venv warnings wave
    weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib json cmath
";

/// Their names in Python 2, as far as loading still translates them.
pub(super) const OLD_ROOTS: &str = "
    __builtin__ __builtins__ anydbm BaseHTTPServer CGIHTTPServer commands compiler Cookie cookielib ConfigParser
    copy_reg cPickle dbhash Dialog DocXMLRPCServer dumbdbm dummy_thread FileDialog gdbm htmlentitydefs HTMLParser
    httplib ihooks imputil popen2 posixfile Queue repr rexec robotparser ScrolledText SimpleDialog
    SimpleHTTPServer SimpleXMLRPCServer SocketServer thread Tix tkColorChooser tkCommonDialog Tkconstants Tkdnd
    tkFileDialog tkFont Tkinter tkMessageBox tkSimpleDialog ttk urllib2 urlparse whichdb _winreg xmlrpclib _abcoll
    markupbase
";

/// Third-party top-level modules that load or run code, start programs or reach the network.
pub(super) const FOREIGN_ROOTS: &str = "
    aiohttp boto3 botocore cffi cloudpickle cython Cython dask dill execnet fabric fire gevent httpx hydra
    importlib_metadata invoke IPython ipykernel jedi jinja2 joblib jupyter_client mako multiprocess nbconvert nose
    numba numexpr paramiko pexpect pip pkg_resources plumbum psutil ptyprocess pycparser pytest _pytest
    pythoncom pyximport requests rpyc setuptools smart_open subprocess32 sympy twisted uvicorn urllib3
    virtualenv wandb werkzeug wheel win32api win32com yaml zmq _distutils_hack
";

/// Modules inside trusted packages that load or run code.
pub(super) const DANGEROUS_MODULES: &str = "
    torch.hub torch.jit torch.package torch.compiler torch._dynamo torch._inductor torch.multiprocessing
    torch.utils.cpp_extension torch.utils.bottleneck torch.utils.collect_env torch.utils._config_module
    torch.utils.model_zoo torch.utils.data.datapipes torch.utils.file_baton torch.utils.model_dump
    torch.utils.tensorboard torch.utils.benchmark torch.utils.hipify torch.utils.throughput_benchmark
    torch.testing torch.onnx torch.fx torch.export torch.classes torch.ops torch._ops torch._classes torch.library
    torch.profiler torch.distributed.elastic torch.distributed.run torch.distributed.launch
    torch.distributed.launcher torch.distributed.rpc torch._lazy torch._functorch torch._export numpy.f2py
    numpy.testing numpy.distutils numpy.ctypeslib numpy.lib.npyio numpy.lib._npyio_impl logging.config
    logging.handlers numpy.core._internal transformers.dynamic_module_utils transformers.utils.import_utils
    pandas.io pandas.core.computation scipy.io torch.utils.backend_registration torch.utils.mobile_optimizer
    torch.utils.viz torch.utils.dlpack torch.contrib torch.cuda._sanitizer torch.monitor torch._appdirs
    torch._sources torch._jit_internal torch._higher_order_ops torch._vendor torch._strobelight torch._logging
    torch._numpy torch._decomp torch._custom_op torch._deploy torch._namedtensor_internals
    torch._python_dispatcher torch.distributed.argparse_util torch.distributed.nn.jit torch.distributed._tools
    numpy.lib._datasource numpy.lib._utils_impl numpy.lib.utils numpy.lib.format numpy.lib._format_impl
    numpy._core._internal numpy._build_utils numpy._pyinstaller numpy._pytesttester numpy.conftest numpy.compat
    numpy.setup transformers.commands transformers.utils.hub transformers.file_utils
    transformers.testing_utils transformers.tools transformers.agents huggingface_hub.utils
    huggingface_hub.commands huggingface_hub.cli pandas.util pandas.testing pandas.plotting ray.cloudpickle
    ray._private ray.util ray.dashboard ray.autoscaler ray.job_submission ray.runtime_env datasets.load
    datasets.packaged_modules accelerate.commands accelerate.launchers deepspeed.launcher
    deepspeed.autotuning verl.utils.import_utils verl.utils.fs verl.utils.hdfs_io vllm.utils areal.utils.dynamic_import
    omegaconf.resolvers omegaconf._utils networkx.utils wandb.sdk PIL.ImageShow PIL.ImageMath PIL.EpsImagePlugin
    torch._C._aoti torch._C._autograd torch._C._distributed_rpc torch._C._dynamo torch._C._export
    torch._C._functorch torch._C._itt torch._C._jit torch._C._lazy torch._C._monitor torch._C._profiler
    torch._C._te torch._C._verbose torch._aoti torch._aot torch._guards torch._library torch._utils_internal
    torch._prims torch._tensor_str torch._weights_only_unpickler torch.backends.xeon torch.cuda._memory_viz
    torch.cuda._utils torch.distributed.debug torch.distributed.checkpoint._experimental
    torch.distributed.flight_recorder torch.distributed.nn.api torch.distributed._symmetric_memory
    torch.distributed._local_tensor torch.nn.attention._fa3 torch.nn.attention._fa4
    torch.nn.attention._registry torch.nn.utils._deprecation_utils torch.utils._content_store
    torch.utils._get_clean_triton torch.utils._strobelight torch.utils._traceback torch.utils._triton
    torch.utils._cpp_extension_versioner torch.utils._import_utils torch.utils._debug_mode
    torch.utils.data._utils.worker torch.utils.data.graph transformers.cli transformers.exporters
    transformers.monkey_patching transformers.integrations.hub_kernels transformers.pipelines
    transformers.models.auto.auto_factory transformers.utils.doc
";

/// Names that run or fetch code, whatever module they are taken from.
pub(super) const DANGEROUS_NAMES: &str = "
    system popen Popen popen2 popen3 popen4 spawn spawnl spawnv spawnve spawnvp fork forkpty execv execve execl
    execvp check_output check_call getoutput getstatusoutput startfile eval exec execfile compile getattr setattr
    delattr __import__ import_module __getattribute__ __getattr__ __setattr__ __globals__ __builtins__
    __subclasses__ __class__ __bases__ __mro__ __base__ __dict__ __code__ __call__ __reduce__ __reduce_ex__
    __init__ __loader__ __spec__ attrgetter methodcaller itemgetter partial partialmethod run_path run_module
    runcode runsource runctx runstring rmtree unlink remove removedirs rmdir chmod chown urlopen urlretrieve
    load_library load_inline LoadLibrary CDLL dlopen cdll _load_from_bytes loads load load_module
    load_state_dict_from_url load_url exec_module open open_code breakpoint FunctionType CodeType LambdaType
    read_pickle memmap fromfile tofile genfromtxt loadtxt savetxt save FileHandler starmap register_module locals
    globals vars dump dumps from_file from_buffer namedtuple pipepager tempfilepager PyTorchFileWriter
    PyTorchFileReader ScriptModule CompilationUnit PackageImporter PackageExporter TCPStore FileStore HashStore
    instantiate get_method get_class resolve_name locate sympify parse_expr lambdify run_string run_subprocess
    func_load exec_command run_command call __setstate__ __del__ __enter__ __new__ __getitem__ __iter__ __next__
    FileIO OpenWrapper _ufunc_reconstruct _restore_function render_call storage_to_tensor_type
    set_default_tensor_type _augment_memory_snapshot_stack_traces _raw_device_count_nvml _raw_device_uuid_nvml
    _LazyAutoMapping _LazyConfigMapping _LazyLoadAllMappings _LazyAutoProcessorMapping
    add_newdoc maybe_replace_from_package
";

/// Public libraries, whose code-loading names are recognized by their words; in addition to [`DANGEROUS_MODULES`].
pub(super) const LIBRARY_ROOTS: &str = "
    torch torchvision torchaudio torchtext torchdata torchao torchtune torchtitan torchmetrics functorch triton
    numpy scipy pandas pyarrow sklearn networkx transformers accelerate peft trl datasets tokenizers safetensors
    huggingface_hub sentence_transformers diffusers deepspeed megatron apex transformer_engine flash_attn xformers
    bitsandbytes mbridge nvidia_resiliency_ext vllm sglang ray tensordict omegaconf lightning
    pytorch_lightning lightning_fabric lightning_utilities keras tensorflow jax jaxlib flax optax orbax PIL cv2
    matplotlib mmengine fsspec swift llamafactory
";

/// Words in the name of a function that finds, loads or runs code.
pub(super) const FUNCTION_WORDS: &str = "
    import imports importer importable imported load loads loaded loader loaders loading lib library libraries dll
    dlopen dotted resolve resolves resolved resolver locate eval exec execute executor run runs runner compile
    compiled compiler jit script scripted scripting aoti inductor spawn launch launcher pickle pickled pickler
    unpickle unpickled unpickler deserialize deserialized unserialize hub pretrained download subprocess shell
    command cmd popen invoke plugin plugins pluggable module modules class classes attribute getattribute getattr
    object objects function extension server worker backends entrypoint entrypoints
    handler callback attach
";

/// Words in the name of a class that does such things.
pub(super) const CLASS_WORDS: &str = "
    loader importer runner launcher unpickler pickler pluggable compiler executor library script server finder aoti
    dll remote
";
