//! Forms in which a known value is printed: as is, quoted, base64, hexadecimal, percent-encoded, or half of it.

/// Shortest value, in bytes, whose halves are hidden too.
const HALVED: usize = 20;
/// Longest value, in bytes, whose encoded forms are searched for: a private key is printed as is.
const ENCODED: usize = 4 << 10;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Returns every form of a value, itself first.
pub(super) fn of(value: &str) -> Vec<Vec<u8>> {
    let quoted: String = value.escape_default().collect();
    let mut forms: Vec<Vec<u8>> = vec![
        value.into(),
        value.replace('\\', "\\\\").replace('"', "\\\"").into(),
        value.replace('\\', "\\\\").replace('\'', "\\'").into(),
        value.replace('/', "\\/").into(),
        quoted.into(),
        ascii_json(value).into(),
    ];
    if value.len() <= ENCODED {
        forms.extend(base64(value.as_bytes()));
        let hex: Vec<u8> = value.bytes().flat_map(|b| hex(b, HEX)).collect();
        forms.push(hex.to_ascii_uppercase());
        forms.push(hex);
        for kept in ["-_.~", "-_.~/", "-_.!~*'()"] {
            let percent = percent(value, kept);
            forms.push(lower_percent(&percent));
            forms.push(percent.replace("%20", "+").into());
            forms.push(percent.into());
        }
    }
    forms.extend(halves(value));
    forms
}

fn hex(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// The base64 characters that depend only on the value, for every alignment and both alphabets.
fn base64(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let aligned = (0..3).map(|before: usize| {
        let bits: Vec<bool> = value
            .iter()
            .flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1 == 1))
            .collect();
        // Bits of the value that complete a character which began before it.
        let skip = (6 - before * 8 % 6) % 6;
        bits.get(skip..)
            .unwrap_or_default()
            .chunks_exact(6)
            .map(|six| BASE64[six.iter().fold(0, |n, bit| n << 1 | usize::from(*bit))])
            .collect::<Vec<u8>>()
    });
    aligned.flat_map(|text| {
        let url = text
            .iter()
            .map(|b| match b {
                b'+' => b'-',
                b'/' => b'_',
                b => *b,
            })
            .collect();
        [text, url]
    })
}

fn percent(value: &str, kept: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            true => out.push(char::from(byte)),
            false => {
                out.push('%');
                out.extend(hex(byte, HEX).map(|b| char::from(b.to_ascii_uppercase())));
            }
        }
    }
    out
}

fn lower_percent(text: &str) -> Vec<u8> {
    let mut out = text.as_bytes().to_vec();
    for at in 0..out.len() {
        if out[at] == b'%' {
            out[at..]
                .iter_mut()
                .skip(1)
                .take(2)
                .for_each(|b| b.make_ascii_lowercase());
        }
    }
    out
}

/// JSON in ASCII, as Python writes it.
fn ascii_json(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut units = [0; 2];
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    out
}

/// The halves of a value: a program that shows part of a token cuts it in two. Half of an ordinary word is not a secret.
fn halves(value: &str) -> impl Iterator<Item = Vec<u8>> {
    let is_halved =
        value.is_ascii() && (HALVED..=ENCODED).contains(&value.len()) && !value.contains(char::is_whitespace);
    let (first, second) = value.as_bytes().split_at(value.len() / 2);
    let is_odd = |half: &&[u8]| half.iter().any(u8::is_ascii_digit) && half.iter().any(u8::is_ascii_alphabetic);
    [first, second]
        .into_iter()
        .filter(move |_| is_halved)
        .filter(is_odd)
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes bytes as base64 with an independent implementation.
    fn encoded(bytes: &[u8]) -> String {
        let mut out = String::new();
        for three in bytes.chunks(3) {
            let n = three.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - three.len()));
            for k in 0..=three.len() {
                out.push(char::from(BASE64[(n >> (18 - 6 * k)) as usize & 63]));
            }
        }
        out
    }

    #[test]
    fn every_alignment_of_base64_is_a_form() {
        let value = "sEcret-val?>ue";
        let forms = of(value);
        for before in 0..4 {
            for after in 0..3 {
                let text = encoded(format!("{}{value}{}", "u".repeat(before), ":".repeat(after)).as_bytes());
                let found = base64(value.as_bytes()).any(|form| text.contains(std::str::from_utf8(&form).unwrap()));
                assert!(found, "{before} {after}: {text}");
            }
        }
        for form in [
            "7345637265742d76616c3f3e7565",
            "7345637265742D76616C3F3E7565",
            "sEcret-val%3F%3Eue",
            "sEcret-val%3f%3eue",
        ] {
            assert!(forms.contains(&form.as_bytes().to_vec()), "{form}");
        }
        assert_eq!(ascii_json("a\"é\u{1f600}"), "a\\\"\\u00e9\\ud83d\\ude00");
    }

    #[test]
    fn halves_of_what_may_be_words_are_none() {
        assert_eq!(halves("0a1b2c3d4e5f6g7h8i9j").count(), 2);
        assert_eq!(halves("letters-only-and-long-ones").count(), 0);
        assert_eq!(halves("0a1b2c3d4e").count(), 0);
    }
}
