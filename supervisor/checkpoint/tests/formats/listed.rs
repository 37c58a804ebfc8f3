//! Names of real writers pass with the arguments that they give, and with no others.

use crate::build::{codes, full, state_dict, text, torch_zip};
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::{FindingLevel, Verdict};

fn judged(pickle: &[u8]) -> FileReport {
    full(FileKind::TorchZip, &torch_zip(pickle, &[]).bytes())
}

/// The same where somebody asks about what nobody knows.
fn asked(pickle: &[u8]) -> FileReport {
    let limits = InspectLimits {
        asks: true,
        ..InspectLimits::default()
    };
    judge_file(
        &inspect(FileKind::TorchZip, &torch_zip(pickle, &[]).bytes(), &limits),
        &[],
    )
}

/// `module name`, a mark, the arguments as they stand, a tuple, a call.
fn call(name: &str, args: &[u8]) -> Vec<u8> {
    let (module, name) = name.split_once(' ').unwrap();
    [format!("c{module}\n{name}\n(").as_bytes(), args, b"tR"].concat()
}

fn word(s: &str) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, s);
    out
}

fn whole_stream(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

/// Loaders and other things inside modules that real writers use.
#[test]
fn a_loader_in_a_trusted_module_is_unsafe() {
    let state = |state: &[u8]| [b"cargparse\nNamespace\n)\x81", state, b"b"].concat();
    let counter = call(
        "collections Counter",
        &[b"}".as_slice(), &word("lr"), b"K\x01s"].concat(),
    );
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a loader with a function of its own", {
            let args = [
                b"](".as_slice(),
                &word("os.system"),
                b"eNctorch._utils\n_import_dotted_name\n",
            ]
            .concat();
            call("builtins list", &call("torch.utils.data DataLoader", &args))
        }),
        ("the loader alone", b"ctorch.utils.data\nDataLoader\n)\x81}b".to_vec()),
        (
            "a library for memory",
            call(
                "torch.cuda.memory CUDAPluggableAllocator",
                &[word("x.so"), word("a"), word("b")].concat(),
            ),
        ),
        (
            "a library for a model",
            call(
                "torch._C._aoti AOTIModelContainerRunnerCpu",
                &[word("x.so"), b"K\x01".to_vec()].concat(),
            ),
        ),
        (
            "a logger's state",
            [
                call("logging getLogger", &word("root")),
                b"}".to_vec(),
                word("disabled"),
                b"\x88sb".to_vec(),
            ]
            .concat(),
        ),
        (
            "a function by its dotted name",
            call("torch._utils _import_dotted_name", &word("os.system")),
        ),
        ("state that a call makes", state(&counter)),
        (
            "state with a key that a call makes",
            state(
                &[
                    b"}".as_slice(),
                    b"ctorch.torch_version\nTorchVersion\n",
                    &word("x"),
                    b"\x85\x81K\x01s",
                ]
                .concat(),
            ),
        ),
        ("a function kept by its name", b"ctorch.nn.functional\ngelu\n".to_vec()),
        (
            "a module of its own",
            b"ctorch.nn.modules.linear\nLinear\n)\x81}b".to_vec(),
        ),
    ];
    for (name, pickle) in cases {
        let report = judged(&whole_stream(&pickle));
        assert_eq!(report.verdict, Verdict::Unsafe, "{name}: {:?}", report.findings);
    }
}

#[test]
fn arguments_that_a_call_makes_are_unsafe() {
    let inner = [
        b"](ctorch._utils\n_import_dotted_name\nctorch\nTensor\n".as_slice(),
        &word("x"),
        b"\x85Ne",
    ]
    .concat();
    let made = call("builtins tuple", &inner);
    let pickle = [b"ctorch._tensor\n_rebuild_from_type_v2\n".as_slice(), &made, b"R"].concat();
    for report in [judged(&whole_stream(&pickle)), asked(&whole_stream(&pickle))] {
        assert_eq!(report.verdict, Verdict::Unsafe, "{:?}", report.findings);
        assert!(codes(&report).contains(&"unsafe_call"), "{:?}", report.findings);
    }
    let size = [b"ctorch\ndevice\n".as_slice(), &call("torch Size", b"K\x01\x85"), b"R"].concat();
    assert_eq!(judged(&whole_stream(&size)).verdict, Verdict::Unsafe);
}

