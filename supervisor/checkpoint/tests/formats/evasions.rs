//! Ways by which pickles are known to slip past scanners. Each is a test of its own; none may come out whole.
//!
//! The names in [`PUBLISHED`] are those of advisories and reports about other scanners; each is tried in every way in
//! which a pickle can import a name.

use crate::build::{codes, full, text, torch_zip};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::Verdict;

fn judged(pickle: &[u8]) -> FileReport {
    full(FileKind::TorchZip, &torch_zip(pickle, &[]).bytes())
}

/// One test for each way: its name, the pickle, what must come out.
macro_rules! pickles {
    ($($name:ident: $pickle:expr => $verdict:ident;)*) => {
        $(#[test]
        fn $name() {
            let report = judged(&$pickle[..]);
            assert_eq!(report.verdict, Verdict::$verdict, "{:?}", report.findings);
        })*
    };
}

pickles! {
    // The memo: scanners that guess what a slot holds guess wrong.
    stack_global_from_binget: b"\x80\x04\x8c\x02osq\x05\x8c\x06systemq\x0600h\x05h\x06\x93\x8c\x02id\x85R." => Unsafe;
    stack_global_from_long_slots: b"\x80\x04\x8c\x02osr\x00\x01\x00\x00\x8c\x06systemr\x01\x01\x00\x0000j\x00\x01\x00\x00j\x01\x01\x00\x00\x93\x8c\x02id\x85R." => Unsafe;
    stack_global_from_far_slots: b"\x80\x04\x8c\x02osr\x00\x00\x00\x7f\x8c\x06systemr\x01\x00\x00\x7f00j\x00\x00\x00\x7fj\x01\x00\x00\x7f\x93\x8c\x02id\x85R." => Unsafe;
    slots_by_put_and_by_memoize: b"\x80\x04\x8c\x02osq\x00\x8c\x06systemq\x01\x8c\x05torch\x94\x8c\x04Size\x940000h\x00h\x01\x93\x8c\x02id\x85R." => Unsafe;
    slot_filled_twice: b"\x80\x04\x8c\x04mathq\x000\x8c\x02osq\x000h\x00\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    slot_named_in_text: b"Vos\np07\n0Vsystem\np8\n0g7\ng8\n\x93(Vid\ntR." => Unsafe;
    names_between_others: b"\x80\x04\x8c\x02os\x8c\x06system\x8c\x05torch\x8c\x04Size00\x93\x8c\x02id\x85R." => Unsafe;
    names_duplicated: b"\x80\x04\x8c\x05posix2\x8c\x06system\x93\x8c\x02id\x85R0." => Unsafe;
    names_from_a_mark: b"\x80\x04(\x8c\x04junk1\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    names_as_old_strings: b"U\x05posixU\x06system\x93(U\x02idtR." => Unsafe;
    names_as_long_old_strings: b"T\x05\x00\x00\x00posixT\x06\x00\x00\x00system\x93(U\x02idtR." => Unsafe;
    names_as_bytes: b"\x80\x04C\x05posixC\x06system\x93\x8c\x02id\x85R." => Unsafe;
    names_that_a_call_gives: b"\x80\x04cbuiltins\nstr\n(C\x05posixtR\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    name_with_a_carriage_return: b"cos\r\nsystem\n(S'id'\ntR." => Unsafe;
    name_with_a_blank: b"c os\nsystem\n(S'id'\ntR." => Unsafe;
    name_with_a_null: b"\x80\x04\x8c\x03os\x00\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    name_beyond_ascii: b"\x80\x04\x8c\x06\xef\xbd\x8f\xef\xbd\x93\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    name_that_is_no_text: b"c\xff\xfeos\nsystem\n(S'id'\ntR." => Unsafe;
    name_with_dots_only: b"\x80\x04\x8c\x02..\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    relative_module: b"\x80\x04\x8c\x03.os\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    frame_over_everything: b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R." => Unsafe;
    protocol_told_in_the_middle: b"\x80\x02}\x80\x040cposix\nsystem\n(S'id'\ntR." => Unsafe;

    // Calls in other clothes.
    instance_of_protocol_0: b"(S'id'\niposix\nsystem\n." => Unsafe;
    object_of_protocol_1: b"(cposix\nsystem\nS'id'\no." => Unsafe;
    extension_of_one_byte: b"\x80\x02\x82\x07(S'id'\ntR." => Unsafe;
    extension_of_two_bytes: b"\x80\x02\x83\x07\x00(S'id'\ntR." => Unsafe;
    extension_of_four_bytes: b"\x80\x02\x84\x07\x00\x00\x00(S'id'\ntR." => Unsafe;
    extension_registered_first: b"\x80\x02ccopyreg\nadd_extension\n(S'posix'\nS'system'\nK\x07tR0\x82\x07(S'id'\ntR." => Unsafe;
    state_with_a_setter: b"\x80\x02cargparse\nNamespace\n)\x81}X\x0c\x00\x00\x00__setstate__cmy.module\nfunction\nsbX\x02\x00\x00\x00idb." => Unsafe;
    state_with_a_setter_in_slots: b"\x80\x02cargparse\nNamespace\n)\x81N}X\x0c\x00\x00\x00__setstate__cmy.module\nfunction\ns\x86bX\x02\x00\x00\x00idb." => Unsafe;
    state_with_a_setter_by_a_call: b"\x80\x02cargparse\nNamespace\n)\x81cbuiltins\ndict\n]X\x0c\x00\x00\x00__setstate__cmy.module\nfunction\n\x86a\x85RbX\x02\x00\x00\x00idb." => Unsafe;
    state_with_an_append: b"\x80\x02cargparse\nNamespace\n)\x81}X\x06\x00\x00\x00appendcmy.module\nfunction\nsbX\x02\x00\x00\x00ida." => Unsafe;
    state_with_an_extend: b"\x80\x02cargparse\nNamespace\n)\x81}X\x06\x00\x00\x00extendcmy.module\nfunction\nsb(X\x02\x00\x00\x00ide." => Unsafe;
    state_with_an_add: b"\x80\x04cargparse\nNamespace\n)\x81}X\x03\x00\x00\x00addcmy.module\nfunction\nsb(X\x02\x00\x00\x00id\x90." => Unsafe;
    state_for_a_class: b"\x80\x02cmy.module\nClass\n}X\x0c\x00\x00\x00__setstate__cmy.module\nfunction\nsb." => Unsafe;
    function_given_to_torch: b"ctorch._tensor\n_rebuild_from_type_v2\n(cmy.module\nfunction\nN)NtR." => Unsafe;
    function_given_to_defaultdict: b"ccollections\ndefaultdict\n(cmy.module\nfunction\ntR." => Unsafe;
    function_given_to_a_rebuilder: b"cmy.module\n_rebuild\n(cmy.module\nfunction\ntR." => Unsafe;
    function_of_the_script: b"c__main__\nstart\n(S'id'\ntR." => Unsafe;
    script_of_a_package: b"cmy.package.__main__\nMain\n)\x81." => Unsafe;
    method_of_a_class: b"\x80\x04\x8c\x09my.module\x8c\x09Class.run\x93\x8c\x02id\x85R." => Unsafe;
    method_by_getattr: b"cbuiltins\ngetattr\n(cmy.module\nClass\nS'run'\ntR(S'id'\ntR." => Unsafe;
    getattr_through_the_memo: b"cbuiltins\ngetattr\np0\n0g0\n(cmy.module\nClass\nS'run'\ntR(S'id'\ntR." => Unsafe;

    // A pickle in a pickle.
    nested_in_torch: b"ctorch.storage\n_load_from_bytes\n(C\x01.tR." => Unsafe;
    nested_in_pickle: b"cpickle\nloads\n(C\x01.tR." => Unsafe;
    nested_in_c_pickle: b"c_pickle\nloads\n(C\x01.tR." => Unsafe;
    nested_in_joblib: b"cjoblib\nload\n(S'x'\ntR." => Unsafe;
    nested_in_dill: b"cdill._dill\nloads\n(C\x01.tR." => Unsafe;
    nested_in_cloudpickle: b"ccloudpickle\nloads\n(C\x01.tR." => Unsafe;
    nested_in_ray: b"cray.cloudpickle.cloudpickle_fast\nsubimport\n(S'os'\ntR." => Unsafe;
    nested_in_numpy: b"cnumpy\nload\n(S'x'\nNI01\ntR." => Unsafe;

    // Before, behind and between.
    behind_an_unknown_opcode: b"\x80\x02}\xff" => Damaged;
    before_an_unknown_opcode: b"cposix\nsystem\n(S'id'\ntR\xff" => Unsafe;
    before_the_end_of_the_stream: b"cposix\nsystem\n(S'id'\ntR" => Unsafe;
    before_an_empty_stack: b"cposix\nsystem\n(S'id'\ntR000." => Unsafe;
    before_a_slot_that_is_not_there: b"cposix\nsystem\n(S'id'\ntRh\x63." => Unsafe;
    before_a_buffer_outside: b"\x80\x05cposix\nsystem\n(S'id'\ntR\x97." => Unsafe;
    after_the_stop: b"\x80\x02}.cposix\nsystem\n(S'id'\ntR." => Damaged;
    dropped_from_the_stack: b"cposix\nsystem\n(S'id'\ntR0}." => Unsafe;
    dropped_with_a_mark: b"(cposix\nsystem\n(S'id'\ntR1}." => Unsafe;
    key_of_a_dict: b"}cposix\nsystem\n(S'id'\ntRNs." => Unsafe;
    persistent_id: b"\x80\x02(X\x07\x00\x00\x00storagecposix\nsystem\n(S'id'\ntRtQ." => Unsafe;
}

/// Names that reports about other scanners show to run code, programs or to reach files and the network when called.
const PUBLISHED: &str = "
    builtins: eval exec compile open __import__ getattr setattr apply breakpoint globals vars map filter help input
    __builtin__: eval execfile apply reduce file open input
    os: system popen execv posix_spawn putenv remove
    posix: system popen fork
    nt: system startfile
    subprocess: Popen run call check_output getoutput
    commands: getoutput getstatusoutput
    _posixsubprocess: fork_exec
    pty: spawn fork
    sys: exit settrace modules
    runpy: run_path run_module _run_code
    importlib: import_module reload
    importlib.util: spec_from_loader module_from_spec
    _frozen_importlib: _load
    imp: load_source load_dynamic
    pkgutil: resolve_name
    zipimport: zipimporter
    types: CodeType FunctionType new_class
    marshal: loads load
    functools: partial reduce cached_property
    operator: attrgetter itemgetter methodcaller call
    _operator: attrgetter methodcaller
    itertools: starmap accumulate
    contextlib: ExitStack
    copyreg: add_extension pickle __newobj__
    copy: _reconstruct
    pickle: loads Unpickler
    _pickle: loads
    shelve: open
    dbm.dumb: open
    code: interact InteractiveInterpreter InteractiveInterpreter.runcode
    codeop: compile_command
    cmd: Cmd
    pdb: run Pdb set_trace
    bdb: Bdb Bdb.run
    cProfile: run runctx
    profile: run runctx Profile.run Profile.runctx
    timeit: timeit repeat Timer
    trace: Trace.run Trace.runctx
    doctest: debug_script testfile
    unittest.mock: patch
    pydoc: pipepager tempfilepager locate
    _pyrepl.pager: pipe_pager tempfile_pager
    webbrowser: open get
    antigravity: geohash
    idlelib.run: Executive.runcode
    idlelib.pyshell: ModifiedInterpreter.runcode ModifiedInterpreter.runcommand
    idlelib.autocomplete: AutoComplete.get_entity AutoComplete.fetch_completions
    idlelib.calltip: get_entity Calltip.fetch_tip
    idlelib.debugobj: ObjectTreeItem.SetText
    lib2to3.pgen2.grammar: Grammar.loads
    lib2to3.pgen2.pgen: ParserGenerator.make_label
    distutils.spawn: spawn
    distutils.file_util: write_file
    setuptools: setup
    setuptools._distutils.spawn: spawn
    ensurepip: _run_pip bootstrap
    pip: main
    pip._internal: main
    pip._internal.cli.main: main
    venv: create
    asyncio: create_subprocess_shell run
    asyncio.unix_events: _UnixSubprocessTransport._start
    multiprocessing.util: spawnv_passfds
    multiprocessing.reduction: rebuild_connection
    multiprocess.util: spawnv_passfds
    concurrent.futures.process: _rebuild_exc
    threading: Thread Timer
    _thread: start_new_thread
    atexit: register
    signal: signal
    weakref: finalize ref
    _interpreters: create run_string exec
    _xxsubinterpreters: create run_string
    _testcapi: run_in_subinterp
    test.support.script_helper: assert_python_ok
    ctypes: CDLL PyDLL
    _ctypes: dlopen
    cffi: FFI
    mmap: mmap
    shutil: rmtree move
    tempfile: mkstemp
    io: FileIO open open_code
    _io: FileIO open
    codecs: open
    fileinput: input
    linecache: getlines
    logging: FileHandler
    logging.config: dictConfig listen
    logging.handlers: SocketHandler
    tarfile: open
    zipfile: ZipFile
    sqlite3: connect
    socket: create_connection socket
    ssl: get_server_certificate
    urllib.request: urlopen urlretrieve
    urllib: urlopen
    httplib: HTTPSConnection
    http.client: HTTPSConnection
    ftplib: FTP
    smtplib: SMTP
    imaplib: IMAP4_stream
    xmlrpc.client: ServerProxy
    requests.api: get
    aiohttp.client: ClientSession
    uuid: _get_command_stdout
    _osx_support: _read_output _find_build_tool
    _aix_support: _read_cmd_output
    mailcap: findmatch
    pipes: Template
    platform: popen
    sysconfig: get_platform
    site: addsitedir main
    gc: get_objects
    inspect: getattr_static
    typing: get_type_hints _eval_type
    dataclasses: make_dataclass _create_fn
    collections: namedtuple
    enum: global_enum
    random: shuffle _os.system
    re: sub template
    string: Formatter.format
    cloudpickle.cloudpickle: _make_function _builtin_type subimport _make_cell
    dill._dill: _create_function _import_module
    joblib: load
    pandas: read_pickle eval
    pandas.io.pickle: read_pickle
    sympy: sympify
    hydra.utils: instantiate get_method
    hydra._internal.utils: _locate
    transformers.dynamic_module_utils: get_class_from_dynamic_module
    psutil: Popen
    IPython: start_ipython
    jinja2: Template
    yaml: unsafe_load
    numexpr: evaluate
    torch: load compile serialization.os.system hub.load
    torch.serialization: load
    torch.storage: _load_from_bytes
    torch.hub: load load_state_dict_from_url
    torch.jit: load
    torch.jit.unsupported_tensor_ops: execWrapper
    torch.package: PackageImporter
    torch.utils.collect_env: run run_and_read_all
    torch.utils._config_module: ConfigModule ConfigModule.load_config load_config
    torch.utils.bottleneck.__main__: run_cprofile run_autograd_prof
    torch.utils.data.datapipes.utils.decoder: basichandlers
    torch.utils.cpp_extension: load load_inline
    torch._dynamo.guards: GuardBuilder.get
    torch._inductor.codecache: compile_file
    torch.fx.experimental.symbolic_shapes: ShapeEnv.evaluate_guards_expression
    torch.fx.graph_module: reduce_graph_module
    torch.multiprocessing.reductions: rebuild_storage_fd
    torch.distributed.elastic.rendezvous.api: basichandlers
    torch.distributed.rpc.internal: PythonUDF
    torch._C: PyTorchFileWriter CompilationUnit _jit_set_profiling_mode
    torch.UntypedStorage: from_file
    numpy: load save fromfile
    numpy.testing._private.utils: runstring
    numpy.f2py: compile
    numpy.f2py.crackfortran: getlincoef _eval_length myeval
    numpy.distutils.exec_command: exec_command
    numpy.lib.npyio: load DataSource
";

/// Every way to import `module.name` and call it with one string.
fn ways(module: &str, name: &str) -> Vec<(&'static str, Vec<u8>)> {
    let old = |before: &str, after: &str| format!("{before}{module}\n{name}\n{after}").into_bytes();
    let mut stacked = b"\x80\x04".to_vec();
    text(&mut stacked, module);
    text(&mut stacked, name);
    let mut stored = b"\x80\x04".to_vec();
    text(&mut stored, name);
    stored.push(0x94);
    text(&mut stored, module);
    stored.extend(b"\x940\x30h\x01h\x00\x93\x8c\x02id\x85R.");
    stacked.extend(b"\x93\x8c\x02id\x85R.");
    vec![
        ("GLOBAL", old("c", "(S'id'\ntR.")),
        ("INST", old("(S'id'\ni", ".")),
        ("OBJ", old("(c", "S'id'\no.")),
        ("STACK_GLOBAL", stacked),
        ("memo", stored),
    ]
}

#[test]
fn published_names_are_known_in_every_way_of_importing() {
    let mut count = 0;
    for (module, names) in PUBLISHED.lines().filter_map(|l| l.trim().split_once(": ")) {
        for name in names.split(' ') {
            for (way, pickle) in ways(module, name) {
                let report = judged(&pickle);
                assert_eq!(
                    report.verdict,
                    Verdict::Unsafe,
                    "{way} {module}.{name}: {:?}",
                    report.findings
                );
            }
            count += 1;
        }
    }
    assert!(count > 250, "{count}");
}

#[test]
fn a_thousand_thousand_names_are_no_work_for_us() {
    let names: Vec<u8> = (0..70_000).flat_map(|n| format!("cm{n}\nC\n0").into_bytes()).collect();
    let report = judged(&[names.as_slice(), b"N."].concat());
    assert_eq!(report.verdict, Verdict::Unsafe);
    assert!(codes(&report).contains(&"limit_reached"));
    assert!(report.findings.len() <= 65);
}
