//! Whole files, changed: every change that a loader could notice is refused.

use crate::build::{codes, full, sample, state_dict, structure, torch_zip};
use crate::real;
use std::ops::Range;
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect};
use supervise_core::checkpoint::Verdict;

const KIND: FileKind = FileKind::TorchZip;

/// Real files of each sort, small enough to be changed at every byte.
fn victims() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![("sample".to_owned(), sample())];
    for name in ["verl_ppo_fsdp2_w2", "verl_ppo_fsdp1_w2"] {
        for path in real::set(name) {
            let wanted = path.as_str().contains("global_step_2")
                && path.extension() == Some("pt")
                && !path.as_str().contains("rank_0");
            if wanted {
                out.push((format!("{name}/{}", path.file_name().unwrap()), real::bytes(&path)));
            }
        }
    }
    assert_eq!(out.len(), 9);
    out
}

/// Bytes that no loader looks at: the padding in local headers, and who made the archive according to its zip64 record.
fn unused(bytes: &[u8]) -> Vec<Range<usize>> {
    let plan = inspect(KIND, &bytes, &InspectLimits::default()).plan;
    let mut out = Vec::new();
    for e in plan.extents.iter().filter(|e| !e.is_gap()) {
        let data = e.off as usize;
        let name = e.what.as_bytes();
        let at = (0..data)
            .rev()
            .find(|&at| bytes[at..].starts_with(b"PK\x03\x04") && bytes[at + 30..].starts_with(name))
            .unwrap();
        out.push(at + 30 + name.len()..data);
    }
    let record = bytes.len() - 22 - 20 - 56;
    assert!(bytes[record..].starts_with(b"PK\x06\x06"));
    out.push(record + 12..record + 16);
    out
}

fn refused(report: &FileReport, what: &str) {
    assert_ne!(report.verdict, Verdict::Whole, "{what} passed: {:?}", report.findings);
    assert!(report.why().is_some(), "{what}");
}

#[test]
fn unchanged_files_are_whole() {
    for (name, bytes) in victims() {
        assert_eq!(full(KIND, &bytes).verdict, Verdict::Whole, "{name}");
    }
}

#[test]
fn a_cut_file_is_refused_at_the_structure() {
    for (name, bytes) in victims() {
        for len in (0..bytes.len())
            .step_by(bytes.len() / 400 + 1)
            .chain(bytes.len() - 130..bytes.len())
        {
            let report = structure(KIND, &bytes[..len]);
            refused(&report, &format!("{name} cut at {len}"));
            let soft = matches!(report.verdict, Verdict::Incomplete | Verdict::Damaged);
            assert!(
                soft && codes(&report).len() == 1,
                "{name} cut at {len}: {:?}",
                report.findings
            );
        }
    }
}

#[test]
fn a_flipped_byte_is_refused() {
    for (name, bytes) in victims() {
        let unused = unused(&bytes);
        let mut changed = bytes.clone();
        // A sample of all bytes, and every byte of the end records and the last entries of the directory.
        let some = (0..bytes.len()).step_by(bytes.len() / 400 + 1);
        for at in some.chain(bytes.len() - 220..bytes.len()) {
            for mask in [0x01, 0x80] {
                changed[at] ^= mask;
                let whole = full(KIND, &changed).verdict == Verdict::Whole;
                let free = unused.iter().any(|r| r.contains(&at));
                assert!(!whole || free, "{name}: byte {at} changed by {mask:#x}");
                changed[at] ^= mask;
            }
        }
    }
}

#[test]
fn a_flipped_byte_of_the_pickle_is_refused_at_the_structure() {
    for (name, bytes) in victims() {
        let plan = inspect(KIND, &bytes, &InspectLimits::default()).plan;
        let pickle = plan.extents.iter().find(|e| e.what.ends_with("/data.pkl")).unwrap();
        let mut changed = bytes.clone();
        for at in (pickle.off..pickle.off + pickle.len).step_by(61) {
            changed[at as usize] ^= 0x20;
            let report = structure(KIND, &changed);
            refused(&report, &format!("{name}: byte {at}"));
            assert!(
                codes(&report).contains(&"crc_mismatch"),
                "{name}: byte {at}: {:?}",
                report.findings
            );
            changed[at as usize] ^= 0x20;
        }
    }
}

#[test]
fn zeros_are_refused_and_named() {
    for (name, bytes) in victims() {
        let unused = unused(&bytes);
        for at in (0..bytes.len() - 512).step_by(512) {
            let lost = (at..at + 512).any(|i| bytes[i] != 0 && !unused.iter().any(|r| r.contains(&i)));
            let mut changed = bytes.clone();
            changed[at..at + 512].fill(0);
            if lost {
                refused(&full(KIND, &changed), &format!("{name}: zeros at {at}"));
            }
        }
        for from in [0, bytes.len() / 2] {
            let mut changed = bytes.clone();
            changed[from..].fill(0);
            let report = structure(KIND, &changed);
            assert_eq!(report.verdict, Verdict::Damaged, "{name}: {:?}", report.findings);
            assert!(
                ["zero_filled", "torn_write"].contains(&codes(&report)[0]),
                "{name}: {:?}",
                report.findings
            );
        }
    }
}

