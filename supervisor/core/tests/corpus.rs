//! Excerpts of logs with the class and the action that a person would give them, scored.
//!
//! `SCORE=1` prints every file that is taken for another class; the sums are always printed.

#![expect(clippy::disallowed_methods, reason = "excerpts are read from the source tree")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use supervise_core::diagnosis::{LogReader, diagnose};
use supervise_core::event::{Event, EventKind, ExitStatus};
use supervise_core::id::{ActId, AttemptNo, Term, Tick, WallMs, WorkerId};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{
    Act, ActKind, AfterStop, Decision, Diagnosis, JournalRecord, LaunchOrder, StartPoint,
};
use supervise_core::observe::machine::MachineFacts;
use supervise_core::rulebook::log_cause::LogSource;
use supervise_core::rulebook::taxonomy::{Class, FailureClass, letter};
use supervise_core::state::RunState;

/// A row of `labels.tsv`.
struct Label {
    file: String,
    exit: Option<i32>,
    class: String,
    action: String,
    origin: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

fn labels() -> Vec<Label> {
    let text = std::fs::read_to_string(folder().join("labels.tsv")).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let mut cells = line.split('\t').map(str::to_owned);
        let mut cell = || cells.next().unwrap_or_default();
        Label {
            file: cell(),
            exit: cell().parse().ok(),
            class: cell(),
            action: cell(),
            origin: cell(),
        }
    });
    rows.collect()
}

/// Class and action of a log: read in pieces, as a file would be.
fn told(reading: &mut LogReader, bytes: &[u8], exit: Option<i32>) -> (String, String) {
    reading.clear();
    reading.begin();
    for piece in bytes.chunks(1000) {
        reading.feed(piece);
    }
    reading.end_log();
    let verdict = reading.verdict(exit);
    let none = || "none".to_owned();
    (
        verdict.class.map_or_else(none, String::from),
        verdict.action.map_or_else(none, |a| letter(a).to_owned()),
    )
}

#[derive(Default)]
struct Score {
    files: usize,
    classes: usize,
    actions: usize,
}

#[test]
fn the_actions_are_right_and_no_healthy_log_is_a_failure() {
    let mut by_class: BTreeMap<String, Score> = BTreeMap::new();
    let mut by_origin: BTreeMap<String, Score> = BTreeMap::new();
    let (mut wrong, mut alarms) = (Vec::new(), Vec::new());
    let labels = labels();
    let mut reading = LogReader::new(&[]).unwrap();
    for label in &labels {
        let bytes = std::fs::read(folder().join(&label.file)).unwrap();
        let (class, action) = told(&mut reading, &bytes, label.exit);
        for score in [
            by_class.entry(label.class.clone()).or_default(),
            by_origin.entry(label.origin.clone()).or_default(),
        ] {
            score.files += 1;
            score.classes += usize::from(class == label.class);
            score.actions += usize::from(action == label.action);
        }
        if class != label.class || action != label.action {
            wrong.push(format!(
                "{}: {} {} taken for {class} {action}",
                label.file, label.class, label.action
            ));
        }
        if label.class == "none" && class != "none" {
            alarms.push(label.file.clone());
        }
    }
    for (name, s) in by_class.iter().chain(&by_origin) {
        println!(
            "{name:28} {:4} files  class {:5.1} %  action {:5.1} %",
            s.files,
            percent(s.classes, s.files),
            percent(s.actions, s.files)
        );
    }
    let total = |of: fn(&Score) -> usize| by_origin.values().map(of).sum::<usize>();
    let (files, actions) = (total(|s| s.files), total(|s| s.actions));
    println!(
        "{files} files of {} classes: class {:.1} %, action {:.1} %",
        by_class.len(),
        percent(total(|s| s.classes), files),
        percent(actions, files)
    );
    if std::env::var_os("SCORE").is_some() {
        println!("{}", wrong.join("\n"));
    }
    assert!(alarms.is_empty(), "healthy logs called failures: {alarms:?}");
    assert!(actions * 100 >= files * 97, "{wrong:#?}");
    assert!(
        files >= 200 && by_class.len() >= 50,
        "{files} files, {} classes",
        by_class.len()
    );
    assert!(by_class["none"].files >= 40);
}

