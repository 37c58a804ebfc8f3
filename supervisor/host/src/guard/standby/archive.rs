//! A ZIP archive of one file, from which an interpreter imports.

/// Builds a ZIP archive of one stored file.
///
/// Format: PKWARE APPNOTE 6.3.10, 4.3.7, 4.3.12 and 4.3.16.
pub(super) fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
    // Version, flags, method, time and date (1980-01-01), then what both headers share.
    let mut common: Vec<u8> = [20_u16, 0, 0, 0, 33].iter().flat_map(|n| n.to_le_bytes()).collect();
    common.extend(
        [crc32fast::hash(content), size, size]
            .iter()
            .flat_map(|n| n.to_le_bytes()),
    );
    common.extend([length, 0].iter().flat_map(|n| n.to_le_bytes()));
    let mut out = b"PK\x03\x04".to_vec();
    out.extend(&common);
    out.extend(name.as_bytes());
    out.extend(content);
    let at = u32::try_from(out.len()).unwrap_or(u32::MAX);
    let mut directory = b"PK\x01\x02\x14\x00".to_vec();
    directory.extend(&common);
    // No comment, first disk, no attributes, offset 0.
    directory.extend([0; 14]);
    directory.extend(name.as_bytes());
    let directory_size = u32::try_from(directory.len()).unwrap_or(u32::MAX);
    out.extend(directory);
    out.extend(b"PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00");
    out.extend([directory_size, at].iter().flat_map(|n| n.to_le_bytes()));
    out.extend([0; 2]);
    out
}
