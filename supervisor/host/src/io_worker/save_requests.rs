//! Files in an attempt's directory through which its trainer is asked for a save, and answers.

use super::files::open_file;
use super::write::{PRIVATE, disk_error, make_dir, write_passing};
use camino::Utf8Path;
use serde::Deserialize;
use std::io::{self, Read, Seek, SeekFrom};
use supervise_core::event::ActError;
use supervise_core::id::Step;
use supervise_core::spec::SAVE_REQUEST;

/// The trainer appends its answers here.
pub const SAVE_ANSWERS: &str = "save-answers";
/// Only the end of the answers is read.
const TAIL: u64 = 64 << 10;

/// An answer as the trainer writes it.
#[derive(Deserialize)]
struct SaveAnswer {
    id: u64,
    step: u64,
}

/// Writes a request; `None`: the empty file before the first one.
pub(super) fn write(dir: &Utf8Path, id: Option<u64>) -> Result<(), ActError> {
    let path = dir.join(SAVE_REQUEST);
    let text = id.map(|id| format!("{id}\n")).unwrap_or_default();
    let written = make_dir(dir).and_then(|()| write_passing(&path, text.as_bytes(), PRIVATE));
    written.map_err(|e| disk_error(&format!("writing the request for a save to {path}"), &e))
}

/// The step of the first answer to this request, if there is one.
pub(super) fn answer(dir: &Utf8Path, id: u64) -> Result<Option<Step>, ActError> {
    let path = dir.join(SAVE_ANSWERS);
    match tail(&path) {
        Ok(text) => Ok(find(&text, id)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(disk_error(
            &format!("reading the answer to a request for a save in {path}"),
            &e,
        )),
    }
}

fn tail(path: &Utf8Path) -> io::Result<Vec<u8>> {
    let mut file = open_file(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text)?;
    Ok(text)
}

/// Whatever is no answer is skipped: a torn line, another program's words.
fn find(text: &[u8], id: u64) -> Option<Step> {
    let answers = text.split(|b| *b == b'\n');
    let mut answers = answers.filter_map(|line| serde_json::from_slice::<SaveAnswer>(line).ok());
    answers.find(|a| a.id == id).map(|a| Step(a.step))
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;
    use std::fs;

    #[test]
    fn a_request_is_written_whole_and_its_answer_is_found_among_anything() {
        let (_keep, dir) = temp_dir();
        let dir = dir.join("attempts/0001");
        write(&dir, None).unwrap();
        assert_eq!(fs::read(dir.join(SAVE_REQUEST)).unwrap(), b"");
        write(&dir, Some(7)).unwrap();
        assert_eq!(fs::read(dir.join(SAVE_REQUEST)).unwrap(), b"7\n");
        assert_eq!(answer(&dir, 7).unwrap(), None);
        let mut text = vec![b'x'; 3 * TAIL as usize];
        text.extend_from_slice(b"\n\xff\xfe\n{\"id\": -1, \"step\": 2}\n[]\n{\"id\": 6, \"step\": 3}\n");
        text.extend_from_slice(
            b"{\"id\": 7, \"step\": 18446744073709551616}\n{\"id\": 7, \"step\": 12, \"at\": 1764460000.123}\n",
        );
        text.extend_from_slice(b"{\"id\": 7, \"step\": 99}\n{\"id\": 8, \"st");
        fs::write(dir.join(SAVE_ANSWERS), &text).unwrap();
        assert_eq!(answer(&dir, 7).unwrap(), Some(Step(12)));
        assert_eq!(answer(&dir, 8).unwrap(), None);
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let (_keep, dir) = temp_dir();
        fs::create_dir(dir.join(SAVE_ANSWERS)).unwrap();
        assert!(answer(&dir, 1).is_err());
        fs::remove_dir(dir.join(SAVE_ANSWERS)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.join(SAVE_ANSWERS)).unwrap();
        assert!(answer(&dir, 1).is_err());
    }
}