/// `high` is a promise; the others must be less often right, or the word would mean nothing.
#[test]
fn high_confidence_is_right_in_97_of_100_cases() {
    let mut reading = LogReader::new(&[]).unwrap();
    // Right and all, by confidence.
    let mut by_word: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for label in labels() {
        let bytes = std::fs::read(folder().join(&label.file)).unwrap();
        let (_, action) = told(&mut reading, &bytes, label.exit);
        let word = reading.verdict(label.exit).confidence.word();
        let is_right = action == label.action;
        let (right, all) = by_word.entry(word).or_default();
        *right += usize::from(is_right);
        *all += 1;
        if word == "high" && !is_right {
            wrong.push(format!("{}: {action}", label.file));
        }
    }
    let share = |words: &[&str]| {
        let each = words.iter().filter_map(|word| by_word.get(word));
        each.fold((0, 0), |sum, (right, all)| (sum.0 + right, sum.1 + all))
    };
    let (high, rest) = (share(&["high"]), share(&["medium", "low"]));
    println!(
        "high: {} of {} right; medium and low: {} of {}",
        high.0, high.1, rest.0, rest.1
    );
    assert!(high.0 * 100 >= high.1 * 97, "{high:?}: {wrong:#?}");
    assert!(high.1 >= 1000 && rest.1 >= 200, "{by_word:?}");
    assert!(percent(high.0, high.1) > percent(rest.0, rest.1), "{by_word:?}");
}

/// Class, line of the root, and number of runs that a log shows.
fn shown(file: &str) -> (Option<FailureClass>, Option<u64>, u32) {
    let mut reading = LogReader::new(&[]).unwrap();
    told(&mut reading, &std::fs::read(folder().join(file)).unwrap(), None);
    let v = reading.verdict(None);
    (v.class, v.root.map(|r| r.line), v.runs)
}

#[test]
fn a_jump_in_time_and_another_process_begin_a_run_unless_they_belong_to_the_last() {
    for (file, class, runs) in [
        ("none/whole_second_run_later.log", None, 2),
        ("mem.cuda_oom/whole_second_run_later.log", Some(Class::MemCudaOom), 2),
        ("none/whole_second_process.log", None, 2),
        ("disk.full/whole_second_process.log", Some(Class::DiskFull), 2),
        // What follows from the failure, even if it comes late or from a process that was silent before.
        ("code.type_key/whole_silent_after.log", Some(Class::CodeTypeKey), 1),
        ("code.type_key/whole_other_workers.log", Some(Class::CodeTypeKey), 1),
        // A step that took long.
        ("none/whole_slow_step_after.log", None, 1),
    ] {
        let (found, _, count) = shown(file);
        assert_eq!((found, count), (class.map(FailureClass::from), runs), "{file}");
    }
}

#[test]
fn the_root_of_a_wrong_argument_is_the_error_below_the_usage() {
    for (file, line) in [
        ("cfg.args/real_usage.log", 2),
        ("cfg.args/whole_usage_of_many_lines.log", 4),
        ("cfg.args/whole_usage_of_a_launcher.log", 4),
        ("cfg.args/whole_usage_of_a_module.log", 2),
    ] {
        assert_eq!(shown(file), (Some(Class::CfgArgs.into()), Some(line), 1), "{file}");
    }
}

#[test]
fn a_hub_that_is_asked_for_a_path_misses_a_file() {
    for name in ["hub_path", "repo_id", "relative_path", "dot_path", "home_path"] {
        let class = shown(&format!("file.missing/whole_{name}.log")).0;
        assert_eq!(class, Some(Class::FileMissing.into()), "{name}");
    }
    assert_eq!(shown("hub.auth/whole_no_such_name.log").0, Some(Class::HubAuth.into()));
}

