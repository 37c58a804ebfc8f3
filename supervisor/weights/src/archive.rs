//! Lays out an archive as `torch.save` does.
//!
//! Source: torch 2.11 `caffe2/serialize/inline_container.cc` and its output: stored entries, each followed by a data descriptor, data
//! aligned to 64 bytes, always a zip64 end record.

use crate::problem::ModelError;

/// Alignment of each entry's data.
const ALIGN: u64 = 64;
const HEADER: u64 = 30;
const DESCRIPTOR: u64 = 16;
/// Stored, with a data descriptor, names in UTF-8.
const FLAGS: u16 = 0x0808;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveEntry {
    /// Name relative to the archive's own.
    pub(crate) name: String,
    pub(crate) len: u64,
    /// The content, if it is known before the pass over the source.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Number of zero bytes at the end that come from no source.
    pub(crate) zeros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveLayout {
    entries: Vec<Placed>,
    directory: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    name: String,
    header: u64,
    data: u64,
    len: u64,
}

impl ArchiveLayout {
    /// Lays out entries one after the other.
    ///
    /// # Errors
    /// An entry of 4 GiB or more.
    pub(crate) fn of(prefix: &str, entries: &[ArchiveEntry]) -> Result<Self, ModelError> {
        let mut out = Vec::with_capacity(entries.len());
        let mut at = 0;
        for entry in entries {
            let name = format!("{prefix}/{}", entry.name);
            if entry.len > u64::from(u32::MAX) {
                let text = format!(
                    "{name}: it would have {} bytes, 4 GiB are the most that is written here",
                    entry.len
                );
                return Err(ModelError::unknown(text));
            }
            // The extra field has four bytes before its padding.
            let data = (at + HEADER + name.len() as u64 + 4).next_multiple_of(ALIGN);
            out.push(Placed {
                header: at,
                data,
                len: entry.len,
                name,
            });
            at = data + entry.len + DESCRIPTOR;
        }
        let directory = at;
        let ends = 56 + 20 + 22;
        let central: u64 = out.iter().map(Placed::central_len).sum();
        Ok(Self {
            entries: out,
            directory,
            bytes: directory + central + ends,
        })
    }

    pub(crate) fn data(&self, n: usize) -> u64 {
        self.entries[n].data
    }

    /// Returns the bytes outside of the entries' data, with their offsets; `crcs` in the order of the entries.
    pub(crate) fn frame(&self, crcs: &[u32]) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::with_capacity(2 * self.entries.len() + 1);
        let mut central = Vec::new();
        for (entry, crc) in self.entries.iter().zip(crcs) {
            out.push((entry.header, entry.local()));
            let mut descriptor = b"PK\x07\x08".to_vec();
            descriptor.extend(crc.to_le_bytes());
            descriptor.extend((entry.len as u32).to_le_bytes());
            descriptor.extend((entry.len as u32).to_le_bytes());
            out.push((entry.data + entry.len, descriptor));
            entry.central(*crc, &mut central);
        }
        let size = central.len() as u64;
        let count = self.entries.len() as u64;
        central.extend(b"PK\x06\x06");
        central.extend(44_u64.to_le_bytes());
        central.extend([0x1e, 3, 45, 0]);
        central.extend([0; 8]);
        for n in [count, count, size, self.directory] {
            central.extend(n.to_le_bytes());
        }
        central.extend(b"PK\x06\x07");
        central.extend(0_u32.to_le_bytes());
        central.extend((self.directory + size).to_le_bytes());
        central.extend(1_u32.to_le_bytes());
        central.extend(b"PK\x05\x06");
        central.extend([0; 4]);
        let few = u16::try_from(count).unwrap_or(u16::MAX);
        central.extend(few.to_le_bytes());
        central.extend(few.to_le_bytes());
        for n in [size, self.directory] {
            central.extend(u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
        }
        central.extend([0; 2]);
        out.push((self.directory, central));
        out
    }
}

impl Placed {
    fn far(&self) -> bool {
        self.header >= u64::from(u32::MAX)
    }

    fn central_len(&self) -> u64 {
        46 + self.name.len() as u64 + if self.far() { 12 } else { 0 }
    }

    fn local(&self) -> Vec<u8> {
        let mut out = b"PK\x03\x04".to_vec();
        out.extend([0; 2]);
        out.extend(FLAGS.to_le_bytes());
        out.extend([0; 18]);
        let extra = self.data - self.header - HEADER - self.name.len() as u64;
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend((extra as u16).to_le_bytes());
        out.extend(self.name.as_bytes());
        out.extend(b"FB");
        out.extend(((extra - 4) as u16).to_le_bytes());
        out.resize((self.data - self.header) as usize, b'Z');
        out
    }

    fn central(&self, crc: u32, out: &mut Vec<u8>) {
        out.extend(b"PK\x01\x02");
        out.extend([0; 4]);
        out.extend(FLAGS.to_le_bytes());
        out.extend([0; 6]);
        out.extend(crc.to_le_bytes());
        out.extend((self.len as u32).to_le_bytes());
        out.extend((self.len as u32).to_le_bytes());
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend((if self.far() { 12_u16 } else { 0 }).to_le_bytes());
        out.extend([0; 10]);
        out.extend(u32::try_from(self.header).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.name.as_bytes());
        if self.far() {
            out.extend([1, 0, 8, 0]);
            out.extend(self.header.to_le_bytes());
        }
    }
}
