//! Generations that newer builds write by themselves, by the names of their files.

use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, Depth, EntryKind, FileFact, Verdict};
use supervise_core::id::Step;
use supervise_trainers::{ExpectedLayout, StepTracker, adapter};

const NAME: &str = "generation_step00000005";

/// The same files, as both layouts name them.
const FILES: [(&str, &str); 5] = [
    ("manifest/step_info.json", "recover_info/step_info.json"),
    ("manifest/dataloader_info.pkl", "recover_info/dataloader_info.pkl"),
    ("payloads/default/.metadata", "default/recover_checkpoint/.metadata"),
    (
        "payloads/default/__0_0.distcp",
        "default/recover_checkpoint/__0_0.distcp",
    ),
    ("payloads/critic/.metadata", "critic/recover_checkpoint/.metadata"),
];

fn fact(path: String, kind: EntryKind) -> FileFact {
    FileFact {
        path: path.into(),
        kind,
        size: 7,
        mtime: 1,
        ctime: 1,
        dev: 1,
        ino: 1,
        uid: 0,
    }
}

fn tracker<'a>(only: Option<&str>, dir: &str, files: impl Iterator<Item = &'a str>) -> Box<dyn StepTracker> {
    let expect = ExpectedLayout {
        only: only.map(str::to_owned),
        ..ExpectedLayout::default()
    };
    let mut tracker = adapter(supervise_trainers::areal::AREAL).tracker(&expect);
    tracker.note(&fact(dir.to_owned(), EntryKind::Dir));
    files.for_each(|file| tracker.note(&fact(format!("{dir}/{file}"), EntryKind::File)));
    tracker
}

#[test]
fn a_generation_is_a_step_and_its_files_are_read_where_they_stand() {
    let own = tracker(None, NAME, FILES.iter().map(|(own, _)| *own));
    let id = CkptId(NAME.into());
    assert_eq!(own.steps(), [(id.clone(), Step(6))]);
    let needs: BTreeMap<Utf8PathBuf, Option<Utf8PathBuf>> = own
        .needs(&id, Depth::Full)
        .into_iter()
        .map(|need| (need.path, need.described_by))
        .collect();
    assert_eq!(needs.len(), FILES.len());
    for (file, _) in FILES {
        assert!(
            needs.contains_key(&Utf8PathBuf::from(format!("{NAME}/{file}"))),
            "{file}"
        );
    }
    let shard = Utf8PathBuf::from(format!("{NAME}/payloads/default/__0_0.distcp"));
    let table = Utf8PathBuf::from(format!("{NAME}/payloads/default/.metadata"));
    assert_eq!(needs[&shard], Some(table));
}

#[test]
fn a_copy_in_the_older_layout_has_the_same_pins() {
    let own = tracker(None, NAME, FILES.iter().map(|(own, _)| *own));
    let live = tracker(Some("t0"), "t0", FILES.iter().map(|(_, live)| *live));
    let pins = own.pins(&CkptId(NAME.into()));
    assert!(pins.is_some());
    assert_eq!(pins, live.pins(&CkptId("t0".into())));
}

#[test]
fn what_is_missing_is_named_as_it_is_on_disk() {
    let files = FILES
        .iter()
        .map(|(own, _)| *own)
        .filter(|own| !own.starts_with("payloads/default"));
    let mut own = tracker(
        None,
        NAME,
        files.chain(["manifest.json", "recover_info/step_info.json", "payloads"]),
    );
    let judged = own.judge(&CkptId(NAME.into()), Depth::Full, &BTreeMap::new());
    assert_eq!(
        (judged.verdict, judged.step, judged.files),
        (Verdict::Incomplete, Step(6), 3)
    );
    let places: Vec<&str> = judged
        .findings
        .iter()
        .filter_map(|f| Some(f.file.as_ref()?.as_str()))
        .collect();
    assert!(places.contains(&"payloads/default"), "{places:?}");
    assert!(places.contains(&"manifest/saver_info.json"), "{places:?}");
    assert!(places.iter().all(|p| !p.contains("recover_")), "{places:?}");
}

#[test]
fn other_names_are_no_generations() {
    for name in [
        "generation_step5",
        "generation_step00000005.tmp",
        "generation_stepx",
        "LATEST",
    ] {
        assert!(tracker(None, name, std::iter::empty()).steps().is_empty(), "{name}");
    }
}
