//! Private keys in a text: from `-----BEGIN … PRIVATE KEY-----` to the end mark, with line breaks or `\n` between lines.

use std::ops::Range;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
/// Longest label, in bytes, between the dashes of a mark.
const LABEL: usize = 60;
/// Bytes of base64 that are hidden anywhere in a line of a key.
const RUN: usize = 20;

pub(super) fn first_begin(text: &str) -> Option<Range<usize>> {
    mark(text, BEGIN)
}

pub(super) fn first_end(text: &str) -> Option<Range<usize>> {
    mark(text, END)
}

/// Whether a key is still open at the end of this line; `None`: the line has no mark.
pub(super) fn is_open_after(line: &str) -> Option<bool> {
    let (mut rest, mut open) = (line, None);
    loop {
        let (begin, end) = (first_begin(rest), rest.find(END));
        let (at, is_begin) = match (begin, end) {
            (Some(begin), Some(end)) if end < begin.start => (end + END.len(), false),
            (Some(begin), _) => (begin.end, true),
            (None, Some(end)) => (end + END.len(), false),
            (None, None) => return open,
        };
        open = Some(is_begin);
        rest = rest.get(at..).unwrap_or_default();
    }
}

/// `-----BEGIN RSA PRIVATE KEY-----`, `-----BEGIN PGP PRIVATE KEY BLOCK-----`.
fn mark(text: &str, kind: &str) -> Option<Range<usize>> {
    text.match_indices(kind).find_map(|(at, _)| {
        let after = text.get(at + kind.len()..)?;
        let label = after.get(..after.find("-----")?)?;
        let is_label = label.len() <= LABEL && label.bytes().all(|b| !b.is_ascii_lowercase() && !b.is_ascii_control());
        (is_label && label.contains("PRIVATE KEY")).then(|| at..at + kind.len() + label.len() + 5)
    })
}

/// Hides everything between the marks of private keys. Returns `None` if there is no mark.
pub(super) fn hide_keys(text: &str) -> Option<String> {
    if !text.contains("PRIVATE KEY") {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (begin, end) = (first_begin(rest), first_end(rest));
        match (begin, end) {
            (None, None) => break,
            // The beginning of this key was cut off.
            (begin, Some(end)) if begin.as_ref().is_none_or(|begin| end.start < begin.start) => {
                let (head, after) = rest.split_at(end.end);
                let (body, mark) = head.split_at(end.start);
                out.push_str(&without_escaped_lines(body));
                out.push_str(mark);
                rest = after;
            }
            (Some(begin), _) => {
                let (head, body) = rest.split_at(begin.end);
                out.push_str(head);
                let end = body.find(END.trim_end()).unwrap_or(body.len());
                let (key, after) = body.split_at(end);
                // The mark alone, at the end of a line, hides nothing.
                let is_empty = after.is_empty() && key.trim_matches(['"', '\'', ',', ' ', '\r', '\n']).is_empty();
                out.push_str(if is_empty { key } else { "***" });
                // This mark belongs to the hidden key.
                let end = first_end(after)
                    .filter(|mark| mark.start == 0)
                    .map_or(0, |mark| mark.end);
                let (mark, after) = after.split_at(end);
                out.push_str(mark);
                rest = after;
            }
            (None, Some(_)) => break,
        }
    }
    (!out.is_empty()).then(|| out + rest)
}

/// Hides the text before the end mark of a key whose lines are separated by `\n`.
pub(super) fn without_escaped_lines(body: &str) -> String {
    if !body.contains("\\n") {
        return body.to_owned();
    }
    let hide = |(at, part): (usize, &str)| {
        let line = part.trim_end_matches('\\');
        match at {
            0 => without_base64(line) + part.get(line.len()..).unwrap_or_default(),
            _ if !line.is_empty() && line.chars().all(is_base64) => {
                format!("***{}", part.get(line.len()..).unwrap_or_default())
            }
            _ => part.to_owned(),
        }
    };
    let parts: Vec<String> = body.split("\\n").enumerate().map(hide).collect();
    parts.join("\\n")
}

/// Hides the base64 of a key's line, after any worker prefix or between quotes.
pub(super) fn without_base64(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(is_base64) {
        let (head, after) = rest.split_at(at);
        let (run, after) = after.split_at(after.find(|c| !is_base64(c)).unwrap_or(after.len()));
        let is_last = after.trim_end().trim_end_matches(['"', '\'', ',', '\\']).is_empty();
        let is_word = head.ends_with([' ', '\t', '"', '\'']) || head.is_empty() && out.is_empty();
        out.push_str(head);
        out.push_str(if run.len() >= RUN || is_last && is_word {
            "***"
        } else {
            run
        });
        rest = after;
    }
    out + rest
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')
}

#[cfg(test)]
mod tests {
    use super::super::{redact_lines, redact_text};

    const BODY: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

    fn account(newline: &str) -> String {
        format!(
            "{{\"type\": \"service_account\", \"private_key\": \"-----BEGIN PRIVATE KEY-----{newline}{BODY}{newline}\
             q1w2e3={newline}-----END PRIVATE KEY-----{newline}\", \"client_email\": \"a@b.c\"}}"
        )
    }

