//! The log writer: writes the workers' output and the list of processes to disk, for one guard.
//!
//! A separate process, our own program re-executed, because a disk can hang forever together with the process that
//! writes to it. It reads frames from its standard input until the guard closes it. What the disk refuses is dropped,
//! and the next write tries again: no failure here affects the training.
//!
//! Files in the attempt's directory: `worker-R.log` (rotated to `worker-R.log.1`, `.2`, …), beside each the ranges of
//! secrets in it (`worker-R.log.hide`), and `tree` (see [`crate::guard::record`]).

pub(crate) mod frame;
mod hide;
mod log;

use crate::log_writer::frame::{FrameHeader, FrameKind, HEADER_LEN, LogOrder};
use crate::log_writer::log::RotatedLog;
use std::io::{self, Read};
use std::sync::Arc;

/// Largest list of processes, in bytes; beyond it new ones are not recorded.
const TREE_LIMIT: u64 = 64 << 20;

const WORKERS_LIMIT: u32 = 4096;

/// Runs the log writer until its input ends; then the exit code is 0.
#[must_use]
pub fn main() -> i32 {
    // Signals to the group or from the terminal are meant for others; only the end of the input stops us.
    crate::system::ignore_signals();
    match run(&mut io::stdin().lock()) {
        Ok(()) => 0,
        Err(_) => 74,
    }
}

