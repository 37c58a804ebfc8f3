//! Records of PyTorch's flight recorder: those that torch 2.11 wrote, and what is none.

use serde_json::json;
use std::path::Path;
use supervise_checkpoint::flight::read;
use supervise_core::observe::collectives::{self, CollectiveFault, Collectives, RankTrace};

#[expect(clippy::disallowed_methods, reason = "tests bring the bytes")]
fn record(name: &str) -> Vec<u8> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch-2.11/flight");
    std::fs::read(here.join(name)).unwrap()
}

fn four(kind: &str) -> (Vec<RankTrace>, Collectives) {
    let of = |rank| read(rank, record(&format!("{kind}_{rank}"))).unwrap();
    let traces: Vec<RankTrace> = (0..4).map(of).collect();
    let found = collectives::read(&traces);
    (traces, found)
}

#[test]
fn ranks_of_torch_that_stand_still_are_told_apart() {
    let (traces, behind) = four("behind");
    let named: Vec<(u32, CollectiveFault)> = behind.culprits.iter().map(|c| (c.rank, c.fault)).collect();
    assert_eq!(named, [(2, CollectiveFault::NotEntered)]);
    let text = behind.named().unwrap();
    assert_eq!(
        text,
        "rank 2 did not enter all_reduce number 4 of group 0 (default_pg): the last it entered there is number 3; ranks 0, 1, 3 wait for it"
    );
    let table = collectives::table(&traces);
    assert!(table.contains("rank 2: waits in no call\n"), "{table}");
    assert!(
        table.contains("rank 3: gloo:all_reduce number 4 of group 0 default_pg\n"),
        "{table}"
    );
    let (_, other) = four("other");
    let named: Vec<(u32, CollectiveFault)> = other.culprits.iter().map(|c| (c.rank, c.fault)).collect();
    assert_eq!(named, [(1, CollectiveFault::Mismatch)], "{other:?}");
    let (_, healthy) = four("healthy");
    assert_eq!((healthy.culprits.len(), healthy.ranks), (0, 4), "{healthy:?}");
}

#[test]
fn its_json_says_the_same() {
    let (json, pickle) = (
        read(0, record("behind_0.json")).unwrap(),
        read(0, record("behind_0")).unwrap(),
    );
    assert_eq!(json.calls, pickle.calls);
}

#[test]
fn what_ends_early_is_refused_and_never_a_panic() {
    let whole = record("behind_1");
    for end in 0..whole.len() {
        assert!(read(1, whole[..end].to_vec()).is_err(), "{end}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        // Whatever it says then.
        drop(read(1, bytes));
    }
}

#[test]
fn nothing_in_it_is_called_and_what_is_no_record_is_said_so() {
    let call = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.".to_vec();
    assert!(read(0, call).unwrap_err().contains("no record"));
    for (bytes, why) in [
        (&b""[..], "empty"),
        (b"{}", "no record"),
        (b"{\"version\": \"3.0\", \"entries\": []}", "3.0 is not known"),
        (b"{\"version\": ", "no JSON"),
        (b"hello", "at byte"),
    ] {
        let said = read(0, bytes.to_vec()).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    // A list that holds itself thirty times over, five levels deep, is more than a record.
    let mut bomb = b"\x80\x02]q\x00".to_vec();
    for level in 0..5_u8 {
        bomb.extend([b']', b'q', level + 1, b'(']);
        for _ in 0..30 {
            bomb.extend([b'h', level]);
        }
        bomb.push(b'e');
    }
    bomb.push(b'.');
    assert!(read(0, bomb).unwrap_err().contains("more than a record"));
}

#[test]
fn counters_are_those_of_the_groups_in_the_order_they_were_made() {
    let counters = |entered: i64, done: i64| json!({"last_enqueued_collective": entered, "last_started_collective": -1, "last_completed_collective": done});
    let of = |status: serde_json::Value, entries: serde_json::Value| {
        let config = |desc: &str, ranks: &str| json!({"desc": desc, "ranks": ranks});
        let text = json!({
            "version": "2.9",
            "pg_config": {"0": config("default_pg", "[0, 1]"), "108": config("all", "[0, 1]"), "33": config("tp", "[1]")},
            "pg_status": status,
            "entries": entries,
        });
        read(1, text.to_string().into_bytes()).unwrap()
    };
    let status = json!({"0": counters(7, 7), "4": counters(90, 89), "6": counters(-1, -1)});
    let idle = of(status.clone(), json!([]));
    let entered = |t: &RankTrace, name: &str| t.groups[name].entered;
    assert_eq!(
        (entered(&idle, "0"), entered(&idle, "33"), entered(&idle, "108")),
        (Some(7), Some(90), Some(0))
    );
    assert_eq!((idle.groups["33"].done, &idle.groups["33"].ranks), (Some(89), &vec![1]));
    // An entry that says otherwise is believed, and the order is not.
    let entry = json!({
        "pg_id": 4, "process_group": ["108", "all"], "collective_seq_id": 90, "p2p_seq_id": 0, "is_p2p": false,
        "profiling_name": "nccl:all_reduce", "input_sizes": [[2, 3]], "input_dtypes": ["Float"], "state": "scheduled",
        "retired": false, "frames": [
            {"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1},
            {"name": "step", "filename": "/x/trainer.py", "line": 77}],
    });
    let told = of(status, json!([entry]));
    assert_eq!((entered(&told, "108"), entered(&told, "33")), (Some(90), None));
    let call = &told.calls[0];
    assert_eq!(
        (call.inputs.as_slice(), call.place.as_deref()),
        (&[6][..], Some("/x/trainer.py:77"))
    );
}
