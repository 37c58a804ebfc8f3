//! How much memory a target takes: an allocator that counts, thread by thread.

#![expect(
    unsafe_code,
    reason = "an allocator is unsafe by definition; this one only counts and passes on"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
pub struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(by: isize) {
    // At the end of a thread its counters are gone; nothing is measured then.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + by);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as promised by our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as promised by our caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as promised by our caller.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as promised by our caller.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs something; gives its result and the most bytes that this thread held for it at one time.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let out = work();
    let most = PEAK.get() - before;
    (out, usize::try_from(most).unwrap_or(0))
}

/// Asserts that something holds no more than so many bytes at one time.
///
/// # Panics
/// The place where it does.
pub fn within<T>(most: usize, work: impl FnOnce() -> T) -> T {
    let (out, held) = peak(work);
    assert!(held <= most, "{held} bytes were held at one time, {most} are allowed");
    out
}
