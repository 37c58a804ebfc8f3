//! The zip around a torch file: stored entries, 64-byte alignment, sizes and checksums
//! in data descriptors and in the central directory, a zip64 end record always.

use super::TorchFileError;

const ALIGNMENT: usize = 64;
const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;
/// A data descriptor follows, and names are UTF-8.
const FLAGS: u16 = 0x0808;

#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    central: Vec<u8>,
    entries: u16,
    checksum: crc32fast::Hasher,
}

impl Writer {
    pub(super) fn add(&mut self, name: &str, data: &[u8]) {
        let crc = crc32fast::hash(data);
        self.checksum.update(data);
        let offset = self.bytes.len() as u32;
        let before_padding = self.bytes.len() + 30 + name.len() + 4;
        let padding = (ALIGNMENT - before_padding % ALIGNMENT) % ALIGNMENT;
        self.words(&[LOCAL]);
        self.halves(&[0, FLAGS, 0, 0, 0]);
        self.words(&[0, 0, 0]);
        self.halves(&[name.len() as u16, (padding + 4) as u16]);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"FB");
        self.halves(&[padding as u16]);
        self.bytes.extend(std::iter::repeat_n(b'Z', padding));
        self.bytes.extend_from_slice(data);
        self.words(&[DESCRIPTOR, crc, data.len() as u32, data.len() as u32]);

        let start = std::mem::take(&mut self.bytes);
        self.words(&[CENTRAL]);
        self.halves(&[0, 0, FLAGS, 0, 0, 0]);
        self.words(&[crc, data.len() as u32, data.len() as u32]);
        self.halves(&[name.len() as u16, 0, 0, 0, 0]);
        self.words(&[0, offset]);
        self.bytes.extend_from_slice(name.as_bytes());
        let record = std::mem::replace(&mut self.bytes, start);
        self.central.extend_from_slice(&record);
        self.entries += 1;
    }

    /// A number that depends on all data so far.
    pub(super) fn checksum(&self) -> u32 {
        self.checksum.clone().finalize()
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let offset = self.bytes.len();
        let central = std::mem::take(&mut self.central);
        self.bytes.extend_from_slice(&central);
        let end64 = self.bytes.len() as u64;
        self.words(&[END64]);
        self.longs(&[44]);
        self.halves(&[45, 45]);
        self.words(&[0, 0]);
        let entries = self.entries;
        self.longs(&[entries.into(), entries.into(), central.len() as u64, offset as u64]);
        self.words(&[LOCATOR, 0]);
        self.longs(&[end64]);
        self.words(&[1]);
        self.words(&[END]);
        self.halves(&[0, 0, entries, entries]);
        self.words(&[central.len() as u32, offset as u32]);
        self.halves(&[0]);
        self.bytes
    }

    fn halves(&mut self, values: &[u16]) {
        values
            .iter()
            .for_each(|v| self.bytes.extend_from_slice(&v.to_le_bytes()));
    }

    fn words(&mut self, values: &[u32]) {
        values
            .iter()
            .for_each(|v| self.bytes.extend_from_slice(&v.to_le_bytes()));
    }

    fn longs(&mut self, values: &[u64]) {
        values
            .iter()
            .for_each(|v| self.bytes.extend_from_slice(&v.to_le_bytes()));
    }
}

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// Name and data of each entry.
    entries: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, TorchFileError> {
        let mut reader = Reader {
            bytes,
            entries: Vec::new(),
        };
        reader.read_directory().ok_or(TorchFileError::NoCentralDirectory)?;
        Ok(reader)
    }

    pub(super) fn entry(&self, name: &str) -> Result<&'a [u8], TorchFileError> {
        let found = self.entries.iter().find(|(n, _)| *n == name.as_bytes());
        found
            .map(|(_, data)| *data)
            .ok_or_else(|| TorchFileError::NoEntry(name.to_owned()))
    }

    /// Files of this writer end without a comment, so the end record has a fixed place.
    fn read_directory(&mut self) -> Option<()> {
        let end = self.bytes.len().checked_sub(22)?;
        (self.word(end)? == END).then_some(())?;
        let mut at = self.word(end + 16)? as usize;
        for _ in 0..self.half(end + 10)? {
            (self.word(at)? == CENTRAL).then_some(())?;
            let size = self.word(at + 24)? as usize;
            let name_length = self.half(at + 28)? as usize;
            let name = self.bytes.get(at + 46..at + 46 + name_length)?;
            let local = self.word(at + 42)? as usize;
            (self.word(local)? == LOCAL).then_some(())?;
            let start = local + 30 + self.half(local + 26)? as usize + self.half(local + 28)? as usize;
            self.entries.push((name, self.bytes.get(start..start + size)?));
            at += 46 + name_length + self.half(at + 30)? as usize + self.half(at + 32)? as usize;
        }
        Some(())
    }

    fn half(&self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
    }
}
