//! Several threads read what one would read, and stop where one would stop.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use supervise_checkpoint::sweep::SweepJob;
use supervise_checkpoint::{
    ByteExtent, ByteSource, Dtype, ExtentResult, ReadPlan, SweepError, SweepOptions, sweep, sweep_parallel,
};

/// A large file that is not held in memory: zeros with marks here and there. Counts the bytes that are read.
struct Sparse {
    len: u64,
    marks: Vec<(u64, Vec<u8>)>,
    read: AtomicU64,
    fail_from: u64,
}

impl Sparse {
    fn new(len: u64) -> Self {
        // Marks at odd places, among them two that lie across the borders of pieces and chunks.
        let places = [5, 4096 * 3, (8 << 20) - 2, (16 << 20) - 1, len / 2 + 1, len - 9];
        let marks = places.iter().map(|at| (*at, vec![0xff; 8])).collect();
        Self {
            len,
            marks,
            read: AtomicU64::new(0),
            fail_from: u64::MAX,
        }
    }
}

impl ByteSource for Sparse {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(usize::try_from(self.len - off).unwrap());
        if off + n as u64 > self.fail_from {
            return Err(io::Error::from_raw_os_error(5));
        }
        let buf = &mut buf[..n];
        buf.fill(0);
        for (at, bytes) in &self.marks {
            for (b, place) in bytes.iter().zip(*at..) {
                if let Some(slot) = place.checked_sub(off).and_then(|i| buf.get_mut(i as usize)) {
                    *slot = *b;
                }
            }
        }
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

fn extent(off: u64, len: u64, dtype: Option<Dtype>) -> ByteExtent {
    ByteExtent {
        off,
        len,
        crc: None,
        dtype,
        what: format!("from {off}"),
    }
}

/// A small extent, one that is longer than two pieces, an empty one, two in the last piece.
fn plan(len: u64, shift: u64, dtype: Dtype) -> ReadPlan {
    let big = 64 + shift;
    let end = (19 << 20) + shift;
    ReadPlan {
        extents: vec![
            extent(0, big, None),
            extent(big, end - big, Some(dtype)),
            extent(end, 0, Some(dtype)),
            extent(end, 8192, None),
            extent(end + 8192, len - end - 8192, None),
        ],
    }
}

fn alone(src: &Sparse, plan: &ReadPlan) -> Vec<ExtentResult> {
    sweep(src, plan, SweepOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn one_large_file_is_shared_and_every_byte_is_read_once() {
    let len = 20 << 20;
    for (shift, dtype) in [(0, Dtype::F32), (1, Dtype::F32), (2, Dtype::Bf16), (0, Dtype::F64)] {
        let src = Sparse::new(len);
        let plan = plan(len, shift, dtype);
        let one = alone(&src, &plan);
        assert_eq!(src.read.swap(0, Ordering::Relaxed), len);
        let last = std::cell::Cell::new(0);
        let many = sweep_parallel(&[(&src, &plan)], 4, SweepOptions::default(), &mut |p| {
            assert!(p.done <= p.of && p.of == len, "{p:?}");
            last.set(p.done);
            ControlFlow::Continue(())
        });
        assert_eq!(
            many.into_iter().next().unwrap().unwrap(),
            one,
            "shift {shift}, {dtype:?}"
        );
        assert_eq!(src.read.load(Ordering::Relaxed), len);
        assert!(last.get() > 0);
        assert!(one[1].non_finite > 2 && one[1].zero_blocks > 4000, "{one:?}");
        assert!(one[3].all_zero && !one[2].all_zero);
    }
}

#[test]
fn results_stand_in_the_order_of_the_jobs() {
    let sources: Vec<Vec<u8>> = (1..40_u8).map(|n| vec![n; usize::from(n) * 100]).collect();
    let plans: Vec<ReadPlan> = sources
        .iter()
        .map(|s| ReadPlan {
            extents: vec![extent(0, s.len() as u64, None)],
        })
        .collect();
    let jobs: Vec<SweepJob<'_>> = sources.iter().zip(&plans).map(|(s, p)| (s as _, p)).collect();
    for threads in [0, 1, 2, 7, 100] {
        let results = sweep_parallel(&jobs, threads, SweepOptions::default(), &mut |_| {
            ControlFlow::Continue(())
        });
        for (src, result) in sources.iter().zip(results) {
            assert_eq!(result.unwrap()[0].crc, crc32fast::hash(src));
        }
    }
}

#[test]
fn a_fault_of_one_file_leaves_the_others_alone() {
    let len = 20 << 20;
    let (good, mut bad) = (Sparse::new(len), Sparse::new(len));
    bad.fail_from = 10 << 20;
    let plan = plan(len, 0, Dtype::F32);
    let beyond = ReadPlan {
        extents: vec![extent(len, 1, None)],
    };
    let jobs: [SweepJob<'_>; 4] = [(&bad, &plan), (&good, &plan), (&good, &beyond), (&bad, &beyond)];
    let results = sweep_parallel(&jobs, 3, SweepOptions::default(), &mut |_| ControlFlow::Continue(()));
    let codes: Vec<_> = results
        .iter()
        .map(|r| {
            r.as_ref()
                .err()
                .and_then(SweepError::finding)
                .map(|f| f.code.to_string())
        })
        .collect();
    let code = |c: &str| Some(c.to_owned());
    assert_eq!(
        codes,
        [code("io_error"), None, code("file_changed"), code("file_changed")]
    );
    assert_eq!(results[1].as_ref().unwrap(), &alone(&good, &plan));
}

#[test]
fn calling_it_off_ends_all_threads() {
    let len = 20 << 20;
    let src = Sparse::new(len);
    let plan = plan(len, 0, Dtype::F32);
    let jobs: Vec<SweepJob<'_>> = (0..20).map(|_| (&src as _, &plan)).collect();
    let mut calls = 0;
    let results = sweep_parallel(&jobs, 2, SweepOptions::default(), &mut |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert_eq!(calls, 1);
    let cancelled = results
        .iter()
        .filter(|r| matches!(r, Err(SweepError::Cancelled)))
        .count();
    assert!(cancelled >= 19, "{cancelled} of 20 were called off");
    assert!(src.read.load(Ordering::Relaxed) < 19 * len);
}
