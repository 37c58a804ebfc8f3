//! Archives that are not what they seem: what one reader takes for a harmless file, torch.load would run.

use crate::build::{Zip, codes, full, state_dict, torch_zip};
use supervise_checkpoint::{FileKind, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::Verdict;

/// One test for each file: its name, its bytes, what must come out, and the finding that says so.
macro_rules! files {
    ($($name:ident: $file:expr => $verdict:ident $code:literal;)*) => {
        $(#[test]
        fn $name() {
            let report = {
                let file: Vec<u8> = $file;
                full(FileKind::TorchZip, &file)
            };
            assert_eq!(report.verdict, Verdict::$verdict, "{:?}", report.findings);
            assert!(codes(&report).contains(&$code), "{:?}", report.findings);
        })*
    };
}

/// An archive whose pickle is harmless.
fn harmless() -> Zip {
    torch_zip(&state_dict(&[]), &[])
}

const EVIL: &[u8] = b"cposix\nsystem\n(S'id'\ntR.";

/// The same, with bytes changed in both of the places that hold a field: `(offset in the local header, in the record)`.
fn changed(mut file: Vec<u8>, local: Option<usize>, record: Option<usize>, bits: u8) -> Vec<u8> {
    let found = |file: &[u8], magic: &[u8]| file.windows(4).position(|w| w == magic).unwrap();
    if let Some(at) = local {
        let from = found(&file, b"PK\x03\x04");
        file[from + at] ^= bits;
    }
    if let Some(at) = record {
        let from = found(&file, b"PK\x01\x02");
        file[from + at] ^= bits;
    }
    file
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The file that torch wrote before version 1.6, with something else for its first value.
fn legacy() -> Vec<u8> {
    joined(&[
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
        b"\x80\x02M\xe9\x03.",
        EVIL,
    ])
}

fn tar() -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..7].copy_from_slice(b"storage");
    header[257..262].copy_from_slice(b"ustar");
    joined(&[&header, EVIL, &[0; 2048]])
}

files! {
    evil_pickle: torch_zip(EVIL, &[]).bytes() => Unsafe "unsafe_global";
    pickle_under_another_case: Zip::new("archive").with("DATA.PKL", EVIL).with("version", *b"3\n").bytes() => Unsafe "unsafe_global";
    pickle_under_two_cases: harmless().with("Data.pkl", EVIL).bytes() => Damaged "zip_directory";
    pickle_named_twice: harmless().with("data.pkl", EVIL).bytes() => Damaged "zip_directory";
    pickle_in_another_folder: harmless().stranger("other/data.pkl", EVIL).bytes() => Damaged "zip_strangers";
    pickle_without_a_folder: harmless().stranger("data.pkl", EVIL).bytes() => Damaged "zip_strangers";
    pickle_under_a_dotted_path: harmless().stranger("archive/../archive/data.pkl", EVIL).stranger("x", b"").bytes() => Damaged "zip_strangers";
    archive_without_a_folder: Zip::new("archive").stranger("data.pkl", EVIL).stranger("version", b"3\n").bytes() => Damaged "zip_strangers";
    folder_of_the_first_entry_decides: Zip::new("b").stranger("a/data.pkl", EVIL).with("data.pkl", state_dict(&[])).bytes() => Unsafe "unsafe_global";
    compiled_script: harmless().with("constants.pkl", EVIL).bytes() => Unsafe "torchscript";
    pickle_said_to_be_encrypted: changed(torch_zip(EVIL, &[]).bytes(), Some(6), Some(8), 1) => Unknown "zip_not_stored";
    pickle_said_to_be_encrypted_in_the_directory: changed(torch_zip(EVIL, &[]).bytes(), None, Some(8), 1) => Unknown "zip_not_stored";
    pickle_said_to_be_encrypted_in_its_header: changed(torch_zip(EVIL, &[]).bytes(), Some(6), None, 1) => Damaged "zip_local_header";
    pickle_said_to_be_patched: changed(torch_zip(EVIL, &[]).bytes(), Some(6), Some(8), 0x20) => Unsafe "unsafe_global";
    pickle_said_to_be_packed: changed(torch_zip(EVIL, &[]).bytes(), Some(8), Some(10), 8) => Unknown "zip_not_stored";
    pickle_of_another_version: changed(torch_zip(EVIL, &[]).bytes(), Some(4), Some(6), 0x7f) => Unsafe "unsafe_global";
    pickle_with_another_name_in_its_header: changed(torch_zip(EVIL, &[]).bytes(), Some(30), None, 1) => Damaged "zip_local_header";
    pickle_with_another_name_in_the_directory: changed(torch_zip(EVIL, &[]).bytes(), None, Some(46), 1) => Damaged "zip_local_header";
    pickle_with_another_checksum: changed(torch_zip(EVIL, &[]).bytes(), None, Some(16), 1) => Damaged "zip_descriptor";
    bytes_before_the_archive: joined(&[EVIL, &harmless().bytes()]) => Damaged "zip_end_record";
    bytes_behind_the_archive: joined(&[&harmless().bytes(), EVIL]) => Damaged "zip_trailing_bytes";
    archive_behind_an_archive: joined(&[&torch_zip(EVIL, &[]).bytes(), &harmless().bytes()]) => Damaged "zip_end_record";
    archive_that_is_cut_off: torch_zip(EVIL, &[]).bytes()[..200].to_vec() => Incomplete "zip_truncated";
    archive_within_an_archive: harmless().with("data/0", torch_zip(EVIL, &[]).bytes()).bytes() => Whole "storage_unreferenced";
    bare_pickle: EVIL.to_vec() => Damaged "not_a_zip";
    bare_pickle_of_protocol_4: b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.".to_vec() => Damaged "not_a_zip";
    legacy_file: legacy() => Unknown "legacy_torch_file";
    legacy_file_with_another_magic: joined(&[b"\x80\x02\x8a\x01\x01.", EVIL]) => Damaged "not_a_zip";
    tar_file: tar() => Damaged "not_a_zip";
    seven_zip_file: joined(&[b"7z\xbc\xaf\x27\x1c\x00\x04", EVIL]) => Damaged "not_a_zip";
    gzip_file: joined(&[b"\x1f\x8b\x08\x00", EVIL]) => Damaged "not_a_zip";
    numpy_file: joined(&[b"\x93NUMPY\x01\x00", EVIL]) => Damaged "not_a_zip";
}

