use super::super::temp_dir;
use super::*;
use supervise_core::event::{Event, EventKind};
use supervise_core::id::{AttemptNo, Seq, Step, Term, Tick, WallMs};
use supervise_core::journal::encode;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::ResumeIntent;

fn quiet() -> impl FnMut(u64, u64) {
    |_, _| ()
}

fn line(_term: u32, seq: u64, record: &JournalRecord) -> Vec<u8> {
    encode(Seq(seq), Tick(seq), WallMs(seq as i64), record).unwrap()
}

fn mark(step: u64) -> JournalRecord {
    JournalRecord::Decided {
        at: Tick(step),
        what: Decision::Mark { step: Step(step) },
        reasons: Vec::new(),
    }
}

fn start(attempt: u32) -> JournalRecord {
    JournalRecord::Decided {
        at: Tick(0),
        what: Decision::StartFrom {
            order: LaunchOrder {
                attempt: AttemptNo(attempt),
                from: StartPoint::Fresh,
                lost: Vec::new(),
                nodes: 1,
            },
            edits: Vec::new(),
            care: false,
            intent: ResumeIntent::Auto,
        },
        reasons: Vec::new(),
    }
}

fn begins(term: u32) -> JournalRecord {
    JournalRecord::Fact(Event {
        at: Tick(0),
        wall: WallMs(9),
        entropy: 0,
        kind: EventKind::TermStarted {
            term: Term(term),
            boot: "b".to_owned(),
            host: "h".to_owned(),
            version: "v".to_owned(),
            config: 7,
            trainer_version: None,
            living: None,
            spread: Default::default(),
            orphans: Vec::new(),
        },
    })
}

fn run(dir: &Utf8Path, marks: u64) -> Utf8PathBuf {
    fs::create_dir_all(dir.join("journal")).unwrap();
    fs::write(
        dir.join("journal/1.jsonl"),
        [line(1, 1, &begins(1)), line(1, 2, &mark(1))].concat(),
    )
    .unwrap();
    let mut second = [line(2, 1, &begins(2)), line(2, 2, &start(1))].concat();
    for n in 0..marks {
        second.extend(line(2, n + 3, &mark(n + 10)));
    }
    let path = dir.join("journal/2.jsonl");
    fs::write(&path, second).unwrap();
    path
}

fn append(path: &Utf8Path, bytes: &[u8]) {
    use std::io::Write;
    fs::OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(bytes)
        .unwrap();
}

fn afresh(dir: &Utf8Path) -> ReplayedState {
    let mut all = ReplayedState::default();
    all.go_on(&term_files(dir).unwrap(), &mut quiet()).unwrap();
    all
}

/// The state, and how many journal bytes were not in the snapshot.
fn with_snapshot(dir: &Utf8Path) -> (ReplayedState, u64) {
    let mut read = 0;
    let folded = ReplayedState::of(dir, &mut |done, _| read = done).unwrap();
    (folded, read)
}

fn same(a: &ReplayedState, b: &ReplayedState) {
    let plain = |f: &ReplayedState| ReplayedState {
        unsaved: 0,
        saved_size: 0,
        ..f.clone()
    };
    assert_eq!(plain(a), plain(b));
}

#[test]
fn a_snapshot_and_what_follows_are_the_whole_and_only_that_is_read() {
    let (_keep, dir) = temp_dir();
    let path = run(&dir, 2400);
    let mut all = afresh(&dir);
    assert_eq!(all.state.progress.mark, Some(Step(2409)));
    all.save(&dir, false);
    let tail = [
        line(2, 2403, &start(2)),
        line(2, 2404, &mark(5000)),
        b"{\"torn".to_vec(),
    ]
    .concat();
    append(&path, &tail);
    let (folded, read) = with_snapshot(&dir);
    assert!(
        read <= tail.len() as u64,
        "{read} bytes were read for a tail of {}",
        tail.len()
    );
    same(&folded, &afresh(&dir));
    assert_eq!(folded.state.progress.mark, Some(Step(5000)));
    let known: Vec<u32> = folded.attempts().iter().map(|b| b.attempt.0).collect();
    assert_eq!(known, [1, 2]);
    // A third term begins: its records are replayed on top.
    fs::write(dir.join("journal/3.jsonl"), line(3, 1, &begins(3))).unwrap();
    same(&with_snapshot(&dir).0, &afresh(&dir));
}

#[test]
fn what_is_appended_by_its_writer_folds_to_the_same() {
    let (_keep, dir) = temp_dir();
    let path = run(&dir, 5);
    let mut all = afresh(&dir);
    let text = [line(2, 8, &mark(100)), line(2, 8, &mark(100)), line(2, 9, &start(2))].concat();
    append(&path, &text);
    all.appended(std::str::from_utf8(&text).unwrap());
    same(&all, &afresh(&dir));
    all.save(&dir, true);
    let (folded, read) = with_snapshot(&dir);
    assert_eq!(read, 0);
    same(&folded, &all);
}

