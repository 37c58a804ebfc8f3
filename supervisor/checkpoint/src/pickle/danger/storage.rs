//! The bytes of a storage that torch pickled outside of a `torch.save` file.
//!
//! They are a file in torch's older format, which `torch.storage._load_from_bytes` passes to `torch.load`: five pickles and the elements.
//! The same few lines of code have written each pickle since torch 1.6, so they are compared byte by byte. Anything that differs is not a
//! single storage, and loading it could run anything.

use crate::device::is_device;
use crate::dtype::Dtype;

/// Magic number, format version, and type sizes on a little-endian machine: one pickle each.
const HEAD: &[u8] = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00(X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03\
X\r\x00\x00\x00little_endianq\x02\x88X\n\x00\x00\x00type_sizesq\x03}q\x04(X\x05\x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04\
X\x04\x00\x00\x00longq\x07K\x04uu.";

/// Whether this is exactly one storage.
pub(in crate::pickle) fn is_storage(bytes: &[u8]) -> bool {
    read(bytes).is_some()
}

fn read(bytes: &[u8]) -> Option<()> {
    let rest = bytes.strip_prefix(HEAD)?;
    let rest = rest.strip_prefix(b"\x80\x02(X\x07\x00\x00\x00storageq\x00ctorch\n")?;
    let end = rest.iter().take(32).position(|b| *b == b'\n')?;
    let class = Dtype::from_storage(str::from_utf8(&rest[..end]).ok()?)?;
    let rest = rest[end..].strip_prefix(b"\nq\x01")?;
    let (key, rest) = text(rest)?;
    let digits = !key.is_empty() && key.iter().all(u8::is_ascii_digit);
    let (device, rest) = text(rest.strip_prefix(b"q\x02").filter(|_| digits)?)?;
    let known = str::from_utf8(device).is_ok_and(is_device);
    let (count, rest) = number(rest.strip_prefix(b"q\x03").filter(|_| known)?)?;
    let rest = rest.strip_prefix(b"Ntq\x04Q.\x80\x02]q\x00")?;
    let (again, rest) = text(rest)?;
    let rest = rest.strip_prefix(b"q\x01a.").filter(|_| again == key)?;
    let (length, elements) = rest.split_first_chunk()?;
    let all = count.checked_mul(class.size())?;
    (u64::from_le_bytes(*length) == count && elements.len() as u64 == all).then_some(())
}

fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.strip_prefix(b"X")?.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Parses a non-negative number in one of protocol 2's shortest forms.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (opcode, rest) = bytes.split_first()?;
    let (digits, rest) = match opcode {
        b'K' => rest.split_at_checked(1)?,
        b'M' => rest.split_at_checked(2)?,
        b'J' => rest.split_at_checked(4)?,
        b'\x8a' => {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length).min(9))
                .filter(|_| *length <= 8)?
        }
        _ => return None,
    };
    // The highest bit is the sign, if the opcode is signed.
    let signed = matches!(opcode, b'J' | b'\x8a');
    let negative = signed && digits.last().is_some_and(|b| b & 0x80 != 0);
    let number = digits.iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
    (!negative).then_some((number, rest))
}