fn percent(of: usize, all: usize) -> f64 {
    of as f64 * 100.0 / all.max(1) as f64
}

/// The diagnosis of an attempt of two workers whose second wrote this log and failed in this way.
fn settled(reading: &mut LogReader, bytes: &[u8], status: ExitStatus) -> Diagnosis {
    reading.clear();
    reading.begin();
    reading.feed(bytes);
    reading.end_log();
    let worker = WorkerId(1);
    let logs = reading.verdict(status.number()).cause(&[(worker, LogSource::Output)]);
    let mut s = RunState::default();
    let order = LaunchOrder {
        attempt: AttemptNo(1),
        from: StartPoint::AsIs,
        lost: Vec::new(),
        nodes: 1,
    };
    s.apply(&JournalRecord::Intended {
        at: Tick(1),
        act: Act {
            id: ActId(1),
            term: Term(1),
            attempt: Some(AttemptNo(1)),
            kind: ActKind::Launch(Box::new(order)),
        },
        reasons: Vec::new(),
    });
    let attempt = AttemptNo(1);
    let ended = EventKind::WorkerExited {
        attempt,
        worker,
        status,
        first: true,
        lines: Vec::new(),
    };
    // What the machine shows comes first, and stays when the logs are read.
    let disk = Some((1 << 39, 1 << 40));
    let machine = MachineFacts {
        disk,
        ..MachineFacts::default()
    };
    let read = MachineFacts {
        logs: Some(logs),
        ..MachineFacts::default()
    };
    let evidence = |facts| EventKind::Evidence { attempt, facts };
    let fact = |s: &mut RunState, kind| {
        s.apply(&JournalRecord::Fact(Event {
            at: Tick(2),
            wall: WallMs(2),
            entropy: 0,
            kind,
        }));
    };
    fact(&mut s, ended);
    // The other worker is ended for it.
    s.apply(&JournalRecord::Decided {
        at: Tick(2),
        what: Decision::Stop {
            then: AfterStop::Diagnose,
            gently: false,
        },
        reasons: vec![Reason::new("worker_failed", format!("worker 1 {}", status.words()))],
    });
    fact(&mut s, evidence(machine));
    fact(&mut s, evidence(read));
    let attempt = s.attempt.unwrap();
    assert_eq!(attempt.end.evidence.as_ref().unwrap().disk, disk);
    diagnose(&attempt)
}

/// An attempt is settled with what `diagnose` says of its logs and its exit.
#[test]
fn a_run_and_diagnose_give_each_log_the_same_class() {
    let mut reading = LogReader::new(&[]).unwrap();
    let (mut differ, mut compared, mut rooted) = (Vec::new(), 0, 0);
    for label in labels() {
        let bytes = std::fs::read(folder().join(&label.file)).unwrap();
        let told = label.exit.filter(|code| *code != 0);
        let signal = told.filter(|code| (129..160).contains(code)).map(|code| code - 128);
        let ways = [
            told.map(ExitStatus::Code),
            signal.map(ExitStatus::Signal),
            label.exit.is_none().then_some(ExitStatus::Unknown),
            Some(ExitStatus::Signal(9)),
            Some(ExitStatus::Code(1)),
        ];
        for status in ways.into_iter().flatten() {
            let d = settled(&mut reading, &bytes, status);
            let verdict = reading.verdict(status.number());
            let Some(class) = verdict.class else { continue };
            compared += 1;
            if d.class != class {
                differ.push(format!(
                    "{} ({status}): {class}, and the run says {}: {}",
                    label.file, d.class, d.text
                ));
            }
            if let Some(root) = verdict.root {
                rooted += 1;
                let place = format!("worker 1 line {}: ", root.line);
                assert!(d.text.starts_with(&place), "{}: {}", label.file, d.text);
                assert_eq!(d.worker, Some(WorkerId(1)), "{}", label.file);
            }
        }
    }
    assert!(differ.is_empty(), "{} of {compared} differ: {differ:#?}", differ.len());
    assert!(compared > 3000 && rooted > 1000, "{compared} {rooted}");
}