#[test]
fn a_snapshot_that_does_not_fit_is_as_if_it_were_not_there() {
    let (_keep, dir) = temp_dir();
    let path = run(&dir, 50);
    afresh(&dir).save(&dir, true);
    let (first, second) = (dir.join("journal/1.jsonl"), path.clone());
    let (one, two) = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
    let whole = fs::read(dir.join("snapshot.json")).unwrap();
    let put_back = || {
        fs::write(&first, &one).unwrap();
        fs::write(&second, &two).unwrap();
        fs::write(dir.join("snapshot.json"), &whole).unwrap();
    };
    let ignored = |what: &str| {
        let (folded, _) = with_snapshot(&dir);
        same(&folded, &afresh(&dir));
        assert!(
            ReplayedState::restored(&dir, &term_files(&dir).unwrap()).is_none(),
            "{what}: it is believed"
        );
        put_back();
    };
    assert!(ReplayedState::restored(&dir, &term_files(&dir).unwrap()).is_some());
    fs::write(&second, &two[..two.len() - 9]).unwrap();
    ignored("the last line is torn");
    let mut other = two.clone();
    let at = other.len() - 40;
    other[at] ^= 1;
    fs::write(&second, &other).unwrap();
    ignored("the last line is another one");
    fs::remove_file(&second).unwrap();
    ignored("its journal is gone");
    fs::write(&first, &one[..one.len() / 2]).unwrap();
    ignored("an earlier journal was cut");
    fs::remove_file(&first).unwrap();
    ignored("an earlier journal is gone");
    for at in (0..whole.len()).step_by(7) {
        let mut bad = whole.clone();
        bad[at] ^= 0x20;
        fs::write(dir.join("snapshot.json"), &bad).unwrap();
        assert!(
            ReplayedState::restored(&dir, &term_files(&dir).unwrap()).is_none(),
            "a flip at {at}"
        );
    }
    for bad in [&b""[..], b"{}\n", b"\0\0\0", &whole[..whole.len() / 2]] {
        fs::write(dir.join("snapshot.json"), bad).unwrap();
        ignored("it is no snapshot");
    }
    fs::remove_file(dir.join("snapshot.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.join("snapshot.json")).unwrap();
    assert!(ReplayedState::restored(&dir, &term_files(&dir).unwrap()).is_none());
}

#[test]
fn damage_is_said_and_survives_a_snapshot() {
    let (_keep, dir) = temp_dir();
    let path = run(&dir, 3);
    append(&path, b"rubbish\n");
    append(&path, &line(2, 6, &mark(77)));
    let all = afresh(&dir);
    assert_eq!(all.state.progress.mark, Some(Step(77)));
    let notes = |f: &ReplayedState| f.notes(&dir);
    assert!(
        notes(&all).iter().any(|n| n.contains("2.jsonl line 6 is damaged")),
        "{:?}",
        notes(&all)
    );
    all.clone().save(&dir, true);
    assert_eq!(notes(&with_snapshot(&dir).0), notes(&all));
}

#[test]
fn a_line_without_end_needs_no_memory_and_hides_nothing() {
    let (_keep, dir) = temp_dir();
    let path = run(&dir, 3);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let end = file.metadata().unwrap().len();
    file.set_len(end + LINE_LIMIT + 5).unwrap();
    append(&path, &[b"\n".to_vec(), line(2, 6, &mark(77))].concat());
    let all = afresh(&dir);
    assert_eq!((all.state.progress.mark, all.damaged), (Some(Step(77)), 1));
    file.set_len(end).unwrap();
    file.set_len(end + 2 * LINE_LIMIT).unwrap();
    assert_eq!(afresh(&dir).at.offset, end, "what does not end is torn");
}

#[test]
fn pieces_of_the_journals_are_all_of_them() {
    let (_keep, dir) = temp_dir();
    let path = run(&dir, 12_000);
    append(&path, b"{\"torn");
    let (mut next, mut text, mut pieces) = (Some(JournalPlace::default()), Vec::new(), 0);
    while let Some(from) = next {
        let (_, piece, then, left) = lines(&dir, from).unwrap();
        assert!(then.is_some() || left < 100, "{left} bytes are left at the end");
        text.extend(piece);
        (next, pieces) = (then, pieces + 1);
    }
    assert!(pieces > 2, "{pieces}");
    let mut all = fs::read(dir.join("journal/1.jsonl")).unwrap();
    all.extend(fs::read(&path).unwrap());
    assert_eq!(text, all[..all.len() - 6]);
    let second = JournalPlace { term: 2, offset: 0 };
    assert_eq!(lines(&dir, second).unwrap().0, second);
}

/// Two attempts at six steps, written by a release that recorded every scan as a whole.
const OLD: &[u8] = include_bytes!("../../../../../tests/fixtures/journals/whole_scans.jsonl");

#[test]
fn a_journal_of_an_older_release_folds_to_what_it_told_then() {
    let (_keep, dir) = temp_dir();
    fs::create_dir_all(dir.join("journal")).unwrap();
    fs::write(dir.join("journal/1.jsonl"), OLD).unwrap();
    let all = afresh(&dir);
    assert_eq!((all.records, all.damaged, all.unknown), (47, 0, 0));
    let s = &all.state;
    assert_eq!(
        (s.progress.mark, s.attempts, s.progress.finished),
        (Some(Step(6)), AttemptNo(2), Some(Step(6)))
    );
    let steps: Vec<u64> = s
        .disk
        .scan
        .iter()
        .flat_map(|scan| &scan.steps)
        .map(|c| c.step.0)
        .collect();
    assert_eq!(steps, [6, 4, 2]);
    let known: Vec<u32> = all.attempts().iter().map(|b| b.attempt.0).collect();
    assert_eq!(known, [1, 2]);
    all.clone().save(&dir, true);
    same(&with_snapshot(&dir).0, &all);
}
