//! Secrets of several lines, as programs print them and files hold them: private keys, and known values that a line cuts in two.

use super::known::known_needles;
use super::redact_text;
use super::text::KEY;

/// Lines of a key: what is longer is none.
const MOST: usize = 200;
/// Bytes of a known value at the end of a line by which its rest is known in the next one.
const CUT: usize = 6;
/// Bytes of base64 that are hidden wherever they stand in a line of a key.
const RUN: usize = 20;

/// Hides secrets in a text that comes line by line; it remembers that it is inside a private key.
#[derive(Debug, Clone, Default)]
pub struct LineRedactor {
    /// Lines since the mark before a key; 0: outside.
    within: usize,
    /// Ends of the known values that the last line may have begun.
    rests: Vec<Vec<u8>>,
}

impl LineRedactor {
    /// The next line without its secrets.
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
        if line.contains("-----END ") {
            self.within = 0;
            return safe;
        }
        let begins = line.rfind("-----BEGIN ").is_some_and(|at| line[at..].contains(KEY));
        if begins {
            self.within = 1;
            return safe;
        }
        if self.within == 0 {
            return safe;
        }
        self.within = (self.within + 1) % MOST;
        without_base64(&safe)
    }

    /// The place of the rest of a known value that the last line began, behind whatever prefix its worker gave this one.
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
            // It goes on in the line after this one.
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

/// Lines without their secrets: of a private key whose beginning was cut off as well.
pub fn redact_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut redactor = LineRedactor::default();
    let mut out: Vec<String> = Vec::new();
    let mut begun = false;
    for line in lines {
        let ends = line.contains("-----END ") && line.contains(KEY);
        // The last line of a key is as short as it likes.
        if ends
            && !std::mem::take(&mut begun)
            && let Some(last) = out.last_mut()
        {
            *last = without_base64(last);
        }
        begun |= !ends && line.contains("-----BEGIN ") && line.contains(KEY);
        out.push(redactor.line(line));
    }
    out
}

/// A line of a key, behind whatever prefix its worker gave it, or between quotes.
fn without_base64(line: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
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