/// Short pickles that make Python allocate or compute without end.
#[test]
fn sizes_that_nothing_fills_are_unsafe() {
    let big = b"\x8a\x06\x00\x00\x00\x00\x00\x40";
    let range = [b"cbuiltins\nxrange\n(K\x00".as_slice(), big, b"K\x01tR"].concat();
    let array = |shape: &[u8], elements: &[u8]| {
        let made = call(
            "numpy._core.multiarray _reconstruct",
            &[b"cnumpy\nndarray\nK\x00\x85".as_slice(), b"C\x01b"].concat(),
        );
        [
            &made,
            b"(K\x01(".as_slice(),
            shape,
            b"tcnumpy\ndtype\n(X\x02\x00\x00\x00O8\x89\x88tR\x89",
            elements,
            b"tb",
        ]
        .concat()
    };
    let quantized = |count: &[u8]| {
        let storage = [
            b"(".as_slice(),
            &word("storage"),
            b"ctorch\nQInt8Storage\n",
            &word("0"),
            &word("cpu"),
            b"K\x04tQ",
        ]
        .concat();
        let kind = b"(ctorch\nper_tensor_affine\nG?\xf0\0\0\0\0\0\0K\0t";
        call(
            "torch._utils _rebuild_qtensor",
            &[
                &storage,
                b"K\0".as_slice(),
                count,
                b"\x85K\0\x85",
                kind,
                b"\x89ccollections\nOrderedDict\n)R",
            ]
            .concat(),
        )
    };
    for (name, pickle, verdict) in [
        ("bytearray of a size", call("builtins bytearray", big), Verdict::Unsafe),
        (
            "bytearray of bytes",
            call("builtins bytearray", b"C\x02ab"),
            Verdict::Whole,
        ),
        ("set of a range", call("builtins set", &range), Verdict::Unsafe),
        ("size of a range", call("torch Size", &range), Verdict::Unsafe),
        ("deque of a range", call("collections deque", &range), Verdict::Unsafe),
        (
            "counter of a range",
            call("collections Counter", &range),
            Verdict::Unsafe,
        ),
        ("a range by itself", range.clone(), Verdict::Whole),
        (
            "fraction of an exponent",
            call("fractions Fraction", &word("1e999999999")),
            Verdict::Unsafe,
        ),
        ("fraction", call("fractions Fraction", b"K\x01K\x03"), Verdict::Whole),
        (
            "array of a size",
            call(
                "numpy._core.multiarray _reconstruct",
                &[b"cnumpy\nndarray\n".as_slice(), big, b"\x85C\x01b"].concat(),
            ),
            Verdict::Unsafe,
        ),
        ("objects that are not there", array(big, b"]"), Verdict::Unsafe),
        ("objects that are there", array(b"K\x01", b"](Ne"), Verdict::Whole),
        (
            "an array itself",
            call("numpy ndarray", &[big.as_slice(), b"\x85"].concat()),
            Verdict::Unsafe,
        ),
        (
            "codec that unpacks",
            call("_codecs encode", &[word("x"), word("zlib")].concat()),
            Verdict::Unsafe,
        ),
        ("quantized beyond its storage", quantized(big), Verdict::Unsafe),
        (
            "generator made by another",
            call(
                "numpy.random._pickle __generator_ctor",
                &[big.as_slice(), b"cbuiltins\nbytearray\n"].concat(),
            ),
            Verdict::Unsafe,
        ),
    ] {
        let report = judged(&whole_stream(&pickle));
        assert_eq!(report.verdict, verdict, "{name}: {:?}", report.findings);
    }
}

#[test]
fn what_torch_calls_for_us_has_torchs_arguments() {
    let hooks = b"ccollections\nOrderedDict\n)R";
    let inner = |args: &[u8]| {
        let head = b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_meta_tensor_no_storage\nctorch\nTensor\n(";
        [head.as_slice(), args, b"tNtR"].concat()
    };
    let good = b"ctorch\nfloat32\nK\x03\x85K\x01\x85\x89";
    assert_eq!(judged(&whole_stream(&inner(good))).verdict, Verdict::Whole);
    assert_eq!(
        judged(&whole_stream(&inner(&[good.as_slice(), b"N"].concat()))).verdict,
        Verdict::Unsafe
    );
    let mut pickle = state_dict(&[("a", 1)]);
    let at = pickle.windows(hooks.len()).position(|w| w == hooks).unwrap() + hooks.len();
    pickle.splice(at..at, [b"K\x01".as_slice(), b"ctorch\nSize\ns"].concat());
    let report = full(FileKind::TorchZip, &torch_zip(&pickle, &[vec![1; 4]]).bytes());
    assert_eq!(report.verdict, Verdict::Unsafe, "{:?}", report.findings);
}

#[test]
fn who_asks_hears_of_strange_names_and_is_not_refused() {
    let pickle = whole_stream(b"cmy.state\nSampler\n)\x81}b");
    let report = asked(&pickle);
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Whole, vec!["unfamiliar_global"])
    );
    assert_eq!(report.findings[0].level, FindingLevel::Warning);
    assert_eq!(report.facts.torch.unwrap().unfamiliar, ["my.state.Sampler"]);
    let odd = asked(&whole_stream(&call("builtins bytearray", b"K\x7f")));
    assert_eq!(odd.verdict, Verdict::Whole);
    assert_eq!(odd.facts.torch.unwrap().unfamiliar, ["builtins.bytearray"]);
    let evil = asked(&whole_stream(&call("posix system", &word("id"))));
    assert_eq!(evil.verdict, Verdict::Unsafe);
}

#[test]
fn names_without_end_are_refused_at_once() {
    let pickle = [b"c".as_slice(), &vec![b'a'; 1000], b"\nB\n."].concat();
    let report = judged(&pickle);
    assert_eq!(report.verdict, Verdict::Unsafe, "{:?}", report.findings);
}
