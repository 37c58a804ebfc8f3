//! Runs a process for a page as long as it makes progress; one that waits for a file system is abandoned.

use futures_util::future::join3;
use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChildProgress {
    /// Bytes that it read and wrote.
    pub(super) bytes: u64,
    /// How long it has neither moved a byte nor used a processor.
    pub(super) still: Duration,
}

#[derive(Debug)]
pub(super) struct ChildOutput {
    pub(super) status: ExitStatus,
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
}

/// Waits for a process to exit; `None`: it made no progress for too long and was killed. `signs` are the bytes that it moved and
/// its processor time; `tell` receives its progress.
///
/// # Errors
/// It cannot be started or waited for.
pub(super) async fn patiently(
    command: &mut Command,
    silent: Duration,
    signs: &(dyn Fn(i32) -> Option<(u64, u64)> + Sync),
    tell: &(dyn Fn(ChildProgress) + Sync),
) -> io::Result<Option<ChildOutput>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = {
        let ends = async {
            let (out, err, status) = join3(all(out), all(err), child.wait()).await;
            io::Result::Ok(ChildOutput {
                status: status?,
                out: out?,
                err: err?,
            })
        };
        let mut ends = pin!(ends);
        let (mut last, mut since) = (None, Instant::now());
        loop {
            if let Ok(ended) = tokio::time::timeout(LOOK, &mut ends).await {
                break Some(ended?);
            }
            let now = pid.and_then(signs);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let still = since.elapsed();
            if still >= silent {
                break None;
            }
            let bytes = now.map_or(0, |(bytes, _)| bytes);
            tell(ChildProgress { bytes, still });
        }
    };
    if ended.is_none() {
        // If no signal reaches it now, do not wait: it dies before it does anything more.
        child.start_kill()?;
    }
    Ok(ended)
}

async fn all(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use supervise_host::process::headway;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).kill_on_drop(true);
        command
    }

    #[tokio::test]
    async fn one_that_stands_still_is_let_go_and_killed() {
        let seen = Mutex::new(None);
        let signs = |pid| {
            *seen.lock().unwrap() = Some(pid);
            Some((7, 1))
        };
        let told = Mutex::new(Vec::new());
        let tell = |h: ChildProgress| told.lock().unwrap().push(h.bytes);
        let silent = Duration::from_secs(2);
        let ended = patiently(&mut shell("exec sleep 1000"), silent, &signs, &tell).await;
        assert!(ended.unwrap().is_none());
        assert_eq!(told.into_inner().unwrap().first(), Some(&7));
        let pid = seen.into_inner().unwrap().unwrap();
        while headway(pid).is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn one_that_gets_on_may_take_longer_than_that() {
        let bytes = AtomicU64::new(0);
        let signs = |_| Some((bytes.fetch_add(1, Ordering::Relaxed), 0));
        let mut slow = shell("sleep 3; echo yes; echo no >&2; exit 3");
        let ended = patiently(&mut slow, Duration::from_secs(1), &signs, &|_| ()).await;
        let ended = ended.unwrap().unwrap();
        assert_eq!(
            (ended.out.as_slice(), ended.err.as_slice()),
            (b"yes\n".as_slice(), b"no\n".as_slice())
        );
        assert_eq!(ended.status.code(), Some(3));
    }
}
