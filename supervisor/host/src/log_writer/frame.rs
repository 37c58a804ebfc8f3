//! Frames in the pipe between guard and log writer: a header of nine bytes, then the payload.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

pub(crate) const HEADER_LEN: usize = 9;

pub(crate) const PAYLOAD_LIMIT: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// A [`LogOrder`] as JSON; the first frame.
    Order,
    Output,
    Tree,
    /// All values to redact from now on, as JSON.
    Secrets,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogOrder {
    pub(crate) dir: Utf8PathBuf,
    pub(crate) workers: u32,
    pub(crate) output_max: u64,
    pub(crate) output_keep: u32,
    /// Values to redact in the output. They are only sent through the pipe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) secrets: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) worker: u32,
    pub(crate) len: usize,
}

impl FrameHeader {
    pub(crate) fn encode(self) -> [u8; HEADER_LEN] {
        let kind = match self.kind {
            FrameKind::Order => 1,
            FrameKind::Output => 2,
            FrameKind::Tree => 3,
            FrameKind::Secrets => 4,
        };
        let [a, b, c, d] = self.worker.to_le_bytes();
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        let [e, f, g, h] = len.to_le_bytes();
        [kind, a, b, c, d, e, f, g, h]
    }

    /// `None` if no guard of this version writes such a header.
    pub(crate) fn decode(bytes: [u8; HEADER_LEN]) -> Option<Self> {
        let [kind, a, b, c, d, e, f, g, h] = bytes;
        let kind = match kind {
            1 => FrameKind::Order,
            2 => FrameKind::Output,
            3 => FrameKind::Tree,
            4 => FrameKind::Secrets,
            _ => return None,
        };
        let len = usize::try_from(u32::from_le_bytes([e, f, g, h])).ok()?;
        (len <= PAYLOAD_LIMIT).then_some(Self {
            kind,
            worker: u32::from_le_bytes([a, b, c, d]),
            len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_nonsense_does_not() {
        let header = FrameHeader {
            kind: FrameKind::Output,
            worker: 0x0102_0304,
            len: 65536,
        };
        assert_eq!(FrameHeader::decode(header.encode()), Some(header));
        assert_eq!(FrameHeader::decode([9; HEADER_LEN]), None);
        assert_eq!(FrameHeader::decode([2, 0, 0, 0, 0, 255, 255, 255, 255]), None);
    }
}
