//! Reports of other programs: the GPU driver, Ray, Slurm. Each is run with a deadline, and may be missing.

use super::EvidenceOrder;
use super::memory_disk::tail_of;
use crate::process::capture::{CaptureCommand, CaptureError, capture};
use camino::{Utf8Path, Utf8PathBuf};
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

const LIMIT: Duration = Duration::from_secs(5);
const OUTPUT: usize = 1 << 20;
/// Number of Ray's newest logs that are kept, and bytes of each.
const LOGS: usize = 8;
const LOG: u64 = 32 << 10;
/// How far the clock of a file may be behind.
const CLOCKS: Duration = Duration::from_secs(10);
const ENTRIES: usize = 4096;

/// Output of a program; `Err(None)`: it is not on this machine.
pub(crate) fn said(words: &[&str], limit: Duration) -> Result<String, Option<String>> {
    let argv: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    let env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    let errand = CaptureCommand {
        input: &[],
        argv: &argv,
        env: &env,
        cwd: "/",
        limit,
        output: OUTPUT,
        errors: 1000,
        stop: None,
    };
    match capture(&errand) {
        Err(CaptureError::Start(e)) if e.kind() == ErrorKind::NotFound => Err(None),
        Err(e) => Err(Some(e.to_string())),
        Ok(done) if done.status.is_success() => Ok(String::from_utf8_lossy(&done.output).into_owned()),
        Ok(done) => {
            let errors = String::from_utf8_lossy(&done.errors).trim().to_owned();
            Err(Some(format!("it {}: {errors}", done.status.words())))
        }
    }
}

fn file(name: &str, result: Result<String, Option<String>>) -> Option<(String, String)> {
    match result {
        Ok(text) => Some((name.to_owned(), text)),
        Err(Some(why)) => Some((name.to_owned(), format!("{why}\n"))),
        Err(None) => None,
    }
}

/// `gpu.txt`, if there is a driver for NVIDIA GPUs.
pub(super) fn gpus() -> Option<(String, String)> {
    let what = "UTILIZATION,MEMORY,TEMPERATURE,POWER,ECC,PIDS,PERFORMANCE,ROW_REMAPPER";
    file("gpu.txt", said(&["nvidia-smi", "-q", "-d", what], LIMIT))
}

/// `slurm.txt`, inside a job.
pub(super) fn slurm(order: &EvidenceOrder) -> Option<(String, String)> {
    let job = order.slurm_job.as_deref()?;
    file("slurm.txt", said(&["scontrol", "show", "job", job], LIMIT))
}

/// The ends of the newest logs of Ray's own processes since the launch: older ones belong to another cluster.
pub(super) fn ray(order: &EvidenceOrder) -> Vec<(String, String)> {
    let newest = order.ray.iter().filter_map(|dir| logs(dir)).max_by_key(|(_, at)| *at);
    let Some((dir, _)) = newest else { return Vec::new() };
    let is_wanted = |name: &str| {
        name == "raylet.err" || name == "gcs_server.err" || name.starts_with("worker-") && name.ends_with(".err")
    };
    let age = Duration::from_millis(order.age_ms).saturating_add(CLOCKS);
    let since = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut found: Vec<(SystemTime, Utf8PathBuf)> = entries(&dir)
        .filter(|path| path.file_name().is_some_and(is_wanted))
        .filter_map(|path| {
            let meta = path.metadata().ok().filter(|m| m.len() > 0)?;
            Some((meta.modified().ok()?, path))
        })
        .filter(|(at, _)| *at >= since)
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.truncate(LOGS);
    let tail = |path: &Utf8Path| Some((format!("ray-{}", path.file_name()?), tail_of(path, LOG)?.0));
    found.iter().filter_map(|(_, path)| tail(path)).collect()
}

/// The logs of the newest session in a directory, and when they were last written to.
fn logs(place: &Utf8Path) -> Option<(Utf8PathBuf, SystemTime)> {
    let sessions = entries(place).filter(|p| p.file_name().is_some_and(|n| n.starts_with("session_2")));
    let dated = sessions.filter_map(|p| {
        let logs = p.join("logs");
        Some((logs.metadata().ok()?.modified().ok()?, logs))
    });
    dated.max().map(|(at, logs)| (logs, at))
}

fn entries(dir: &Utf8Path) -> impl Iterator<Item = Utf8PathBuf> {
    let all = dir.read_dir_utf8().ok().into_iter().flatten().flatten();
    all.take(ENTRIES).map(|e| e.into_path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_that_is_not_there_is_no_fault() {
        assert_eq!(said(&["no-such-program-here"], LIMIT), Err(None));
        assert_eq!(said(&["echo", "yes"], LIMIT), Ok("yes\n".to_owned()));
        assert!(matches!(said(&["sh", "-c", "echo bad >&2; exit 3"], LIMIT), Err(Some(why)) if why.contains("bad")));
    }

    #[test]
    fn the_newest_logs_of_ray_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let logs = dir.join("session_2026-01-01_00-00-00_1/logs");
        fs::create_dir_all(&logs).unwrap();
        for (name, text) in [
            ("raylet.err", "raylet died"),
            ("worker-ab.err", "boom"),
            ("worker-ab.out", "no"),
            ("raylet.out", "no"),
        ] {
            fs::write(logs.join(name), text).unwrap();
        }
        // Of a cluster that existed before the launch.
        let old = fs::File::create(logs.join("gcs_server.err")).unwrap();
        std::io::Write::write_all(&mut &old, b"long ago").unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        let order = EvidenceOrder {
            attempt: dir.to_owned(),
            run: supervise_core::id::RunId("x".into()),
            known: Vec::new(),
            workers: Vec::new(),
            argv: Vec::new(),
            age_ms: 0,
            root: None,
            still: false,
            slurm_job: None,
            ray: vec![dir.join("none"), dir.to_owned()],
            secrets: Vec::new(),
            rules: Vec::new(),
            logs_alone: false,
        };
        let mut found = ray(&order);
        found.sort();
        let names: Vec<&str> = found.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["ray-raylet.err", "ray-worker-ab.err"]);
        assert_eq!(found[1].1, "boom");
    }
}
