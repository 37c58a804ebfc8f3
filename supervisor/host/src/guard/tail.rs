//! The end of a worker's output, in bounded memory: if nothing else explains why a worker exited, its last lines do.

use supervise_core::event::scan::strip;

const BYTES: usize = 4 << 10;
const LINES: usize = 10;
const LINE: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct Tail {
    held: Vec<u8>,
    /// Earlier bytes were dropped, so the first line may be incomplete.
    cut: bool,
}

impl Tail {
    pub(crate) fn log_queue(&mut self, bytes: &[u8]) {
        let from = bytes.len().saturating_sub(BYTES);
        if from > 0 {
            self.held.clear();
            self.cut = true;
        }
        self.held.extend_from_slice(bytes.get(from..).unwrap_or(&[]));
        // Only at twice the size: each byte is moved at most once.
        if self.held.len() > 2 * BYTES {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let extra = self.held.len().saturating_sub(BYTES);
        if extra > 0 {
            self.held.drain(..extra);
            self.cut = true;
        }
    }

    /// The last non-empty lines, safe to show; of a line that was repainted, its last state.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        self.forget();
        let whole = usize::from(self.cut && self.held.contains(&b'\n'));
        let painted = |line: &[u8]| {
            let states = line.split(|b| *b == b'\r').rev();
            let mut said = states.map(|s| String::from_utf8_lossy(&strip(s)).into_owned());
            said.find(|text| !text.trim().is_empty())
        };
        let mut lines: Vec<String> = self
            .held
            .split(|b| *b == b'\n')
            .skip(whole)
            .filter_map(painted)
            .collect();
        lines.drain(..lines.len().saturating_sub(LINES));
        for line in &mut lines {
            line.truncate(line.floor_char_boundary(LINE));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_told_and_no_part_of_one_as_a_whole() {
        let mut tail = Tail::default();
        tail.log_queue(b"one\n\n \ntwo 10%\rtwo 20%\r\n\x1b[31mthree\x1b[0m\nfour");
        assert_eq!(tail.lines(), ["one", "two 20%", "three", "four"]);
        for n in 0..5000 {
            tail.log_queue(format!("line {n} {}\n", "x".repeat(n % 700)).as_bytes());
            assert!(tail.held.len() <= 2 * BYTES);
        }
        let lines = tail.lines();
        assert!(lines.len() <= LINES && lines.iter().all(|l| l.starts_with("line ") && l.len() <= LINE));
        assert!(lines.last().unwrap().starts_with("line 4999 "));
        tail.log_queue(&[b'y'; 100_000]);
        assert_eq!(tail.lines(), ["y".repeat(LINE)]);
    }
}
