//! Small torch-like archives and pickles, made by hand so that tests can make them wrong.

use std::io::Write;
use std::ops::ControlFlow;
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, SweepOptions, inspect, judge_file, sweep};

/// The report of a structural proof.
pub(crate) fn structure(kind: FileKind, bytes: &[u8]) -> FileReport {
    judge_file(&inspect(kind, &bytes, &InspectLimits::default()), &[])
}

/// The report of a full proof.
pub(crate) fn full(kind: FileKind, bytes: &[u8]) -> FileReport {
    let inspected = inspect(kind, &bytes, &InspectLimits::default());
    let read = sweep(&bytes, &inspected.plan, SweepOptions::default(), &mut |_| {
        ControlFlow::Continue(())
    });
    judge_file(&inspected, &read.expect("the slice holds what its plan names"))
}

pub(crate) fn codes(report: &FileReport) -> Vec<&str> {
    report.findings.iter().map(|f| f.code.as_ref()).collect()
}

/// An archive as torch lays it out: empty local headers, data at multiples of 64, descriptors, zip64 end.
pub(crate) struct Zip {
    prefix: &'static str,
    entries: Vec<(String, Vec<u8>)>,
}

impl Zip {
    pub(crate) fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            entries: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.entries.push((format!("{}/{name}", self.prefix), bytes.into()));
        self
    }

    /// An entry outside the common folder.
    pub(crate) fn stranger(mut self, name: &str, bytes: &[u8]) -> Self {
        self.entries.push((name.to_owned(), bytes.to_vec()));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut directory = Vec::new();
        for (name, bytes) in &self.entries {
            let at = out.len();
            let crc = crc32(bytes);
            let pad = (64 - (at + 30 + name.len() + 4) % 64) % 64 + 4;
            put(
                &mut out,
                &[
                    (0x0403_4b50, 4),
                    (0, 2),
                    (0x808, 2),
                    (0, 2),
                    (0, 4),
                    (0, 4),
                    (0, 4),
                    (0, 4),
                ],
            );
            put(&mut out, &[(name.len() as u64, 2), (pad as u64, 2)]);
            out.write_all(name.as_bytes()).unwrap();
            put(&mut out, &[(0x4246, 2), (pad as u64 - 4, 2)]);
            out.resize(out.len() + pad - 4, b'Z');
            out.extend(bytes);
            let size = bytes.len() as u64;
            put(&mut out, &[(0x0807_4b50, 4), (crc, 4), (size, 4), (size, 4)]);
            put(
                &mut directory,
                &[(0x0201_4b50, 4), (0, 2), (0, 2), (0x808, 2), (0, 2), (0, 4)],
            );
            put(
                &mut directory,
                &[(crc, 4), (size, 4), (size, 4), (name.len() as u64, 2), (0, 2), (0, 2)],
            );
            put(&mut directory, &[(0, 2), (0, 2), (0, 4), (at as u64, 4)]);
            directory.write_all(name.as_bytes()).unwrap();
        }
        let (at, size, n) = (out.len() as u64, directory.len() as u64, self.entries.len() as u64);
        out.extend(directory);
        put(
            &mut out,
            &[
                (0x0606_4b50, 4),
                (44, 8),
                (0x031e, 2),
                (45, 2),
                (0, 4),
                (0, 4),
                (n, 8),
                (n, 8),
                (size, 8),
                (at, 8),
            ],
        );
        put(&mut out, &[(0x0706_4b50, 4), (0, 4), (at + size, 8), (1, 4)]);
        put(
            &mut out,
            &[
                (0x0605_4b50, 4),
                (0, 2),
                (0, 2),
                (n, 2),
                (n, 2),
                (size, 4),
                (at, 4),
                (0, 2),
            ],
        );
        out
    }
}

/// Appends little-endian fields of the given widths.
fn put(out: &mut Vec<u8>, fields: &[(u64, usize)]) {
    for (value, width) in fields {
        out.extend(&value.to_le_bytes()[..*width]);
    }
}

/// A checksum of its own, bit by bit, so that the one under test is compared with another.
fn crc32(bytes: &[u8]) -> u64 {
    let mut crc = u32::MAX;
    for b in bytes {
        crc ^= u32::from(*b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    u64::from(!crc)
}

/// A dict of float tensors, as protocol 2 writes it: `(name, elements)`, storages numbered from 0.
pub(crate) fn state_dict(tensors: &[(&str, u32)]) -> Vec<u8> {
    let mut p = b"\x80\x02}(".to_vec();
    for (key, (name, count)) in tensors.iter().enumerate() {
        text(&mut p, name);
        p.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut p, "storage");
        p.extend(b"ctorch\nFloatStorage\n");
        text(&mut p, &key.to_string());
        text(&mut p, "cpu");
        p.push(b'J');
        p.extend(count.to_le_bytes());
        p.extend(b"tQK\x00J");
        p.extend(count.to_le_bytes());
        p.extend(b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR");
    }
    p.extend(b"u.");
    p
}

pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A file with the given pickle and storages.
pub(crate) fn torch_zip(pickle: &[u8], storages: &[Vec<u8>]) -> Zip {
    let zip = Zip::new("archive")
        .with("data.pkl", pickle)
        .with("byteorder", *b"little");
    let zip = storages
        .iter()
        .enumerate()
        .fold(zip, |z, (n, s)| z.with(&format!("data/{n}"), s.clone()));
    zip.with("version", *b"3\n")
        .with(".data/serialization_id", vec![b'7'; 40])
}

/// Bytes of a float storage whose elements all differ.
pub(crate) fn floats(count: u32, seed: u32) -> Vec<u8> {
    (0..count)
        .flat_map(|n| ((n * 7 + seed) as f32 + 0.5).to_le_bytes())
        .collect()
}

/// A whole file: three tensors, one of them larger than a block.
pub(crate) fn sample() -> Vec<u8> {
    let pickle = state_dict(&[("a", 16), ("b", 5000), ("c", 16)]);
    torch_zip(&pickle, &[floats(16, 1), floats(5000, 2), floats(16, 3)]).bytes()
}
