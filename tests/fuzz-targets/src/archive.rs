//! Archives as torch writes them, around any pickle.

/// An archive with this pickle and four storages of 64 bytes.
pub(crate) fn around(pickle: &[u8]) -> Vec<u8> {
    let storage: Vec<u8> = (0..64).collect();
    let mut entries: Vec<(String, &[u8])> = vec![
        ("archive/data.pkl".to_owned(), pickle),
        ("archive/byteorder".to_owned(), b"little"),
    ];
    entries.extend((0..4).map(|n| (format!("archive/data/{n}"), storage.as_slice())));
    entries.push(("archive/version".to_owned(), b"3\n"));
    zip(&entries)
}

/// Fields as `(value, bytes)`.
fn zip(entries: &[(String, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, bytes) in entries {
        let at = out.len() as u64;
        let (crc, size) = (u64::from(crc32fast::hash(bytes)), bytes.len() as u64);
        put(
            &mut out,
            &[(0x0403_4b50, 4), (0, 2), (0x808, 2), (0, 2), (0, 8), (0, 8)],
        );
        put(&mut out, &[(name.len() as u64, 2), (0, 2)]);
        out.extend(name.as_bytes());
        out.extend(*bytes);
        put(&mut out, &[(0x0807_4b50, 4), (crc, 4), (size, 4), (size, 4)]);
        put(
            &mut directory,
            &[(0x0201_4b50, 4), (0, 4), (0x808, 2), (0, 6), (crc, 4)],
        );
        put(&mut directory, &[(size, 4), (size, 4), (name.len() as u64, 2)]);
        put(&mut directory, &[(0, 8), (0, 4), (at, 4)]);
        directory.extend(name.as_bytes());
    }
    let (at, size, n) = (out.len() as u64, directory.len() as u64, entries.len() as u64);
    out.extend(directory);
    put(&mut out, &[(0x0606_4b50, 4), (44, 8), (0x031e, 2), (45, 2), (0, 8)]);
    put(&mut out, &[(n, 8), (n, 8), (size, 8), (at, 8)]);
    put(&mut out, &[(0x0706_4b50, 4), (0, 4), (at + size, 8), (1, 4)]);
    put(&mut out, &[(0x0605_4b50, 4), (0, 4), (n, 2), (n, 2), (size, 4)]);
    put(&mut out, &[(at, 4), (0, 2)]);
    out
}

/// Appends little-endian fields of the given widths.
fn put(out: &mut Vec<u8>, fields: &[(u64, usize)]) {
    for (value, width) in fields {
        out.extend(&value.to_le_bytes()[..*width]);
    }
}

#[cfg(test)]
mod tests {
    use supervise_checkpoint::{FileKind, InspectLimits, inspect, judge_file};
    use supervise_core::checkpoint::Verdict;

    #[test]
    fn the_archive_itself_is_sound() {
        let file = super::around(b"\x80\x02}.");
        let report = judge_file(&inspect(FileKind::TorchZip, &file, &InspectLimits::default()), &[]);
        assert_eq!(report.verdict, Verdict::Whole, "{:?}", report.findings);
    }
}