#[test]
fn each_excerpt_has_its_label_and_stands_in_the_folder_of_its_class() {
    let labels = labels();
    for label in &labels {
        let folder = label.file.split_once('/').map(|(folder, _)| folder);
        assert_eq!(folder, Some(label.class.as_str()), "{}", label.file);
    }
    let labelled: BTreeSet<String> = labels.into_iter().map(|l| l.file).collect();
    let files = |dir: &Path| {
        std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect::<Vec<_>>()
    };
    let mut found = 0;
    for log in files(&folder())
        .iter()
        .filter(|p| p.is_dir())
        .flat_map(|dir| files(dir))
    {
        if log.extension().is_some_and(|e| e == "log") {
            let name = log.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
            assert!(labelled.contains(&name), "{name} has no label");
            found += 1;
        }
    }
    assert_eq!(found, labelled.len());
}

/// Words of a log, in the shape that a class of NVRx's public rules (`rule`) or a fault that it injects (`fault`) tells of, what it answers to a
/// first one, and the code that the worker ends with.
struct Theirs {
    kind: String,
    name: String,
    answer: String,
    exit: Option<i32>,
    line: String,
}

fn theirs() -> Vec<Theirs> {
    let text = std::fs::read_to_string(folder().join("nvrx.tsv")).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let &[kind, name, answer, exit, line] = cells.as_slice() else {
            panic!("{line}");
        };
        Theirs {
            kind: kind.to_owned(),
            name: name.to_owned(),
            answer: answer.to_owned(),
            exit: exit.parse().ok(),
            line: line.replace("\\n", "\n"),
        }
    });
    rows.collect()
}

/// Cells of the rows of the page whose first is one of these names.
fn rows<'a>(page: &'a str, names: &BTreeSet<&str>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    cells
        .filter(|(name, _)| names.contains(name))
        .map(|(name, rest)| (name, rest.trim_end_matches('|').split('|').map(str::trim).collect()))
        .collect()
}

/// Each row of the page says all that these lines are taken for, and no more, and gives a reason where that is no restart.
#[test]
fn the_tables_beside_nvrx_are_true() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnosis.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, page) = page.split_once("## Beside NVRx").unwrap();
    let (page, _) = page.split_once("## Classes").unwrap();
    let theirs = theirs();
    let mut reading = LogReader::new(&[]).unwrap();
    for (kind, count) in [("rule", 20), ("fault", 12)] {
        let mut told_of: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for t in theirs.iter().filter(|t| t.kind == kind) {
            let (class, action) = told(&mut reading, t.line.as_bytes(), t.exit);
            assert_ne!(class, "none", "{}: {}", t.name, t.line);
            told_of
                .entry(&t.name)
                .or_default()
                .insert(format!("`{class}` {action}"));
        }
        assert_eq!(told_of.len(), count, "{kind}");
        let rows = rows(page, &told_of.keys().copied().collect());
        assert_eq!(rows.len(), count, "{kind}: a row is missing");
        for (name, found) in &told_of {
            let is_fault = kind == "fault";
            let (ours, why) = (rows[name][usize::from(is_fault)], rows[name][1 + usize::from(is_fault)]);
            let said: BTreeSet<String> = ours.split(", ").map(str::to_owned).collect();
            assert_eq!(&said, found, "{name}");
            let answer = &theirs.iter().find(|t| t.name == *name).unwrap().answer;
            assert!(!is_fault || rows[name][0] == answer, "{name}: {answer}");
            let is_restart = |told: &String| told.rsplit(' ').next().is_some_and(|action| action.starts_with('R'));
            let is_same = found.iter().all(is_restart) == (answer == "restart");
            assert!(is_same || !why.is_empty(), "{name}: no reason why it differs");
        }
    }
    let rows_of_the_page = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows_of_the_page, 32, "a row has no line that shows it");
}
