//! Where the processes of a running attempt are: the state of each thread, what it waits for in the kernel, open
//! connections, and Python stacks if py-spy is installed.

use super::EvidenceOrder;
use super::outside::said;
use crate::process::stat::command_head;
use crate::process::{ProcStat, find_attempt_processes, proc_stat};
use std::fs::{self, File};
use std::io::Read;
use std::time::{Duration, Instant};
use supervise_core::id::ProcRef;

const PROCESSES: usize = 512;
const THREADS: usize = 64;
const SHORT: u64 = 16 << 10;
const SOCKETS: u64 = 256 << 10;
/// Time limits of py-spy, for one process and for all.
const ONE: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(6);

pub(super) fn processes(order: &EvidenceOrder) -> Vec<ProcRef> {
    let mut procs = find_attempt_processes(&order.run, &order.known);
    procs.extend(order.workers.iter().copied());
    procs.sort_unstable();
    procs.dedup();
    let watches = |p: &ProcRef| order.known.contains(p) && !order.workers.contains(p);
    procs.retain(|p| !watches(p));
    procs
}

/// Where their threads wait in the kernel, and Python stacks of those that will not dump them themselves.
pub(super) fn text(order: &EvidenceOrder, procs: &[ProcRef], answering: &[ProcRef]) -> String {
    let mut out = String::new();
    for proc in procs.iter().take(PROCESSES) {
        let Some(stat) = proc_stat(proc.pid).filter(|s| s.start == proc.start) else {
            continue;
        };
        let worker = order.workers.iter().position(|w| w == proc);
        process(&stat, worker, &mut out);
    }
    let others = procs.iter().filter(|p| !answering.contains(p));
    let pids: Vec<i32> = others.map(|p| p.pid).take(PROCESSES).collect();
    out.push_str(&python(&pids));
    out.push('\n');
    out
}

fn process(stat: &ProcStat, worker: Option<usize>, out: &mut String) {
    let pid = stat.pid;
    let worker = worker.map_or_else(String::new, |w| format!(" worker {w}"));
    let state = char::from(stat.state);
    out.push_str(&format!(
        "process {pid}{worker} (parent {}, state {state}, {} threads): {}\n",
        stat.ppid,
        stat.threads,
        command_head(pid)
    ));
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for thread in threads.flatten().take(THREADS) {
        let dir = thread.path();
        let read = |name: &str| short(&dir.join(name), SHORT).map(|t| t.trim().to_owned());
        let state = read("stat").and_then(|s| s.rsplit_once(") ").map(|(_, rest)| rest.chars().take(1).collect()));
        let state: String = state.unwrap_or_else(|| "?".to_owned());
        out.push_str(&format!(
            "  thread {} {}: state {state}, waits in {}, syscall {}\n",
            thread.file_name().to_string_lossy(),
            read("comm").unwrap_or_default(),
            read("wchan")
                .filter(|w| w != "0")
                .unwrap_or_else(|| "nothing".to_owned()),
            read("syscall").unwrap_or_else(|| "not told".to_owned()),
        ));
        for frame in read("stack").iter().flat_map(|s| s.lines()).take(12) {
            out.push_str(&format!("    {frame}\n"));
        }
    }
}

fn python(pids: &[i32]) -> String {
    let began = Instant::now();
    let mut out = String::new();
    for pid in pids {
        if began.elapsed() >= ALL {
            out.push_str("\npy-spy: no time for the other processes\n");
            break;
        }
        if !command_head(*pid).contains("python") {
            continue;
        }
        let pid = pid.to_string();
        match said(&["py-spy", "dump", "--pid", &pid], ONE) {
            Ok(text) => out.push_str(&format!("\npy-spy, process {pid}\n{text}\n")),
            Err(Some(why)) => out.push_str(&format!("\npy-spy, process {pid}: {why}\n")),
            Err(None) => return "\npy-spy is not installed: no lines of Python\n".to_owned(),
        }
    }
    out
}

pub(super) fn sockets(order: &EvidenceOrder) -> String {
    let pid = order.workers.first().map_or(0, |p| p.pid);
    let mut out = String::new();
    for name in ["tcp", "tcp6", "dev"] {
        let text = short(format!("/proc/{pid}/net/{name}").as_ref(), SOCKETS);
        out.push_str(&format!(
            "# {name}\n{}\n",
            text.unwrap_or_else(|| "not told".to_owned())
        ));
    }
    out
}

fn short(path: &std::path::Path, limit: u64) -> Option<String> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(limit).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_process_are_told() {
        let me = crate::process::own_ref();
        let mut out = String::new();
        process(&proc_stat(me.pid).unwrap(), Some(3), &mut out);
        assert!(out.starts_with(&format!("process {} worker 3 ", me.pid)), "{out}");
        assert!(out.contains("  thread ") && out.contains("state "), "{out}");
        let order = super::super::tests::order("/nowhere".into(), vec![me]);
        assert!(sockets(&order).contains("local_address"));
    }
}
