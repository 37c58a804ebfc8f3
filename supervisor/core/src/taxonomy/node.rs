//! Machines, their buses and their network cards.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "node.kernel",
        Kind::Hardware,
        Some(Action::Relaunch),
        "Read the kernel log of that machine; take it out of the job where it comes again.",
    )
    .lines(&[
        line("kernel panic", r"kernel panic"),
        line("soft lockup", r"soft lockup - CPU"),
        line("hard lockup", r"hard LOCKUP"),
        line("blocked for more than", r"INFO: task .* blocked for more than \d+ seconds"),
        line("BUG:", r"(?:kernel: ?|^|\] ?)(?-i:BUG:) (?:unable to handle|kernel NULL|soft|scheduling|Bad page)"),
        holds("Unable to handle kernel"),
        // What was corrected is logged too.
        line("Machine Check|Uncorrected hardware|EDAC", r"Machine Check Exception|Uncorrected hardware memory error|EDAC \w+: \d+ UE "),
    ])
    .examples(
        "kernel: watchdog: BUG: soft lockup - CPU#17 stuck for 67s! [python3:88121]",
        "known BUG: this counter is off by one",
    ),
    class(
        "node.reboot",
        Kind::Hardware,
        Some(Action::Relaunch),
        "Find out why the machine restarted; take it out of the job where it comes again.",
    )
    .lines(&[
        line("reboot", r"(?:node|host|machine|system) .{0,60}(?:was |has |is )?(?:unexpectedly )?reboot(?:ed|ing)|Node .{0,60}unexpectedly rebooted|system is rebooting|The system will reboot now"),
        holds("Restarting system."),
        line("boot id|boot_id", r"\bboot[ _]id (?:has |was )?(?:changed|differs|is another)|\b(?:new|another|different|other) boot[ _]id\b"),
    ])
    .examples(
        "slurmctld: error: Node gpu-014 unexpectedly rebooted boot_time=1732460000",
        "the optimizer state was rebuilt after the reboot of the reward model",
    )
    .told_by("another boot id of the machine"),
    class(
        "node.pcie",
        Kind::Hardware,
        Some(Action::Node),
        "Take the node out of the job: its PCIe bus or power supply fails.",
    )
    .lines(&[
        line("AER", r"AER:.{0,80}(?:uncorrect|fatal)"),
        line("PCIe", r"PCIe.{0,40}(?:fatal|uncorrect\w+) error|PCIe Bus Error: severity=Uncorrect"),
        line("PCIe", r"PCIe.{0,60}(?:width|speed).{0,30}(?:degraded|downgraded|dropped|reduced)"),
        line("xid", r"\bXid(?: error)?s?\s*(?:\([^)]{1,60}\))?\s*[:=]?\s*54\b"),
    ])
    .examples(
        "pcieport 0000:80:01.0: AER: Uncorrected (Fatal) error received: 0000:81:00.0",
        "pcieport 0000:80:01.0: AER: Corrected error received: 0000:81:00.0",
    ),
    class(
        "node.nic",
        Kind::Hardware,
        Some(Action::Relaunch),
        "Look at the link, cable and switch port; take the node out where it comes again.",
    )
    .lines(&[
        line("mlx5", r"mlx5.{0,80}(?:health|timeout|timed out|fatal|Link down|compromised|error cqe|completion with error)"),
        line("link is down|link down", r"\b(?:ib|eth|en|bond|mlx|hsn|roce|rdma)\w*(?:: | )?.{0,30}link (?:is )?down"),
        line("NET/IB", r"NET/IB ?:.{0,120}(?:async|fatal|retry exceeded|completion with (?:status|error)|error 12|unable to|Got (?:async|completion))"),
        line("IBV_", r"IBV_(?:EVENT_(?:PORT_ERR|DEVICE_FATAL|QP_FATAL)|WC_(?:RETRY_EXC|RNR_RETRY_EXC|REM)\w*)"),
        line("ibv_", r"Call to ibv_\w+ failed|ibv_\w+ failed"),
        line("not active", r"(?:port|Port) \d.{0,40}not active"),
        line("libfabric|NET/OFI", r"(?:libfabric|NET/OFI).{0,80}(?:failed|error|unreachable)"),
    ])
    .examples(
        "gpu-07: misc/ibvwrap.cc:113 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<41244> with status=12 opcode=0 len=0 vendor err 129 (RETRY_EXC)",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.7<0>",
    ),
    class(
        "node.silent",
        Kind::Hardware,
        Some(Action::Node),
        "Look at the power and the link of that node; the run goes on without it where the allocation holds another.",
    )
    .lines(&[line(
        "supervise: node",
        r"^supervise: node \S+ has said nothing for \d+ s$",
    )])
    .examples(
        "supervise: node gpu-07 has said nothing for 40 s",
        "the reward server has said nothing for 40 s; node gpu-07 waits for it",
    ),
    class(
        "node.lost",
        Kind::Hardware,
        Some(Action::Node),
        "Find out what became of the machine; relaunch without it.",
    )
    .lines(&[
        holds("NodeDiedError"),
        line("ActorUnavailableError", r"ActorUnavailableError.{0,200}\bnode\b"),
        line("has been marked dead", r"node.{0,200}has been marked dead"),
        line("missed too many heartbeats", r"missed too many heartbeats"),
        line("unexpected termination|died", r"node.{0,120}(?:died|unexpected termination)"),
        line("node died|was running on died", r"\bits node died|because the node (?:died|it was running on died)|node died"),
        // Kubernetes.
        line("NodeNotReady|NodeLost", r"\bNodeNotReady\s+(?:node|pod)/|status is now: NodeNotReady|\breason:?\s+NodeLost\b"),
        line("No route to host", r"No route to host"),
        line("Host is down", r"Host is down"),
        line("not responding", r"(?:Node|node|Nodes|host) [\w\[\],.-]+ (?:is )?not responding"),
    ])
    .examples(
        "The node with node id: 6c1e and address: 10.0.0.4 and node name: 10.0.0.4 has been marked dead because the detector has missed too many heartbeats from it.",
        "all 4 nodes answered the heartbeat",
    ),
];
