//! Sources that fail: an I/O error is never damage, and little is read.

use crate::build::{floats, full, sample, state_dict, torch_zip};
use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::{
    ByteSource, FileKind, InspectLimits, SweepOptions, inspect, judge_file, sweep, unreadable_file,
};
use supervise_core::checkpoint::Verdict;

/// A source that counts, and fails from a given read on.
struct Watched {
    bytes: Vec<u8>,
    reads: Cell<u64>,
    read: Cell<u64>,
    fail: Option<(u64, i32)>,
    shrink_to: Option<u64>,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            reads: Cell::new(0),
            read: Cell::new(0),
            fail: None,
            shrink_to: None,
        }
    }
}

impl ByteSource for Watched {
    fn len(&self) -> io::Result<u64> {
        let shrunk = self.shrink_to.filter(|_| self.reads.get() > 0);
        Ok(shrunk.unwrap_or(self.bytes.len() as u64))
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        if let Some((_, error)) = self.fail.filter(|(from, _)| self.reads.get() > *from) {
            return Err(io::Error::from_raw_os_error(error));
        }
        let end = self.shrink_to.unwrap_or(u64::MAX).min(self.bytes.len() as u64);
        let visible = &self.bytes[..end as usize];
        let n = visible.read_at(off, buf)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}

const KINDS: [(FileKind, &[u8]); 6] = [
    (FileKind::Json, b"{\"a\": 1}"),
    (FileKind::FsdpConfig, b"{\"FSDP_version\": 2, \"world_size\": 2}"),
    (FileKind::SafetensorsIndex, b"{\"weight_map\": {\"a\": \"b\"}}"),
    (FileKind::Safetensors, b"\x02\0\0\0\0\0\0\0{}"),
    (FileKind::Text, b"hello"),
    (FileKind::Opaque, b"hello"),
];

#[test]
fn an_io_error_is_unreadable_at_every_read() {
    let large = torch_zip(
        &state_dict(&[("a", 40_000), ("b", 40_000)]),
        &[floats(40_000, 1), floats(40_000, 2)],
    )
    .bytes();
    let files = KINDS
        .iter()
        .map(|(k, b)| (*k, b.to_vec()))
        .chain([(FileKind::TorchZip, large)]);
    for (kind, bytes) in files {
        assert_eq!(full(kind, &bytes).verdict, Verdict::Whole, "{kind:?}");
        for (error, retryable) in [(5, true), (116, true), (11, true), (110, true), (13, false), (2, false)] {
            for from in 0.. {
                let source = Watched {
                    fail: Some((from, error)),
                    ..Watched::new(bytes.clone())
                };
                let inspected = inspect(kind, &source, &InspectLimits::default());
                let read = sweep(&source, &inspected.plan, SweepOptions::default(), &mut |_| {
                    ControlFlow::Continue(())
                });
                let mut report = judge_file(&inspected, read.as_deref().unwrap_or_default());
                if let Err(e) = &read {
                    report.add(e.finding().unwrap());
                }
                if source.reads.get() <= from {
                    assert!(from > 0 && report.verdict == Verdict::Whole, "{kind:?}");
                    break;
                }
                assert_eq!(
                    report.verdict,
                    Verdict::Unreadable,
                    "{kind:?}, error {error} from read {from}: {:?}",
                    report.findings
                );
                assert_eq!(report.why().unwrap().retryable, retryable, "{kind:?}, error {error}");
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_unreadable() {
    let report = unreadable_file(FileKind::TorchZip, io::Error::from_raw_os_error(116));
    assert_eq!(
        (report.verdict, report.findings[0].retryable),
        (Verdict::Unreadable, true)
    );
}

#[test]
fn a_file_that_shrinks_while_it_is_looked_at_is_being_rewritten() {
    let bytes = torch_zip(&state_dict(&[("a", 40_000)]), &[floats(40_000, 1)]).bytes();
    let source = Watched {
        shrink_to: Some(bytes.len() as u64 / 2),
        ..Watched::new(bytes)
    };
    let report = judge_file(&inspect(FileKind::TorchZip, &source, &InspectLimits::default()), &[]);
    let why = report.why().unwrap();
    assert_eq!(
        (why.code.as_ref(), why.verdict, why.retryable),
        ("file_changed", Verdict::Incomplete, true)
    );
}

#[test]
fn structure_is_known_from_kilobytes() {
    let count = 1 << 18;
    let names: Vec<String> = (0..6).map(|n| format!("layer.{n}.weight")).collect();
    let tensors: Vec<(&str, u32)> = names.iter().map(|n| (n.as_str(), count)).collect();
    let storages: Vec<Vec<u8>> = (0..6).map(|_| vec![1; 1 << 20]).collect();
    let source = Watched::new(torch_zip(&state_dict(&tensors), &storages).bytes());
    assert!(source.bytes.len() > 6 << 20);
    let inspected = inspect(FileKind::TorchZip, &source, &InspectLimits::default());
    assert_eq!(judge_file(&inspected, &[]).verdict, Verdict::Whole);
    assert!(source.read.get() < 96 << 10, "{} bytes read", source.read.get());
    assert!(source.reads.get() < 16, "{} reads", source.reads.get());
}

#[test]
fn headers_beyond_the_limit_of_reads_are_derived() {
    let tensors: Vec<(String, u32)> = (0..40).map(|n| (format!("t{n}"), 4096)).collect();
    let refs: Vec<(&str, u32)> = tensors.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    let storages: Vec<Vec<u8>> = (0..40).map(|n| floats(4096, n)).collect();
    let bytes = torch_zip(&state_dict(&refs), &storages).bytes();
    let all = inspect(FileKind::TorchZip, &bytes, &InspectLimits::default());
    let few = inspect(
        FileKind::TorchZip,
        &bytes,
        &InspectLimits {
            header_reads: 4,
            ..InspectLimits::default()
        },
    );
    assert_eq!(all.plan, few.plan);
    assert!(all.findings.is_empty());
    assert_eq!(
        few.findings.iter().map(|f| f.code.as_ref()).collect::<Vec<_>>(),
        ["headers_not_read"]
    );
}

#[test]
fn a_source_may_give_a_byte_at_a_time() {
    struct Slow(Vec<u8>);
    impl ByteSource for Slow {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(1);
            self.0.read_at(off, &mut buf[..n])
        }
    }
    let report = judge_file(
        &inspect(FileKind::TorchZip, &Slow(sample()), &InspectLimits::default()),
        &[],
    );
    assert_eq!(report.verdict, Verdict::Whole);
}
