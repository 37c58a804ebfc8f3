//! Ranks that talk by cards of RDMA alone, which the kernel's network does not see: a card of our own, seen by nobody else.

use super::scene;
use std::fs;
use std::path::Path;
use std::process::Command;
use supervise_tests::harness::{Refusal, alive, wait_for};

/// Begins as a healthy rank: it computes, touches memory, waits, moves bytes by the card, and in a `wedged` run by a file as well. Then it
/// spins: in a `still` run with the card as busy as ever, for longer than a hang lasts until it is found. Then the bytes end, or the card
/// is wedged: who reads its counter hangs. Once it was ended it finishes.
const TRAINER: &str = r#"
import mmap, os, sys, time
card, mark, kind = sys.argv[1:]
counter = f"{card}/ports/1/counters/port_xmit_data"
null, moved = open("/dev/null", "wb", buffering=0), 0

def move():
    global moved
    moved += 1_000_000
    with open(f"{counter}.new", "w") as file:
        file.write(f"{moved}\n")
    os.rename(f"{counter}.new", counter)

def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass

def readers():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline").read().split("\0")
            parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if "__fabric" in words and parent == os.getppid():
            yield pid

if os.path.exists(mark):
    print(*(f"step {n}" for n in range(71, 81)), sep="\n")
    sys.exit()
for step in range(1, 71):
    for _ in range(40):
        memory = mmap.mmap(-1, 256 << 10)
        for page in range(0, len(memory), 4096):
            memory[page] = 1
        compute(0.007)
        time.sleep(0.018)
    move()
    if kind == "wedged":
        null.write(bytes(100_000))
    print("step", step, flush=True)
with open(f"{mark}.readers", "w") as file:
    file.write(" ".join(readers()))
if kind == "still":
    for _ in range(60):
        compute(0.3)
        time.sleep(0.7)
        move()
else:
    os.remove(counter)
    os.mkfifo(counter)
open(mark, "w").close()
while True:
    compute(0.3)
    time.sleep(0.7)
"#;
const CARDS: &str = "/sys/class/infiniband";

/// In a machine with two cards, where nobody else is on the network.
fn machine(then: &str) -> Command {
    let card = |name: &str, ports: &str| format!("mkdir -p {CARDS}/{name}/ports/{ports}/counters");
    let script = format!(
        "mount -t tmpfs tmpfs /sys/class && {} && {} && echo N/A > {CARDS}/mlx5_1/ports/1/counters/port_rcv_data && {then}",
        card("mlx5_0", "1"),
        card("mlx5_1", "1"),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", &script]);
    command
}

/// It is found to hang, and not before it does; who read the cards is gone.
fn hangs(kind: &str) {
    let test = "ranks that talk by cards of RDMA alone";
    if !machine("true").output().is_ok_and(|o| o.status.success()) {
        return Refusal::new("no namespaces can be made here").tell(test);
    }
    let scene = scene();
    let (program, mark) = (scene.path("trainer.py"), scene.path("mark"));
    fs::write(&program, TRAINER).unwrap();
    let set = [
        "trainer=plain",
        "retries=0",
        "stall.minimum=3s",
        "stall.factor=1.0",
        "stall.hard=10m",
    ];
    let set: String = set.iter().map(|s| format!(" --set supervisor.{s}")).collect();
    let then = format!(
        "exec {} run{set} -- python3 {} {CARDS}/mlx5_0 {} {kind}",
        scene.program("supervise").display(),
        program.display(),
        mark.display()
    );
    let mut run = scene.other(Path::new("unshare"));
    let ended = run.args(machine(&then).get_args()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("spins: "), "{said}");
    assert!(mark.exists(), "it was ended while its card was busy: {said}");
    let readers = fs::read_to_string(mark.with_extension("readers")).unwrap();
    let reader: i32 = readers
        .parse()
        .unwrap_or_else(|_| panic!("one process reads the cards, not {readers:?}"));
    wait_for("the reader has ended", || !alive(reader));
    scene.assert_alone();
}

#[test]
fn a_rank_is_left_alone_for_as_long_as_its_card_moves_bytes() {
    hangs("still");
}

#[test]
fn a_hang_is_found_though_the_card_does_not_answer() {
    hangs("wedged");
}
