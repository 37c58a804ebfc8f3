//! Limits of this user and of the machine.

pub use supervise_core::decide::limits::limit_hint;

/// Makes a write beyond the file size limit fail with an error that can be reported, instead of a fatal signal.
/// Workers are started with default signal handling.
pub fn survive_file_limit() {
    #[expect(unsafe_code, reason = "no handler is installed, so that nothing runs in one")]
    // SAFETY: ignoring a signal runs no code of ours.
    let ignored = unsafe {
        use nix::sys::signal::{SigHandler, Signal, signal};
        signal(Signal::SIGXFSZ, SigHandler::SigIgn)
    };
    // Every Linux supports it; otherwise such a write is fatal as before.
    let _ = ignored;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_by_the_systems_own_number() {
        let words = |number| limit_hint(&format!("forking: {}", std::io::Error::from_raw_os_error(number)));
        assert!(words(libc::EAGAIN).unwrap().contains("ulimit -u"));
        assert!(words(libc::EMFILE).unwrap().contains("ulimit -n"));
        assert!(words(libc::ENOMEM).unwrap().contains("ulimit -v"));
        assert!(words(libc::EFBIG).unwrap().contains("ulimit -f"));
        assert_eq!(words(libc::ENOENT), None);
    }

    #[test]
    fn a_write_beyond_the_limit_on_file_sizes_is_an_error() {
        use std::io::Write;
        survive_file_limit();
        let me = std::env::current_exe().unwrap();
        if std::env::var_os("BEYOND_THE_LIMIT").is_some() {
            nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE, 8, 8).unwrap();
            let mut file = tempfile::tempfile().unwrap();
            let error = file.write_all(&[0; 64]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
            return;
        }
        let status = std::process::Command::new(me)
            .args(["a_write_beyond_the_limit", "--test-threads=1"])
            .env("BEYOND_THE_LIMIT", "1")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
    }
}
