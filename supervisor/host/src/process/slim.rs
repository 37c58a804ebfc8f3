//! Memory of long-lived processes: what only their start needed, and what many threads would keep.

use std::ffi::c_void;
use std::fs;

#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;

/// Releases the free parts of the heap and the mapped pages of our own program: only the start executes megabytes of
/// it, and pages that are needed again come from the page cache.
#[expect(unsafe_code, reason = "no library offers these two calls as safe ones")]
pub fn let_go_of_start() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    if let Some((begin, len)) = text_around(&maps, let_go_of_start as fn() as usize) {
        let begin: *mut c_void = std::ptr::with_exposed_provenance_mut(begin);
        // SAFETY: a private mapping of a file that is executed and cannot be written: a missing page is read from the file again.
        // A page that is refused stays mapped.
        unsafe { libc::madvise(begin, len, libc::MADV_DONTNEED) };
    }
}

/// Lets threads share eight heaps: each of many heaps would keep the most that it ever held. With fewer, threads that
/// allocate at the same time would wait for each other: a long journal is decoded in some and replayed in another.
/// Large allocations come from the system and go back to it: otherwise glibc would serve ever larger ones from the
/// heaps once one of that size was freed, and the heaps would grow. Call it before there are threads.
#[expect(unsafe_code, reason = "no library offers this call as a safe one")]
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    for (what, value) in [
        (libc::M_ARENA_MAX, 8),
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, LARGE),
    ] {
        // SAFETY: it takes two numbers, and touches nothing that is in use.
        unsafe {
            libc::mallopt(what, value);
        }
    }
}

/// Start and length of the executable, read-only file mapping that contains this address.
fn text_around(maps: &str, address: usize) -> Option<(usize, usize)> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let is_text = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
        let (begin, end) = (
            usize::from_str_radix(begin, 16).ok()?,
            usize::from_str_radix(end, 16).ok()?,
        );
        (is_text && (begin..end).contains(&address)).then_some((begin, end - begin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_a_file_is_let_go() {
        let maps = "1000-2000 r--p 00000000 fe:00 7 /bin/x\n2000-5000 r-xp 00001000 fe:00 7 /bin/x\n\
            5000-6000 rw-p 00004000 fe:00 7 /bin/x\n7000-8000 r-xp 00000000 00:00 0 [vdso]\n8000-9000 r-xp 00000000 00:00 0\n";
        assert_eq!(text_around(maps, 0x2fff), Some((0x2000, 0x3000)));
        for other in [0x1fff, 0x5000, 0x7000, 0x8000] {
            assert_eq!(text_around(maps, other), None);
        }
    }

    #[test]
    fn the_program_goes_on() {
        let kept: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let_go_of_start();
        assert_eq!(kept.concat().len(), 2890);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(text_around(&maps, let_go_of_start as fn() as usize).is_some());
    }
}