fn run(input: &mut impl Read) -> io::Result<()> {
    let Some((header, payload)) = next(input)? else {
        return Ok(());
    };
    if header.kind != FrameKind::Order {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let order: LogOrder = serde_json::from_slice(&payload)?;
    supervise_config::know_values(&order.secrets);
    let mut logs: Vec<RotatedLog> = (0..order.workers.min(WORKERS_LIMIT))
        .map(|w| RotatedLog::rotated(&order.dir, &format!("worker-{w}.log"), &order))
        .collect();
    let mut tree = RotatedLog::limited(&order.dir, "tree", TREE_LIMIT);
    while let Some((header, payload)) = next(input)? {
        if header.kind == FrameKind::Secrets
            && let Ok(values) = serde_json::from_slice::<Vec<String>>(&payload)
        {
            supervise_config::know_values(&values);
            let needles = supervise_config::known_needles();
            logs.iter_mut().for_each(|log| log.know(Arc::clone(&needles)));
        }
        let log = match header.kind {
            FrameKind::Tree => Some(&mut tree),
            FrameKind::Output => usize::try_from(header.worker).ok().and_then(|w| logs.get_mut(w)),
            FrameKind::Order | FrameKind::Secrets => None,
        };
        if let Some(log) = log {
            log.write(&payload);
        }
    }
    Ok(())
}

/// The next frame; `None` at the end of the input, even in the middle of a frame.
fn next(input: &mut impl Read) -> io::Result<Option<(FrameHeader, Vec<u8>)>> {
    let mut head = [0_u8; HEADER_LEN];
    match input.read_exact(&mut head) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    }
    let header = FrameHeader::decode(head).ok_or(io::ErrorKind::InvalidData)?;
    let mut payload = vec![0_u8; header.len];
    match input.read_exact(&mut payload) {
        Ok(()) => Ok(Some((header, payload))),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden_places::HiddenLog;
    use camino::Utf8PathBuf;

    fn frame(kind: FrameKind, worker: u32, payload: &[u8]) -> Vec<u8> {
        let len = payload.len();
        let mut bytes = FrameHeader { kind, worker, len }.encode().to_vec();
        bytes.extend(payload);
        bytes
    }

    fn order(dir: &Utf8PathBuf) -> Vec<u8> {
        let order = LogOrder {
            dir: dir.clone(),
            workers: 2,
            output_max: 100,
            output_keep: 2,
            secrets: vec!["sEcret-value-1234".into()],
        };
        frame(FrameKind::Order, 0, &serde_json::to_vec(&order).unwrap())
    }

    #[test]
    fn output_goes_to_its_worker_and_is_rotated() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(temp.path().join("new/attempt")).unwrap();
        let mut input = order(&dir);
        input.extend(frame(FrameKind::Output, 1, b"hello\n"));
        for n in 0..40 {
            input.extend(frame(FrameKind::Output, 0, format!("line {n:03}\n").as_bytes()));
        }
        input.extend(frame(FrameKind::Output, 9, b"nobody"));
        input.extend(frame(FrameKind::Tree, 0, b"{}\n"));
        input.extend(&frame(FrameKind::Output, 1, b"torn")[..10]);
        run(&mut input.as_slice()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(read("worker-1.log"), "hello\n");
        assert_eq!(read("tree"), "{}\n");
        let all = read("worker-0.log.2") + &read("worker-0.log.1") + &read("worker-0.log");
        assert!(all.ends_with("line 039\n"));
        assert!(all.len() >= 200 && all.len() <= 300);
        assert!(!dir.join("worker-0.log.3").exists());
    }

    fn seen(log: &Utf8PathBuf) -> String {
        let mut text = String::new();
        HiddenLog::open(log).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn places_of_secrets_are_noted_beside_each_log_and_no_value_is() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(temp.path().join("attempt")).unwrap();
        let mut input = order(&dir);
        for n in 0..12 {
            input.extend(frame(FrameKind::Output, 0, format!("{n:02} sEcret-va").as_bytes()));
            input.extend(frame(FrameKind::Output, 0, b"lue-1234\n"));
            input.extend(frame(
                FrameKind::Output,
                1,
                format!("{n:02} later-Value-5\n").as_bytes(),
            ));
            if n == 5 {
                let more = serde_json::to_vec(&["later-Value-5"]).unwrap();
                input.extend(frame(FrameKind::Secrets, 0, &more));
            }
        }
        run(&mut input.as_slice()).unwrap();
        let names = ["worker-0.log.2", "worker-0.log.1", "worker-0.log"];
        let logs = names.map(|name| dir.join(name));
        let all: String = logs.iter().map(seen).collect();
        assert!(
            all.ends_with("10 ***\n11 ***\n") && !all.contains("sEcret") && !all.contains("1234"),
            "{all}"
        );
        let raw: String = logs.iter().map(|log| std::fs::read_to_string(log).unwrap()).collect();
        assert!(
            raw.ends_with("11 sEcret-value-1234\n"),
            "the trainer's own bytes stay: {raw}"
        );
        let other = seen(&dir.join("worker-1.log.1")) + &seen(&dir.join("worker-1.log"));
        assert!(
            other.ends_with("05 later-Value-5\n06 ***\n07 ***\n08 ***\n09 ***\n10 ***\n11 ***\n"),
            "{other}"
        );
        for log in &logs {
            let notes = crate::hidden_places::beside(log);
            assert_eq!(std::fs::metadata(&notes).unwrap().permissions().mode() & 0o777, 0o600);
            let text = std::fs::read_to_string(&notes).unwrap();
            assert!(
                text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b' ' | b'\n')),
                "{text}"
            );
        }
    }

    #[test]
    fn a_value_whose_place_cannot_be_noted_is_not_written() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(temp.path().join("attempt")).unwrap();
        std::fs::create_dir_all(dir.join("worker-0.log.hide")).unwrap();
        let mut input = order(&dir);
        input.extend(frame(FrameKind::Output, 0, b"a sEcret-value-1234 b\n"));
        run(&mut input.as_slice()).unwrap();
        let text = std::fs::read_to_string(dir.join("worker-0.log")).unwrap();
        assert_eq!(text, "a ***************** b\n");
    }

    #[test]
    fn a_directory_that_cannot_be_made_loses_output_and_nothing_else() {
        let dir = Utf8PathBuf::from("/proc/nowhere");
        let mut input = order(&dir);
        input.extend(frame(FrameKind::Output, 0, b"hello\n"));
        run(&mut input.as_slice()).unwrap();
    }

    #[test]
    fn input_that_is_no_frame_ends_the_log_writer() {
        assert!(run(&mut [7_u8; 64].as_slice()).is_err());
        assert!(run(&mut frame(FrameKind::Output, 0, b"x").as_slice()).is_err());
        assert!(run(&mut [].as_slice()).is_ok());
    }
}
