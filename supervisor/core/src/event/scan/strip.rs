//! Removes terminal codes and launcher prefixes from a line.

use regex::bytes::Regex;

/// Removes terminal colors, carriage returns and other control characters.
#[must_use]
pub fn strip(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(b) = bytes.next() {
        match b {
            0x1b => {
                if bytes.peek() == Some(&b'[') {
                    bytes.next();
                    for c in bytes.by_ref() {
                        if (0x40..=0x7e).contains(&c) {
                            break;
                        }
                    }
                }
            }
            b'\t' => out.push(b' '),
            0..=0x1f | 0x7f => {}
            _ => out.push(b),
        }
    }
    out
}

/// Patterns of the prefix that gives a message's process, time or level.
pub(super) struct Prefix {
    all: Regex,
    process: Regex,
}

impl Prefix {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            all: Regex::new(concat!(
                r"^(?-u:",
                r"\([\w.:-]+ (?:[\w.:-]+ )?pid=\d+(?:, ip=[0-9a-fA-F.:]+)?\)\s?",
                r"|\([\w.-]+(?:, (?:rank|pid|ip)=[\w.:]+)+\)\s?",
                r"|\[(?:rank|default|trainer|worker|actor|gpu)_?\d+(?:\|\d+)?\]:\s?",
                r"|\[[0-9a-z-]+\]\[rank\d+\]:\s?",
                r"|\d{1,4}: (?:\s?\d{1,4}: )?",
                r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: (?:TP|DP|PP|EP)\w*)*\]?(?: std(?:out|err) [FP])?[ ]?",
                r"|(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]{1,80}\] ?",
                r"|\[(?:ERROR|CRITICAL|FATAL)\]:? ",
                r"|(?:node|host|worker|gpu|compute)-?\w*\d+(?:-\d+)?: ",
                r"|\s{2,}\|\s?",
                r")+"
            ))?,
            process: Regex::new(
                r"(?-u:\b(?:pid|ip|rank)=[\w.:]+|\[(?:rank|default|trainer|worker|actor|gpu)_?\d+|(?:^|[ ])\d{1,4}: |\b(?:TP|DP|PP|EP)\d+|\b(?:node|host|worker|gpu|compute)-?\w*\d+)",
            )?,
        })
    }

    /// Splits off the prefix; returns a hash of the process it names, 0 if it names none, and the message.
    pub(super) fn split<'a>(&self, line: &'a [u8]) -> (u64, &'a [u8]) {
        let end = self.all.find(line).map_or(0, |m| m.end());
        let (prefix, text) = line.split_at(end);
        if prefix.is_empty() {
            return (0, text);
        }
        let names = self
            .process
            .find_iter(prefix)
            .map(|m| crate::id::fnv64(m.as_bytes()) | 1);
        let source = names.fold(0, |all: u64, name| all.rotate_left(1) ^ name);
        (source, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_stands_behind_process_time_and_level() {
        let prefix = Prefix::new().unwrap();
        let message = |line: &str| String::from_utf8(prefix.split(line.as_bytes()).1.to_vec()).unwrap();
        for line in [
            "(TaskRunner pid=71, ip=10.0.0.1) boom",
            "(worker1, rank=1, pid=4734, ip=10.0.0.2) boom",
            "[rank3]: boom",
            "[default0]:boom",
            "3: boom",
            "2026-11-02T10:01:22.123456789Z stdout F boom",
            "[2026-11-02 10:01:22 TP0] boom",
            "(EngineCore_DP0 pid=123) ERROR 11-02 10:01:22 [core.py:710] boom",
            "gpu-003: boom",
        ] {
            assert_eq!(message(line), "boom", "{line}");
        }
        assert_eq!(message("KeyError: 'x'"), "KeyError: 'x'");
        // A level below error is kept: it shows that the line reports no failure.
        let warned = "WARNING 11-02 10:01:22 [interface.py:54] boom";
        assert_eq!(message(&format!("(EngineCore pid=123) {warned}")), warned);
        assert_eq!(message("(EngineCore pid=1)   File x"), "  File x");
    }

    #[test]
    fn the_times_of_one_process_do_not_make_it_two() {
        let prefix = Prefix::new().unwrap();
        let source = |line: &str| prefix.split(line.as_bytes()).0;
        assert_eq!(source("[rank1]: a"), source("[rank1]: b"));
        assert_ne!(source("[rank1]: a"), source("[rank2]: a"));
        assert_eq!(source("2026-11-02 10:01:22 a"), 0);
        assert_ne!(source("(A pid=1) x"), source("(A pid=2) x"));
        let times = [
            "2026-11-02T10:01:22.1Z",
            "2026-11-02T10:01:23.2Z",
            "2026-11-02 10:01:22",
        ];
        for (first, second) in [
            ("[rank3]: ", "[rank4]: "),
            ("stdout F [rank3]: ", "stdout F [rank4]: "),
            ("3: ", "4: "),
        ] {
            let of = |time: &str, rank: &str| source(&format!("{time} {rank}a"));
            assert!(
                times.iter().all(|time| of(time, first) == of(times[0], first)),
                "{first}"
            );
            assert_ne!(of(times[0], first), of(times[0], second), "{first}");
            assert_ne!(of(times[0], first), 0, "{first}");
        }
        assert_ne!(
            source("[2026-11-02 10:01:22 TP0] a"),
            source("[2026-11-02 10:01:22 TP1] a")
        );
        assert_ne!(source("(A b pid=1) a"), source("(A b pid=2) a"));
        assert_ne!(source("(A pid=1, ip=10.0.0.1) a"), source("(A pid=1, ip=10.0.0.2) a"));
    }
}
