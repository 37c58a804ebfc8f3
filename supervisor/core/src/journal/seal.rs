//! The checksum at the end of a line.

/// Appends a checksum to a JSON object, and a newline.
#[must_use]
pub fn seal(mut object: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&object);
    object.pop();
    object.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
    object
}

/// Checks the checksum of a line (without its newline) and returns its JSON object.
///
/// # Errors
/// Why the line has no valid checksum, as text.
pub fn unseal(line: &[u8]) -> Result<Vec<u8>, String> {
    let open = sealed(line).map_err(|why| why.words().to_owned())?;
    Ok([open, b"}"].concat())
}

/// Why a line's checksum cannot be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    Short,
    Missing,
    Changed,
}

impl Broken {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Short => "too short",
            Self::Missing => "it has no checksum",
            Self::Changed => "its checksum does not match",
        }
    }
}

/// The same, without the closing brace.
pub(super) fn sealed(line: &[u8]) -> Result<&[u8], Broken> {
    const TAIL: usize = r#","crc":"00000000"}"#.len();
    let at = line.len().checked_sub(TAIL).ok_or(Broken::Short)?;
    let (body, tail) = line.split_at(at);
    let stated = tail
        .strip_prefix(br#","crc":""#)
        .and_then(|t| t.strip_suffix(br#""}"#))
        .and_then(|hex| std::str::from_utf8(hex).ok())
        .filter(|hex| !hex.bytes().any(|b| b.is_ascii_uppercase()))
        .and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let mut sum = crc32fast::Hasher::new();
    sum.update(body);
    sum.update(b"}");
    match stated {
        Some(crc) if crc == sum.finalize() => Ok(body),
        Some(_) => Err(Broken::Changed),
        None => Err(Broken::Missing),
    }
}
