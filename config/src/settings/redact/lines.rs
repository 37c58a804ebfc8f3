//! Multi-line secrets in output and files: private keys, and known values that a line break cuts in two.

use super::keys::{first_begin, first_end, is_open_after, without_base64, without_escaped_lines};
use super::known::known_needles;
use super::redact_text;

/// The most lines of a key; anything longer is not a key.
const MOST: usize = 400;
/// Bytes of a known value at the end of a line that are enough to find its rest in the next line.
const CUT: usize = 6;

/// Hides secrets in a text line by line; remembers whether it is inside a private key.
#[derive(Debug, Clone, Default)]
pub struct LineRedactor {
    /// Lines since the begin mark of a key; 0: outside.
    within: usize,
    /// The remainders of known values that the last line may have begun.
    rests: Vec<Vec<u8>>,
}

impl LineRedactor {
    /// Returns the next line without its secrets.
    pub fn line(&mut self, line: &str) -> String {
        let cut = self.rest_of_value(line);
        let safe = match cut {
            Some((begin, end)) => {
                let (head, rest) = (line.get(..begin), line.get(end..));
                format!(
                    "{}***{}",
                    head.unwrap_or_default(),
                    redact_text(rest.unwrap_or_default())
                )
            }
            None => redact_text(line),
        };
        let within = self.within;
        match is_open_after(line) {
            Some(is_open) => {
                self.within = usize::from(is_open);
                match safe.find("-----END ") {
                    // The rest of a key that an earlier line began.
                    Some(end) if within > 0 => end_of_key(&safe, end),
                    _ => safe,
                }
            }
            None if within == 0 => safe,
            None => {
                self.within = (within + 1) % MOST;
                without_base64(&safe)
            }
        }
    }

    /// The range of the rest of a known value that the last line began, after any worker prefix.
    fn rest_of_value(&mut self, line: &str) -> Option<(usize, usize)> {
        let rests = std::mem::take(&mut self.rests);
        let needles = known_needles();
        if needles.is_empty() {
            return None;
        }
        let text = line.trim_end();
        let prefix = match text.strip_prefix('(').and_then(|t| t.split_once(") ")) {
            Some((inside, _)) if inside.contains("pid=") => inside.len() + 3,
            _ => 0,
        };
        let body = text.as_bytes().get(prefix..).unwrap_or_default();
        let found = rests.iter().find_map(|rest| match body.starts_with(rest) {
            true => Some((prefix, prefix + rest.len())),
            // It continues in the next line.
            false if !body.is_empty() && rest.starts_with(body) => {
                self.rests.push(rest[body.len()..].to_vec());
                Some((prefix, text.len()))
            }
            false => None,
        });
        if let Some((_, rests)) = needles.begun(text.as_bytes(), CUT) {
            self.rests.extend(rests.into_iter().map(<[u8]>::to_vec));
        }
        found
    }
}

/// Redacts lines, including those of a private key whose beginning was cut off.
pub fn redact_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut redactor = LineRedactor::default();
    let mut out: Vec<String> = Vec::new();
    let mut begun = false;
    for line in lines {
        let ends = first_end(line).is_some_and(|end| first_begin(line).is_none_or(|begin| end.start < begin.start));
        if ends && !begun {
            hide_body(&mut out);
        }
        begun = is_open_after(line).unwrap_or(begun);
        out.push(redactor.line(line));
    }
    out
}

/// Hides the last lines of a key whose beginning was cut off. These can be short: the line before the end, and a single word in a line
/// before it.
fn hide_body(lines: &mut [String]) {
    for (n, line) in lines.iter_mut().rev().take(MOST).enumerate() {
        let body = line.rsplit_once(") ").map_or(line.as_str(), |(_, body)| body);
        if n > 0 && (body.trim().is_empty() || body.trim().contains(char::is_whitespace)) {
            return;
        }
        *line = without_base64(line);
    }
}

fn end_of_key(line: &str, end: usize) -> String {
    let (body, mark) = line.split_at(end);
    let body = match body.contains("\\n") {
        true => without_escaped_lines(body),
        false => without_base64(body),
    };
    body + mark
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

    #[test]
    fn a_private_key_is_hidden_line_by_line() {
        let lines = [
            "before",
            "(W pid=1) -----BEGIN RSA PRIVATE KEY-----",
            "(W pid=1) MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
            "(W pid=1) abc=",
            "(W pid=1) -----END RSA PRIVATE KEY-----",
            "after",
        ];
        let shown = redact_lines(lines);
        let wanted = ["before", lines[1], "(W pid=1) ***", "(W pid=1) ***", lines[4], "after"];
        assert_eq!(shown, wanted);
        assert_eq!(redact_lines(shown.iter().map(String::as_str)), wanted);
    }

    #[test]
    fn a_line_of_a_key_is_known_alone_and_so_is_its_last_one_before_the_end() {
        assert_eq!(redact_text(BODY), "***");
        assert_eq!(
            redact_lines([BODY, "q1w2", "-----END PRIVATE KEY-----"])[..2],
            ["***", "***"]
        );
        let hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let path = "/Data0/users/me/checkpoints/run7/actor/global/step/model/world/2";
        assert_eq!((hex.len(), path.len(), BODY.len()), (64, 64, 64));
        for text in [hex, path] {
            assert_eq!(redact_text(text), text);
        }
    }

    #[test]
    fn a_known_value_that_lines_cut_in_two_is_hidden_in_both() {
        super::super::know_secret("CUT_TOKEN", "Cut-value-0123456789-of-mine");
        for (lines, wanted) in [
            (
                vec!["got Cut-value-0", "123456789-of-mine, gone"],
                vec!["got ***", "***, gone"],
            ),
            (
                vec!["(W pid=1) Cut-value-0", "(W pid=1) 123456789", "(W pid=1) -of-mine x"],
                vec!["(W pid=1) ***", "(W pid=1) ***", "(W pid=1) *** x"],
            ),
            (vec!["got Cut-value-0", "other"], vec!["got ***", "other"]),
            (vec!["other", "123 is a number"], vec!["other", "123 is a number"]),
        ] {
            assert_eq!(redact_lines(lines), wanted);
        }
    }

    #[test]
    fn lines_of_a_key_between_quotes_are_hidden() {
        let shown = redact_lines([
            "k = [",
            "  \"-----BEGIN PRIVATE KEY-----\",",
            "  \"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\",",
            "  \"abc=\",",
            "  \"-----END PRIVATE KEY-----\"]",
        ]);
        assert_eq!(shown[2..4], ["  \"***\",", "  \"***\","]);
    }

    #[test]
    fn several_keys_in_one_text_are_hidden() {
        let key = "-----BEGIN PRIVATE KEY-----\\nabc\\n-----END PRIVATE KEY-----";
        let shown = redact_text(&format!("a {key} b {key} c"));
        assert!(
            !shown.contains("abc") && shown.ends_with(" c") && shown.contains(" b "),
            "{shown}"
        );
        assert_eq!(
            redact_text("-----BEGIN PRIVATE KEY-----"),
            "-----BEGIN PRIVATE KEY-----"
        );
    }
}
