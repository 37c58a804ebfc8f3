//! Memory that a look at a file takes, counted where it is allocated: no more than is allowed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use supervise_checkpoint::{FileKind, InspectLimits, inspect};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counted;

fn more(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
}

#[expect(unsafe_code, reason = "an allocator is counted by being one")]
// SAFETY: every call is the system allocator's, with what was given to it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Relaxed);
        more(size);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const MEMORY: usize = 8 << 20;

fn pickle(begin: &[u8], each: &[u8], count: usize) -> Vec<u8> {
    [begin, &each.repeat(count), b"e."].concat()
}

/// A file of so many tensors of one number each.
fn header(tensors: usize) -> Vec<u8> {
    let entry = |n: usize| {
        let (from, to) = (4 * n, 4 * n + 4);
        format!("\"t{n}\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[{from},{to}]}}")
    };
    let entries: Vec<String> = (0..tensors).map(entry).collect();
    of_header(&format!("{{{}}}", entries.join(",")), 4 * tensors)
}

fn of_header(text: &str, data: usize) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &vec![1; data]].concat()
}

/// One after the other: what is counted is the whole process.
#[test]
fn no_file_takes_more_than_is_allowed() {
    let many = |count: usize| -> Vec<(&str, FileKind, Vec<u8>)> {
        let words: Vec<String> = (0..count / 8).map(|n| format!("\"w{n}\":{n}")).collect();
        let pairs: Vec<String> = (0..count / 8).map(|n| format!("\"w{n}\":\"a\"")).collect();
        let merges = "[\"w1\",\"w2\"],".repeat(count / 8);
        let text = |inner: &str| format!("{{\"weight_map\":{{\"a\":\"b\"}},\"x\":{inner}}}").into_bytes();
        vec![
            ("itself", FileKind::Pickle, pickle(b"\x80\x04]\x94(", b"h\x00", count)),
            ("numbers", FileKind::Pickle, pickle(b"\x80\x04]\x94(", b"K\x01", count)),
            ("nothing", FileKind::Pickle, pickle(b"\x80\x04]\x94(", b")", count)),
            ("marks", FileKind::Pickle, pickle(b"\x80\x04]\x94", b"(", count)),
            ("memo", FileKind::Pickle, pickle(b"\x80\x04]\x94(", b"N\x94", count / 2)),
            ("lists", FileKind::Pickle, pickle(b"\x80\x04]\x94(", b"]", count)),
            (
                "tuples",
                FileKind::Pickle,
                pickle(b"\x80\x04]\x94(", b"K\x01K\x02\x86", count / 2),
            ),
            (
                "dicts",
                FileKind::Pickle,
                pickle(b"\x80\x04]\x94(", b"}K\x01K\x02s", count / 4),
            ),
            (
                "a table",
                FileKind::DcpMetadata,
                pickle(b"\x80\x04]\x94(", b"]h\x00a", count / 4),
            ),
            (
                "a list in JSON",
                FileKind::SafetensorsIndex,
                text(&format!("[{}0]", "0,".repeat(count))),
            ),
            (
                "strings in JSON",
                FileKind::SafetensorsIndex,
                text(&format!("[{}0]", "\"a\",".repeat(count / 2))),
            ),
            (
                "objects in JSON",
                FileKind::SafetensorsIndex,
                text(&format!("[{}0]", "{\"a\":1},".repeat(count / 8))),
            ),
            (
                "lists of lists in JSON",
                FileKind::SafetensorsIndex,
                text(&format!("[{}0]", "[[0],[0]],".repeat(count / 8))),
            ),
            (
                "an index",
                FileKind::SafetensorsIndex,
                format!("{{\"weight_map\":{{{}}}}}", pairs.join(",")).into_bytes(),
            ),
            ("a header", FileKind::Safetensors, header(count / 64)),
            (
                "notes",
                FileKind::Safetensors,
                of_header(
                    &format!("{{\"__metadata__\":{{{}\"\":\"\"}}}}", "\"\":\"\",".repeat(count / 2)),
                    0,
                ),
            ),
            (
                "shapes",
                FileKind::Safetensors,
                of_header(
                    &format!(
                        "{{\"t\":{{\"dtype\":\"F32\",\"shape\":[{}0],\"data_offsets\":[0,0]}}}}",
                        "0,".repeat(count)
                    ),
                    0,
                ),
            ),
            (
                "keys in JSON",
                FileKind::Settings,
                format!("{{{}}}", words.join(",")).into_bytes(),
            ),
            (
                "a tokenizer",
                FileKind::Tokenizer,
                format!(
                    "{{\"model\":{{\"vocab\":{{{}}},\"merges\":[{merges}[]]}}}}",
                    words.join(",")
                )
                .into_bytes(),
            ),
        ]
    };
    let limits = InspectLimits {
        memory: MEMORY,
        ..InspectLimits::default()
    };
    let mut wrong = Vec::new();
    for count in [60_000, 250_000, 330_000, 600_000] {
        for (name, kind, bytes) in many(count) {
            let before = NOW.load(Relaxed);
            PEAK.store(before, Relaxed);
            let found = inspect(kind, &bytes, &limits);
            let taken = PEAK.load(Relaxed) - before;
            drop(found);
            if taken > MEMORY {
                wrong.push(format!("{name}, {count}: {} KiB", taken >> 10));
            }
        }
    }
    assert!(wrong.is_empty(), "{} KiB are allowed: {wrong:#?}", MEMORY >> 10);
}
