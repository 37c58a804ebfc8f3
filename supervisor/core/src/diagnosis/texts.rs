//! Multi-text search over large data.

use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, BuildError, Input};
use memchr::memrchr;

/// Stretches searched in parallel: each step of one search depends on the step before, but the searches are independent.
const LANES: usize = 4;
/// Bytes searched in parallel at a time.
const STRETCH: usize = 64 << 10;

/// Automaton for texts, ignoring ASCII case. No text spans lines.
#[derive(Debug)]
pub(super) struct TextSearch(DFA);

impl TextSearch {
    /// # Errors
    /// There are too many texts.
    pub(super) fn new(texts: &[&str]) -> Result<Self, BuildError> {
        let dfa = DFA::builder()
            .ascii_case_insensitive(true)
            .prefilter(false)
            .build(texts)?;
        Ok(Self(dfa))
    }

    /// Start of the text that ends first.
    pub(super) fn find(&self, data: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(lanes) = lanes(data.get(at..at + STRETCH).unwrap_or_default()) {
            if self.is_in(&lanes) {
                break;
            }
            at += lanes.iter().map(|lane| lane.len()).sum::<usize>();
        }
        let rest = data.get(at..)?;
        // The search cannot fail: it is unanchored, as the automaton was built.
        let found = self.0.try_find(&Input::new(rest)).ok()??;
        Some(at + found.start())
    }

    fn is_in(&self, lanes: &[&[u8]; LANES]) -> bool {
        let Ok(start) = self.0.start_state(Anchored::No) else {
            return true;
        };
        let mut states = [start; LANES];
        let together = lanes.iter().map(|lane| lane.len()).min().unwrap_or_default();
        let [a, b, c, d] = lanes.map(|lane| lane.split_at(together));
        for (((a, b), c), d) in a.0.iter().zip(b.0).zip(c.0).zip(d.0) {
            let bytes = [a, b, c, d];
            for (state, byte) in states.iter_mut().zip(bytes) {
                *state = self.0.next_state(Anchored::No, *state, *byte);
            }
            if states.iter().any(|state| self.0.is_special(*state)) {
                return true;
            }
        }
        states.into_iter().zip([a.1, b.1, c.1, d.1]).any(|(mut state, rest)| {
            rest.iter().any(|byte| {
                state = self.0.next_state(Anchored::No, state, *byte);
                self.0.is_special(state)
            })
        })
    }
}

/// Splits the data into equal parts at line ends; `None` if there is too little data or a line is too long.
fn lanes(data: &[u8]) -> Option<[&[u8]; LANES]> {
    let mut rest = data.get(..STRETCH)?;
    let mut out: [&[u8]; LANES] = [&[]; LANES];
    for (n, lane) in out.iter_mut().enumerate() {
        let most = rest.len() / (LANES - n);
        let end = memrchr(b'\n', rest.get(..most)?)? + 1;
        (*lane, rest) = rest.split_at_checked(end)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_is_found_wherever_it_stands() {
        let texts = TextSearch::new(&["Killed", "Error:"]).unwrap();
        let line = b"(WorkerDict pid=7) step 12: all is well with the errors of the model\n";
        let data = line.repeat(4 * STRETCH / line.len());
        assert_eq!(texts.find(&data), None);
        for at in (0..data.len()).step_by(9973) {
            let mut data = data.clone();
            let line = data[..at].iter().rposition(|b| *b == b'\n').map_or(0, |nl| nl + 1);
            data[line..line + 6].copy_from_slice(b"KILLED");
            assert_eq!(texts.find(&data), Some(line));
            assert_eq!(texts.find(&data[line + 6..]), None);
        }
        assert_eq!(texts.find(&vec![b'x'; 3 * STRETCH]), None, "one line");
    }

    proptest! {
        #[test]
        fn all_that_is_searched_at_once_is_found_as_one_by_one(lines in proptest::collection::vec("[ab\n]{1,9}", 0..40), times in 1..4000_usize) {
            let texts = TextSearch::new(&["aab", "baa", "ab"]).unwrap();
            let mut data = b"-----\n".repeat(times);
            data.extend(lines.join("\n").into_bytes());
            let plain = texts.0.try_find(&Input::new(&data)).unwrap().map(|m| m.start());
            prop_assert_eq!(texts.find(&data), plain);
        }
    }
}