#[test]
fn what_grew_is_refused() {
    for (name, bytes) in victims() {
        for more in [vec![0], vec![0; 4096], b"PK\x05\x06".to_vec(), bytes.clone()] {
            let long = [bytes.clone(), more.clone()].concat();
            refused(
                &structure(KIND, &long),
                &format!("{name} with {} more bytes", more.len()),
            );
            let shifted = [more, bytes.clone()].concat();
            refused(&structure(KIND, &shifted), &format!("{name} moved"));
        }
    }
}

#[test]
fn swapped_bytes_are_refused() {
    for (name, bytes) in victims() {
        let plan = inspect(KIND, &bytes, &InspectLimits::default()).plan;
        let data: Vec<_> = plan
            .extents
            .iter()
            .filter(|e| e.what.contains("/data/") && e.len > 0)
            .collect();
        for pair in data.windows(2).filter(|p| p[0].len == p[1].len) {
            let (a, b, n) = (pair[0].off as usize, pair[1].off as usize, pair[0].len as usize);
            let mut changed = bytes.clone();
            changed[a..a + n].copy_from_slice(&bytes[b..b + n]);
            changed[b..b + n].copy_from_slice(&bytes[a..a + n]);
            if changed != bytes {
                let report = full(KIND, &changed);
                refused(
                    &report,
                    &format!("{name}: {} and {} swapped", pair[0].what, pair[1].what),
                );
                assert!(
                    codes(&report).contains(&"crc_mismatch"),
                    "{name}: {:?}",
                    report.findings
                );
            }
        }
    }
}

#[test]
fn a_valid_archive_with_too_little_in_it_is_refused() {
    let pickle = state_dict(&[("a", 16), ("b", 5000), ("c", 16)]);
    let [a, b, c] = [16, 5000, 16].map(|n| crate::build::floats(n, n));
    let missing = structure(KIND, &torch_zip(&pickle, &[a.clone(), b.clone()]).bytes());
    assert_eq!(
        (missing.verdict, codes(&missing)),
        (Verdict::Incomplete, vec!["storage_missing"])
    );
    assert!(
        missing.findings[0]
            .detail
            .contains("1 of 3 storages are missing, the first is data/2"),
        "{}",
        missing.findings[0]
    );
    let short = structure(
        KIND,
        &torch_zip(&pickle, &[a.clone(), b[..19_996].to_vec(), c.clone()]).bytes(),
    );
    assert_eq!((short.verdict, codes(&short)), (Verdict::Damaged, vec!["storage_size"]));
    let spare = structure(
        KIND,
        &torch_zip(&pickle, &[a.clone(), b.clone(), c.clone(), a.clone()]).bytes(),
    );
    assert_eq!(
        (spare.verdict, codes(&spare)),
        (Verdict::Whole, vec!["storage_unreferenced"])
    );
    let none = structure(
        KIND,
        &crate::build::Zip::new("archive").with("version", *b"3\n").bytes(),
    );
    assert_eq!((none.verdict, codes(&none)), (Verdict::Incomplete, vec!["no_data_pkl"]));
}

#[test]
fn a_tensor_beyond_its_storage_is_refused() {
    let mut pickle = state_dict(&[("a", 16)]);
    let size = pickle.windows(5).rposition(|w| w == b"J\x10\x00\x00\x00").unwrap();
    pickle[size + 1] = 17;
    let report = structure(KIND, &torch_zip(&pickle, &[crate::build::floats(16, 1)]).bytes());
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Damaged, vec!["tensor_range"])
    );
}

#[test]
fn an_archive_beyond_the_limits_is_not_called_damaged() {
    let bytes = sample();
    for limits in [
        InspectLimits {
            entries: 3,
            ..InspectLimits::default()
        },
        InspectLimits {
            directory_bytes: 10,
            ..InspectLimits::default()
        },
        InspectLimits {
            pickle_bytes: 10,
            ..InspectLimits::default()
        },
        InspectLimits {
            pickle_opcodes: 10,
            ..InspectLimits::default()
        },
        InspectLimits {
            memory: 100,
            ..InspectLimits::default()
        },
    ] {
        let report = supervise_checkpoint::judge_file(&inspect(KIND, &bytes, &limits), &[]);
        let short = limits.memory == 100;
        let verdict = if short { Verdict::Unreadable } else { Verdict::Unknown };
        assert_eq!(
            (report.verdict, codes(&report)),
            (verdict, vec!["limit_reached"]),
            "{limits:?}"
        );
    }
    for limits in [
        InspectLimits {
            tensors: 1,
            ..InspectLimits::default()
        },
        InspectLimits {
            walk_values: 2,
            ..InspectLimits::default()
        },
    ] {
        let report = supervise_checkpoint::judge_file(&inspect(KIND, &bytes, &limits), &[]);
        assert_eq!(
            (report.verdict, codes(&report)),
            (Verdict::Whole, vec!["inventory_cut"]),
            "{limits:?}"
        );
    }
}
