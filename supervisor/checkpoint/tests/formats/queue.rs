//! Queues that TransferQueue 0.1.11 really saved: pickles with torch's older format inside.

use crate::build::{codes, full, structure};
use crate::real::bytes;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::Verdict;

fn place(kind: &str) -> Utf8PathBuf {
    let fixtures = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/verl_transfer_queue");
    fixtures.join(kind).join("transfer_queue")
}

fn units(kind: &str) -> Vec<Utf8PathBuf> {
    let all = place(kind).join("simple_storage").read_dir_utf8().unwrap();
    let mut out: Vec<Utf8PathBuf> = all.map(|e| e.unwrap().into_path()).collect();
    out.retain(|path| path.extension() == Some("pkl"));
    out.sort();
    assert_eq!(out.len(), 2);
    out
}

fn pickle(bytes: &[u8]) -> FileReport {
    full(FileKind::Pickle, bytes)
}

#[test]
fn genuine_files_are_whole_and_tell_of_each_other() {
    for kind in ["memory", "ssd"] {
        let state = pickle(&bytes(&place(kind).join("controller_state.pkl")));
        assert_eq!((state.verdict, codes(&state)), (Verdict::Whole, Vec::new()), "{kind}");
        let metadata = structure(FileKind::QueueMetadata, &bytes(&place(kind).join("metadata.json")));
        let said = metadata.facts.queue.unwrap();
        assert_eq!((said.storage_saved, said.step), (Some(true), Some(2)));
        let list = place(kind).join("simple_storage/storage_unit_info.json");
        let list = structure(FileKind::of(list.as_str()), &bytes(&list));
        let units = units(kind);
        let names: Vec<&str> = units.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(list.facts.queue.unwrap().units.unwrap(), names);
        for path in &units {
            let unit = pickle(&bytes(path));
            assert_eq!((unit.verdict, codes(&unit)), (Verdict::Whole, Vec::new()), "{path}");
            let said = unit.facts.queue.unwrap();
            assert!(path.as_str().ends_with(&format!("_{}.pkl", said.unit.unwrap())));
            assert_eq!(said.blobs.is_empty(), kind == "memory", "{path}");
            for (name, size) in &said.blobs {
                let blob = bytes(&Utf8PathBuf::from(format!("{path}.blobs")).join(name));
                assert_eq!(blob.len() as u64, *size, "{name}");
            }
        }
    }
}

#[test]
fn every_cut_of_a_unit_is_found() {
    let unit = bytes(&units("ssd")[0]);
    for keep in 0..unit.len() {
        assert_ne!(pickle(&unit[..keep]).verdict, Verdict::Whole, "cut to {keep}");
    }
}

/// What `_load_from_bytes` is given is loaded as a pickle: only the elements of a storage may be others.
#[test]
fn a_storage_that_is_anything_else_is_unsafe() {
    let unit = bytes(&units("memory")[0]);
    let magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.";
    let at = unit.windows(magic.len()).position(|w| w == magic).unwrap();
    let size = u32::from_le_bytes(unit[at - 4..at].try_into().unwrap()) as usize;
    let key = b"q\x01a.";
    let head = at + unit[at..at + size].windows(4).position(|w| w == key).unwrap() + 4 + 8;
    for place in at..at + size {
        let mut other = unit.clone();
        other[place] ^= 1;
        let verdict = pickle(&other).verdict;
        let wanted = if place < head { Verdict::Unsafe } else { Verdict::Whole };
        assert_eq!(verdict, wanted, "byte {} of {size}", place - at);
    }
}

#[test]
fn a_list_that_names_other_places_is_damaged() {
    for text in [
        "[]",
        r#"[{"position": 1, "storage_unit_id": "a"}]"#,
        r#"[{"position": 0, "storage_unit_id": "a"}, {"position": 0, "storage_unit_id": "b"}]"#,
        r#"[{"position": 0, "storage_unit_id": "../a"}]"#,
        r#"[{"position": 0, "storage_unit_id": ""}]"#,
        r#"[{"position": 0}]"#,
        r#"{"position": 0, "storage_unit_id": "a"}"#,
    ] {
        let list = structure(FileKind::QueueUnits, text.as_bytes());
        assert_eq!(list.verdict, Verdict::Damaged, "{text}");
    }
}