/// The archive begins behind other bytes, and its offsets count from the beginning of the file: every zip reader opens
/// it, and torch.load, which looks at the first four bytes only, takes it for a pickle.
#[test]
fn archive_that_allows_for_bytes_before_it() {
    let mut file = shifted(&harmless().bytes(), EVIL);
    let report = full(FileKind::TorchZip, &file);
    assert_eq!(report.verdict, Verdict::Damaged, "{:?}", report.findings);
    assert_eq!(codes(&report), ["not_a_zip"]);
    // The same bytes, were they nothing: the offsets are right.
    file[..4].copy_from_slice(b"PK\x03\x04");
    assert_eq!(codes(&full(FileKind::TorchZip, &file)), ["not_a_zip"]);
}

/// Puts bytes before an archive and corrects all offsets.
fn shifted(archive: &[u8], before: &[u8]) -> Vec<u8> {
    let by = before.len() as u64;
    let mut file = joined(&[before, archive]);
    let end = file.len() - 22;
    let add = |file: &mut [u8], at: usize, width: usize| {
        let mut field = [0; 8];
        field[..width].copy_from_slice(&file[at..at + width]);
        let value = u64::from_le_bytes(field) + by;
        file[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        value as usize
    };
    let mut at = add(&mut file, end + 16, 4);
    add(&mut file, end - 20 + 8, 8);
    add(&mut file, end - 20 - 56 + 48, 8);
    while file[at..].starts_with(b"PK\x01\x02") {
        add(&mut file, at + 42, 4);
        at += 46 + usize::from(u16::from_le_bytes([file[at + 28], file[at + 29]]));
    }
    file
}

/// If reads are rationed, the place of an entry is derived from its neighbours; a loader goes by its header.
#[test]
fn pickle_that_its_header_puts_elsewhere() {
    let good = state_dict(&[]);
    let mut stored = EVIL.to_vec();
    stored.resize(good.len(), b'.');
    stored.extend(&good);
    let mut file = Zip::new("archive")
        .with("version", *b"3\n")
        .with("data.pkl", stored)
        .bytes();
    let header = file.windows(8).position(|w| w == b"data.pkl").unwrap() - 8 - 30;
    let pad = 30 + 16 + usize::from(u16::from_le_bytes([file[header + 28], file[header + 29]]));
    assert_eq!(&file[header + pad..][..4], &EVIL[..4]);
    // The directory names the size of the second half only: derived from the next header, that is what is read.
    let record = file.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let descriptor = header + pad + 2 * good.len();
    let crc = crc32fast::hash(&good).to_le_bytes();
    for at in [record + 16, descriptor + 4] {
        file[at..at + 4].copy_from_slice(&crc);
    }
    for at in [record + 20, record + 24, descriptor + 8, descriptor + 12] {
        file[at..at + 4].copy_from_slice(&(good.len() as u32).to_le_bytes());
    }
    for header_reads in [0, 1, 4096] {
        let limits = InspectLimits {
            header_reads,
            ..InspectLimits::default()
        };
        let report = judge_file(&inspect(FileKind::TorchZip, &file, &limits), &[]);
        assert!(
            report.verdict >= Verdict::Damaged,
            "{header_reads}: {:?}",
            report.findings
        );
    }
}
