//! What is hidden in a log is never what tells why it ended: each log of the corpus is of the same class without its secrets.

use std::fs;
use std::path::Path;
use supervise_config::LineRedactor;
use supervise_core::diagnosis::LogReader;

#[test]
fn a_log_without_its_secrets_is_of_the_same_class() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut reading = LogReader::new(&[]).unwrap();
    let mut told = |text: &[u8], exit| {
        reading.clear();
        reading.begin();
        text.chunks(1000).for_each(|piece| reading.feed(piece));
        reading.end_log();
        let verdict = reading.verdict(exit);
        (verdict.class, verdict.action)
    };
    let labels = fs::read_to_string(folder.join("labels.tsv")).unwrap();
    let (mut logs, mut hidden, mut wrong) = (0, 0, Vec::new());
    for label in labels.lines().skip(1) {
        let cells: Vec<&str> = label.split('\t').collect();
        let exit = cells.get(1).and_then(|exit| exit.parse().ok());
        let bytes = fs::read(folder.join(cells[0])).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let mut redactor = LineRedactor::default();
        let safe: String = text.split('\n').map(|line| redactor.line(line) + "\n").collect();
        let safe = safe.strip_suffix('\n').unwrap();
        (logs, hidden) = (logs + 1, hidden + u32::from(safe != text));
        let (raw, shown) = (told(&bytes, exit), told(safe.as_bytes(), exit));
        if raw != shown {
            wrong.push(format!("{}: {raw:?} became {shown:?}", cells[0]));
        }
    }
    assert!(logs > 500 && hidden > 0, "{logs} logs, {hidden} with something hidden");
    assert!(wrong.is_empty(), "of {logs} logs:\n{}", wrong.join("\n"));
}
