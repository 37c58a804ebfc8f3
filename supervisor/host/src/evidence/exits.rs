//! How the processes of an attempt exited, in the order in which the guard saw it.

use super::EvidenceOrder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::time::Duration;
use supervise_core::id::ProcRef;

const RECORD: u64 = 4 << 20;
const LOOKS: u32 = 200;
const LOOK: Duration = Duration::from_millis(50);
const ENDS: usize = 10_000;

/// The list, as JSON, once it includes every worker: the guard's record reaches the disk a moment after its exit.
/// `None` if it cannot be read.
pub(super) fn when_written(order: &EvidenceOrder) -> Option<String> {
    let mut found = None;
    for _ in 0..LOOKS {
        let ends = read(order);
        let told = |e: &&Value| e.get("worker").is_some_and(Value::is_u64);
        let all = ends.iter().flatten().filter(told).count() >= order.workers.len();
        found = ends.or(found);
        if all {
            break;
        }
        std::thread::sleep(LOOK);
    }
    found.map(|list| format!("{:#}\n", Value::Array(list)))
}

fn read(order: &EvidenceOrder) -> Option<Vec<Value>> {
    let mut text = Vec::new();
    File::open(order.attempt.join("tree"))
        .ok()?
        .take(RECORD)
        .read_to_end(&mut text)
        .ok()?;
    let record = String::from_utf8_lossy(&text);
    Some(list(&record, &order.workers, &order.argv.join(" ")))
}

/// Each exit with the command of its process, if known. `launched`: the workers' command, for those that exited
/// before the guard read theirs.
fn list(record: &str, workers: &[ProcRef], launched: &str) -> Vec<Value> {
    let mut commands: BTreeMap<i64, String> = BTreeMap::new();
    let mut out = Vec::new();
    for line in record.lines() {
        let Ok(line) = serde_json::from_slice::<Value>(line.as_bytes()) else {
            continue;
        };
        let number = |name: &str| line.get(name).and_then(Value::as_i64);
        let worker = number("worker").and_then(|n| workers.get(usize::try_from(n).ok()?));
        let pid = number("pid").or(worker.map(|w| i64::from(w.pid)));
        match (line.get("exit"), pid) {
            (Some(exit), pid) if out.len() < ENDS => {
                let command = pid.and_then(|pid| commands.get(&pid)).filter(|c| !c.is_empty());
                let command = command.map(String::as_str).or(worker.map(|_| launched));
                out.push(json!({
                    "worker": line.get("worker"), "pid": pid, "exit": exit, "step": line.get("step"), "command": command,
                }));
            }
            (None, Some(pid)) => {
                let command = line.get("command").and_then(Value::as_str).unwrap_or_default();
                commands.insert(pid, command.to_owned());
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_in_their_order_with_their_commands() {
        let record = "{\"boot\":\"b\"}\n{\"pid\":7,\"start\":1,\"ppid\":2,\"command\":\"python3 a.py\"}\n\
            {\"pid\":7,\"exit\":{\"signal\":9}}\nnonsense\n{\"worker\":0,\"exit\":{\"code\":1},\"step\":4}\n";
        let workers = [ProcRef { pid: 9, start: 1 }];
        let found = list(record, &workers, "python3 train.py");
        assert_eq!(found.len(), 2);
        assert_eq!(
            (&found[0]["command"], &found[0]["pid"]),
            (&json!("python3 a.py"), &json!(7))
        );
        assert_eq!((&found[1]["worker"], &found[1]["step"]), (&json!(0), &json!(4)));
        // It exited before its command could be read.
        assert_eq!(
            (&found[1]["command"], &found[1]["pid"]),
            (&json!("python3 train.py"), &json!(9))
        );
        let known = format!("{{\"pid\":9,\"start\":1,\"command\":\"python3 b.py\"}}\n{record}");
        assert_eq!(list(&known, &workers, "x").last().unwrap()["command"], "python3 b.py");
    }
}
