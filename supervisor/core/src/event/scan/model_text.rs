//! Recognizes model text in a log: prompts and answers may look like logs or tracebacks.

use super::remark;
use crate::id::fnv64;
use regex::bytes::Regex;
use std::collections::BTreeMap;

/// Most processes whose text is tracked at once.
const PROCESSES: usize = 1024;

/// Lines after which an unfinished text is given up.
const LINES: u32 = 400;

struct OpenSample {
    /// Hash of the form of its line prefix.
    prefix: u64,
    lines: u32,
}

/// Open model texts, one per process that prints into an output.
pub(super) struct Samples {
    open: BTreeMap<(u32, u64), OpenSample>,
    other: Regex,
    outside: Regex,
}

impl Samples {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            open: BTreeMap::new(),
            other: Regex::new(
                r"^(?-u:\[[a-z_]{2,24}\] |(?:INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL)[ :]|step:\d+ - |\{'\w+': |(?:[\w ]{0,40}: )?\s{0,3}\d{1,3}%\||[IWEF]\d{4} \d\d:|wandb: |\[?\d{4}-\d\d-\d\d)",
            )?,
            outside: Regex::new(r"^(?-u:(?:slurmstepd|srun|kernel|NVRM|torchrun): )")?,
        })
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns true if the next line is model text. `prefix` is what launchers and loggers put before it.
    pub(super) fn line(&mut self, worker: u32, source: u64, prefix: &[u8], text: &[u8]) -> bool {
        let key = (worker, source);
        if remark::opens_sample(text) {
            if self.open.len() >= PROCESSES {
                self.open.clear();
            }
            let prefix = form(prefix);
            self.open.insert(key, OpenSample { prefix, lines: 0 });
            return true;
        }
        if self.open.is_empty() {
            return false;
        }
        let Some(open) = self.open.get_mut(&key) else {
            return false;
        };
        open.lines += 1;
        // Frames in installed packages belong to the program's own traceback.
        let real = || ["site-packages/", "dist-packages/"].iter().any(|p| is_frame(text, p));
        // Programs around the trainer print without a process name.
        let other = self.other.is_match(text) || source == 0 && self.outside.is_match(text);
        if open.lines > LINES || open.prefix != form(prefix) || other || real() {
            self.open.remove(&key);
            return false;
        }
        true
    }
}

fn is_frame(text: &[u8], of: &str) -> bool {
    text.trim_ascii_start().starts_with(b"File \"") && memchr::memmem::find(text, of.as_bytes()).is_some()
}

/// Hashes a prefix without its numbers: the lines of one writer have the same form.
fn form(prefix: &[u8]) -> u64 {
    let mut plain = prefix.to_vec();
    for b in &mut plain {
        if b.is_ascii_digit() {
            *b = b'0';
        }
    }
    plain.dedup();
    fnv64(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[(&str, &str)]) -> Vec<bool> {
        let mut s = Samples::new().unwrap();
        let all = lines.iter();
        all.map(|(prefix, text)| s.line(0, 0, prefix.as_bytes(), text.as_bytes()))
            .collect()
    }

    #[test]
    fn a_text_goes_on_until_a_line_of_another_form() {
        let lines = [
            ("", "[response] it prints"),
            ("", "Traceback (most recent call last):"),
            ("", "KeyError: 'x'"),
            ("", "[score] 0.0"),
            ("", "KeyError: 'x'"),
        ];
        assert_eq!(texts(&lines), [true, true, true, false, false]);
        for other in [
            ("", "step:12 - actor/pg_loss:0.1"),
            ("", " 12%|#  | 3/9 [00:01<00:02]"),
            ("", "W1012 09:14:31.552000 5511 torch/x.py:900] Sending process 1"),
            ("2026-10-10 10:10:10 ", "out of memory"),
        ] {
            assert_eq!(texts(&[("", "prompt: x"), other]), [true, false], "{other:?}");
        }
        let stamped = [
            ("2026-10-10 10:10:10 ", "prompt: x"),
            ("2026-10-10 10:10:11 ", "out of memory"),
        ];
        assert_eq!(texts(&stamped), [true, true]);
    }

    #[test]
    fn what_a_scheduler_would_print_is_text_behind_the_name_of_a_process() {
        let mut s = Samples::new().unwrap();
        let killed = b"slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.";
        for (source, quoted) in [(0, false), (7, true)] {
            s.line(0, source, b"", b"[response] it prints");
            assert_eq!(s.line(0, source, b"", killed), quoted);
        }
    }

    #[test]
    fn a_traceback_through_installed_packages_is_the_programs_own() {
        let lines = [
            ("", "[response] all is well"),
            ("", "Traceback (most recent call last):"),
            (
                "",
                "  File \"/v/lib/python3.12/site-packages/torch/_tensor.py\", line 1, in backward",
            ),
            ("", "torch.OutOfMemoryError: CUDA out of memory"),
        ];
        assert_eq!(texts(&lines), [true, true, false, false]);
    }
}