    #[test]
    fn a_key_in_one_line_of_json_is_hidden_whole() {
        let once = account("\\n");
        let twice = once.replace('\\', "\\\\").replace('"', "\\\"");
        let thrice = twice.replace('\\', "\\\\").replace('"', "\\\"");
        let pretty = once.replace(", ", ",\n  ");
        for text in [
            &once,
            &twice,
            &thrice,
            &pretty,
            &account("\\\\n"),
            &account("\\r\\n"),
            &account(" "),
        ] {
            let lines = redact_lines(text.lines()).join("\n");
            for shown in [redact_text(text), lines] {
                assert!(!shown.contains("MIIE") && !shown.contains("q1w2"), "{text}: {shown}");
                assert!(shown.contains("service_account") && shown.contains("a@b.c"), "{shown}");
                assert_eq!(redact_text(&shown), shown);
            }
        }
        assert_eq!(
            redact_text(&once),
            r#"{"type": "service_account", "private_key": "***", "client_email": "a@b.c"}"#
        );
    }

    #[test]
    fn a_key_in_one_line_is_hidden_where_one_of_its_ends_was_cut_off() {
        let text = account("\\n");
        let (head, tail) = (text.find("Us8c").unwrap(), text.find("e3=").unwrap());
        for part in [&text[..head], &text[..tail], &text[head..], &text[tail - 4..]] {
            let shown = redact_lines([part]).join("");
            for hidden in ["MIIE", "Us8c", "q1w2", "e3="] {
                assert!(!shown.contains(hidden), "{part}: {shown}");
            }
        }
        assert_eq!(redact_lines(["step 12", &text])[0], "step 12");
        let shown = redact_lines([&text[..head], &text[head..], "step 12"]);
        assert!(shown[1].contains("a@b.c") && !shown[1].contains("q1w2"), "{shown:?}");
        assert_eq!(shown[2], "step 12", "the key is over");
        assert_eq!(redact_text(&format!("x\\n{BODY}\\ny")), "x\\n***\\ny");
    }

    #[test]
    fn keys_with_headers_and_a_blank_line_are_hidden_to_their_end() {
        let pgp = [
            "-----BEGIN PGP PRIVATE KEY BLOCK-----",
            "Version: GnuPG v2",
            "Comment: of mine",
            "",
            "lQOYBGJ1c2VyAQgAw1x2y3z4Aa5Bb6Cc7Dd8Ee9Ff",
            "q1w2e3r4",
            "=aB1c",
            "-----END PGP PRIVATE KEY BLOCK-----",
        ];
        let rsa = [
            "-----BEGIN RSA PRIVATE KEY-----",
            "Proc-Type: 4,ENCRYPTED",
            "DEK-Info: AES-128-CBC,3F17F5316E2BAC894F0A1B2C3D4E5F60",
            "",
            "lQOYBGJ1c2VyAQgAw1x2y3z4Aa5Bb6Cc7Dd8Ee9Ff",
            "q1w2e3r4",
            "=aB1c",
            "-----END RSA PRIVATE KEY-----",
        ];
        for key in [pgp, rsa] {
            for prefix in ["", "(W pid=1) ", "  "] {
                let lines = key.map(|line| format!("{prefix}{line}"));
                let all = lines.iter().map(String::as_str).chain(["step 12 token"]);
                let shown = redact_lines(all);
                assert_eq!(shown[4..7], [(); 3].map(|()| format!("{prefix}***")));
                assert_eq!((&shown[0], &shown[7]), (&lines[0], &lines[7]));
                assert_eq!(shown[8], "step 12 token");
                // A tail that contains only the end of the key.
                assert_eq!(redact_lines(lines[5..].iter().map(String::as_str))[..2], shown[5..7]);
            }
            let text = redact_text(&format!("{}\nafter", key.join("\n")));
            assert_eq!(text, format!("{}***{}\nafter", key[0], key[7]));
        }
    }

    #[test]
    fn a_key_that_never_ends_hides_so_many_lines_and_no_more() {
        let mut lines = vec!["-----BEGIN PGP PRIVATE KEY BLOCK-----"];
        lines.extend(["q1w2e3r4"; 600]);
        let shown = redact_lines(lines);
        assert_eq!(shown[1..400].iter().filter(|line| *line == "***").count(), 399);
        assert!(shown[401..].iter().all(|line| line == "q1w2e3r4"));
    }

    #[test]
    fn public_keys_and_sentences_about_keys_stay() {
        for plain in [
            "-----BEGIN PUBLIC KEY----- abc -----END PUBLIC KEY-----",
            "the PRIVATE KEY----- mark is missing",
            "-----BEGIN CERTIFICATE-----\\nabc\\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
        let plain = ["-----BEGIN PGP PUBLIC KEY BLOCK-----", "q1w2", "step 12"];
        assert_eq!(redact_lines(plain), plain);
    }
}
