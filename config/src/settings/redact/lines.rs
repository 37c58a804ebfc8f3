//! Private keys that come line by line, as programs print them and files hold them.

use super::redact_text;
use super::text::KEY;

/// Lines of a key: what is longer is none.
const MOST: usize = 200;

/// Hides secrets in a text that comes line by line; it remembers that it is inside a private key.
#[derive(Debug, Clone, Default)]
pub struct LineRedactor {
    /// Lines since the mark before a key; 0: outside.
    within: usize,
}

impl LineRedactor {
    /// The next line without its secrets.
    pub fn line(&mut self, line: &str) -> String {
        let safe = redact_text(line);
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

/// A line of a key, behind whatever prefix its worker gave it.
fn without_base64(line: &str) -> String {
    let text = line.trim_end();
    let at = text.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (head, word) = text.split_at(at);
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    match !word.is_empty() && word.bytes().all(is_base64) {
        true => format!("{head}***"),
        false => line.to_owned(),
    }
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
