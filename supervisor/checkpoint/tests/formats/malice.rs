//! Pickles that would run something when loaded, and the ways to hide it.

use crate::build::{codes, full, state_dict, text, torch_zip};
use supervise_checkpoint::pickle::{PickleValue, read};
use supervise_checkpoint::{FileKind, FileReport, InspectLimits};
use supervise_core::checkpoint::Verdict;

fn judged(pickle: &[u8]) -> FileReport {
    full(FileKind::TorchZip, &torch_zip(pickle, &[]).bytes())
}

fn unsafe_by(name: &str, pickle: &[u8], code: &str) {
    let report = judged(pickle);
    assert_eq!(report.verdict, Verdict::Unsafe, "{name}: {:?}", report.findings);
    let why = report.why().expect("a reason");
    assert!(codes(&report).contains(&code), "{name}: {why}");
    assert!(why.offset.is_some(), "{name}: {why}");
}

/// Evasions by name: `(what, pickle)`.
const BY_NAME: &[(&str, &[u8])] = &[
    ("plain", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R."),
    ("protocol 0", b"cos\nsystem\n(S'id'\ntR."),
    ("platform module", b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R."),
    ("windows module", b"cnt\nsystem\n(S'id'\ntR."),
    ("never called", b"\x80\x02}X\x01\x00\x00\x00acsubprocess\nPopen\ns."),
    ("instance", b"(S'id'\nios\nsystem\n."),
    ("object", b"(cos\nsystem\nS'id'\no."),
    (
        "new object",
        b"\x80\x02csubprocess\nPopen\n]X\x02\x00\x00\x00ida\x85\x81.",
    ),
    (
        "new object with keywords",
        b"\x80\x04\x8c\x0asubprocess\x8c\x05Popen\x93)}\x92.",
    ),
    (
        "stack global",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
    ),
    (
        "stack global, long strings",
        b"\x80\x04\x8d\x05\x00\x00\x00\x00\x00\x00\x00posixX\x06\x00\x00\x00system\x93\x8c\x02id\x85R.",
    ),
    (
        "names through the memo",
        b"\x80\x04\x8c\x06system\x94\x8c\x02os\x940h\x01h\x00\x93\x8c\x02id\x85R.",
    ),
    (
        "memo overwritten",
        b"\x80\x04\x8c\x04math\x94\x8c\x02osq\x0000h\x00\x8c\x06system\x93\x8c\x02id\x85R.",
    ),
    (
        "names escaped",
        b"V\\u006fs\n0S'o\\x73'\nS's\\171stem'\n\x93(S'id'\ntR.",
    ),
    ("names in unicode lines", b"Vo\\u0073\nV\\u0073ystem\n\x93(S'id'\ntR."),
    (
        "dotted name",
        b"\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93\x8c\x02id\x85R.",
    ),
    ("module of a module", b"csix.moves.os\nsystem\n(S'id'\ntR."),
    ("private copy of a module", b"crandom\n_os.system\n(S'id'\ntR."),
    ("built-in of Python 2", b"c__builtin__\neval\n(S'1'\ntR."),
    ("built-in of Python 3", b"cbuiltins\nexec\n(S'1'\ntR."),
    ("import by a call", b"cbuiltins\n__import__\n(S'os'\ntR."),
    ("attribute of an import", b"cbuiltins\ngetattr\n(cos\nsystem\nS'x'\ntR."),
    (
        "attribute chain",
        b"cbuiltins\ngetattr\n(cbuiltins\ngetattr\n(ctorch\nTensor\nS'__init__'\ntRS'__globals__'\ntR.",
    ),
    (
        "attribute getter kept as data",
        b"\x80\x02}X\x01\x00\x00\x00ac__builtin__\ngetattr\ns.",
    ),
    (
        "attribute getter for torch to call",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\ngetattr\nNNNtR.",
    ),
    ("attrgetter", b"coperator\nattrgetter\n(S'system'\ntR."),
    ("methodcaller", b"c_operator\nmethodcaller\n(S'system'\ntR."),
    ("partial", b"cfunctools\npartial\n(cbuiltins\nprint\ntR."),
    ("hub", b"ctorch.hub\nload\n(S'a/b'\nS'c'\ntR."),
    ("run a file", b"crunpy\nrun_path\n(S'/tmp/x.py'\ntR."),
    ("pickle in a pickle", b"ctorch.storage\n_load_from_bytes\n(C\x01.tR."),
    (
        "method by name",
        b"cpathlib\nPath.write_text\n(cpathlib\nPosixPath\n(S'x'\ntRS'y'\ntR.",
    ),
    ("debugger", b"cpdb\nrun\n(S'1'\ntR."),
    ("interpreter", b"ccode\nInteractiveInterpreter\n)R."),
    ("library", b"cctypes\nCDLL\n(S'x.so'\ntR."),
    ("state of a module's dict", b"csys\nmodules\nX\x02\x00\x00\x00osNs."),
    ("behind a broken stream", b"cos\nsystem\n(S'id'\ntR\xff"),
    ("behind a value", b"\x80\x02}0cos\nsystem\nX\x02\x00\x00\x00id\x85R0}."),
    (
        "behind frames",
        b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
    ),
    (
        "persistent class",
        b"\x80\x02(X\x07\x00\x00\x00storagecos\nsystem\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ.",
    ),
];

/// Evasions that need no dangerous name.
const BY_ACT: &[(&str, &[u8])] = &[
    ("extension registry, one byte", b"\x80\x02\x82\x01)R."),
    ("extension registry, two bytes", b"\x80\x02\x83\x01\x00)R."),
    ("extension registry, four bytes", b"\x80\x02\x84\x01\x00\x00\x00)R."),
    (
        "what a persistent id gives is called",
        b"\x80\x02X\x01\x00\x00\x00aQ)R.",
    ),
    (
        "what a call gives is called",
        b"\x80\x02ccollections\nOrderedDict\n)R)R.",
    ),
    (
        "what a call gives is made an object of",
        b"\x80\x02ccollections\nOrderedDict\n)R)\x81.",
    ),
    (
        "what a call gives names a module",
        b"\x80\x04ccollections\nOrderedDict\n)R\x8c\x06system\x93.",
    ),
    (
        "a class is changed by state",
        b"\x80\x02ctorch\nTensor\n}X\x05\x00\x00\x00shapeNsb.",
    ),
    (
        "a class is changed by items",
        b"\x80\x02ctorch\nTensor\nX\x05\x00\x00\x00shapeNs.",
    ),
    ("a list of a module grows", b"\x80\x02cmy_project\nhooks\nNa."),
    (
        "torch under an older name calls what a call gives",
        b"ctorch.tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\n)RNNNtR.",
    ),
    (
        "torch calls what a call gives",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\n)RNNNtR.",
    ),
    (
        "a default is made by what a call gives",
        b"ccollections\ndefaultdict\n(ccollections\nOrderedDict\n)RtR.",
    ),
    ("a string is called", b"\x80\x02X\x02\x00\x00\x00id)R."),
    (
        "a default is a method",
        b"ccollections\ndefaultdict\n(cbuiltins\ngetattr\n(cmy.module\nOwner\nS'method'\ntRtR.",
    ),
];

#[test]
fn every_hidden_name_is_found() {
    for (name, pickle) in BY_NAME {
        unsafe_by(name, pickle, "unsafe_global");
    }
}

#[test]
fn every_act_without_a_name_is_found() {
    for (name, pickle) in BY_ACT {
        let report = judged(pickle);
        assert_eq!(report.verdict, Verdict::Unsafe, "{name}: {:?}", report.findings);
    }
    assert!(BY_NAME.len() + BY_ACT.len() >= 50);
}

#[test]
fn danger_beside_real_tensors_is_found() {
    let mut pickle = state_dict(&[("a", 16)]);
    pickle.truncate(pickle.len() - 2);
    text(&mut pickle, "b");
    pickle.extend(b"cos\nsystem\n(S'id'\ntRu.");
    let zip = torch_zip(&pickle, &[crate::build::floats(16, 1)]);
    let report = full(FileKind::TorchZip, &zip.bytes());
    assert_eq!(report.verdict, Verdict::Unsafe);
    let why = report.why().unwrap();
    assert!(why.detail.contains("call os.system"), "{why}");
}

#[test]
fn a_second_pickle_is_refused() {
    let evil = b"cos\nsystem\n(S'id'\ntR.";
    let pickle = state_dict(&[]);
    for (name, zip) in [
        ("other folder", torch_zip(&pickle, &[]).stranger("other/data.pkl", evil)),
        ("other case", torch_zip(&pickle, &[]).with("DATA.PKL", *evil)),
        ("same name", torch_zip(&pickle, &[]).with("data.pkl", *evil)),
        ("script", torch_zip(&pickle, &[]).with("constants.pkl", *evil)),
    ] {
        let report = full(FileKind::TorchZip, &zip.bytes());
        assert_ne!(report.verdict, Verdict::Whole, "{name}");
    }
}

#[test]
fn harmless_look_alikes_stay_whole() {
    for (name, pickle) in [
        ("words in strings", b"\x80\x02}X\x02\x00\x00\x00osX\x06\x00\x00\x00systems.".as_slice()),
        ("class in a class", b"\x80\x02cbuiltins\ngetattr\nctorch.distributed._shard.sharded_tensor.api\nShardedTensor\nX\x11\x00\x00\x00ProcessGroupState\x86R)\x81."),
        ("python 2 set", b"\x80\x02c__builtin__\nset\n](K\x01K\x02e\x85R."),
        ("ordered dict with state", b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00aNsb."),
    ] {
        let report = judged(pickle);
        assert_eq!(report.verdict, Verdict::Whole, "{name}: {:?}", report.findings);
        assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
    }
}

#[test]
fn an_enum_member_of_a_strange_class_is_strange() {
    let report = judged(b"\x80\x02cbuiltins\ngetattr\ncmy.kinds\nKind\nX\x05\x00\x00\x00flash\x86R.");
    assert_eq!(report.verdict, Verdict::Unsafe, "{:?}", report.findings);
    assert_eq!(codes(&report), ["unfamiliar_global", "unfamiliar_global"]);
}

#[test]
fn strange_names_are_listed_once_in_order_and_bounded() {
    let many: Vec<u8> = (0..40)
        .rev()
        .flat_map(|n| format!("cmy.states\nS{n:02}\n0").into_bytes())
        .collect();
    let pickle = [many.as_slice(), b"ctorch\nSize\n0cos\nsystem\n0cmy.states\nS07\n."].concat();
    let names = read(pickle, &InspectLimits::default()).unfamiliar();
    let want: Vec<String> = (0..16).map(|n| format!("my.states.S{n:02}")).collect();
    assert_eq!(names, want);
    assert!(
        read(b"ctorch\nSize\n.".to_vec(), &InspectLimits::default())
            .unfamiliar()
            .is_empty()
    );
}

#[test]
fn limits_end_the_reading_without_damage() {
    let tight = InspectLimits {
        pickle_opcodes: 100,
        memory: 1 << 20,
        ..InspectLimits::default()
    };
    let long = [vec![b'N'; 200], vec![b'.']].concat();
    let found = read(long, &tight);
    assert_eq!(
        found
            .findings(0, false)
            .iter()
            .map(|f| (f.code.as_ref(), f.verdict))
            .collect::<Vec<_>>(),
        [("limit_reached", Verdict::Unknown)]
    );
    let slots: Vec<u8> = (1..90_u32)
        .flat_map(|n| [vec![b'N', b'r'], (n * 1024).to_le_bytes().to_vec()].concat())
        .collect();
    let found = read(
        slots,
        &InspectLimits {
            memory: 1 << 20,
            ..InspectLimits::default()
        },
    );
    assert_eq!(found.findings(0, false)[0].code, "limit_reached");
}

#[test]
fn values_come_out_as_python_would_see_them() {
    let value = |bytes: &[u8]| {
        let pickle = read(bytes.to_vec(), &InspectLimits::default());
        assert_eq!(pickle.error, None, "{bytes:?}");
        (pickle.root.unwrap(), pickle.heap)
    };
    for (bytes, want) in [
        (b"K\xff.".as_slice(), PickleValue::Int(255)),
        (b"M\xff\xff.", PickleValue::Int(65535)),
        (b"J\xff\xff\xff\xff.", PickleValue::Int(-1)),
        (b"\x8a\x00.", PickleValue::Int(0)),
        (b"\x8a\x01\xff.", PickleValue::Int(-1)),
        (b"\x8a\x02\x00\x80.", PickleValue::Int(-32768)),
        (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", PickleValue::Int(i64::MAX)),
        (b"I01\n.", PickleValue::Bool(true)),
        (b"I7\n.", PickleValue::Int(7)),
        (b"L-5L\n.", PickleValue::Int(-5)),
        (b"F2.5\n.", PickleValue::Float(2.5)),
        (b"G\x40\x04\x00\x00\x00\x00\x00\x00.", PickleValue::Float(2.5)),
        (b"K\x01K\x022000K\x05.", PickleValue::Int(5)),
        (b"K\x01(K\x02K\x031.", PickleValue::Int(1)),
    ] {
        assert_eq!(value(bytes).0, want, "{bytes:?}");
    }
    let (root, heap) = value(b"\x80\x04}\x94(\x8c\x01aK\x01\x8c\x01bK\x02\x8c\x01aK\x03u.");
    assert_eq!(heap.get(root, "a"), Some(PickleValue::Int(3)));
    let (root, heap) = value(b"S'a\\tb\\'\\x41\\\\'\n.");
    assert_eq!(heap.str(root).unwrap(), "a\tb'A\\");
    let big = value(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.").0;
    assert!(matches!(big, PickleValue::BigInt(t) if t.len() == 9));
}

#[test]
fn streams_that_break_off_are_damaged() {
    for bytes in [
        b"".as_slice(),
        b"(",
        b"K",
        b"X\x05\x00\x00\x00ab",
        b"h\x05.",
        b"R.",
        b".",
        b"\xfe.",
        b"\x80\x09.",
        b"}K\x01s.",
        b"\x97.",
    ] {
        let found = read(bytes.to_vec(), &InspectLimits::default()).findings(0, false);
        assert_eq!(
            found.iter().map(|f| f.verdict).max(),
            Some(Verdict::Damaged),
            "{bytes:?}: {found:?}"
        );
    }
}
