//! GPUs: the driver's messages in the kernel log, and what CUDA says of them.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// A numbered message of the driver, in the forms that kernel logs and monitors give it.
macro_rules! xid {
    ($numbers:literal) => {
        line(
            "xid",
            concat!(
                r"\bXid(?: error)?s?\s*(?:\([^)]{1,60}\))?\s*[:=]?\s*(?:",
                $numbers,
                r")\b"
            ),
        )
    };
}

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "gpu.recovery_action",
        Kind::Hardware,
        Some(Action::Node),
        "Do what the line asks for after the word \"to\": reset the GPU or restart the machine before it is used again.",
    )
    .lines(&[line(
        "xid",
        r"\bXid\b.*\b154\b.*\bto (?:0x[0-9a-f]+ )?\(?(?:Drain P2P|Drain and Reset|GPU Reset Required|Node Reboot Required)",
    )])
    .examples(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    ),
    class(
        "gpu.ecc_uncorrectable",
        Kind::Hardware,
        Some(Action::Node),
        "Take the node out of the job and reset the GPU; have it replaced where it comes again.",
    )
    .lines(&[
        xid!("48|140|171|172"),
        line("uncorrectable", r"uncorrectable (?:ECC|double.bit|DRAM|SRAM|memory) (?:memory )?(?:error|fault)s?(?: (?:encountered|detected|on|occurred|has|have|was|were|in)\b|[,;.]|\s*$)"),
        line("double|DBE", r"double.bit (?:ECC )?error|\(DBE\)"),
        holds("cudaErrorECCUncorrectable"),
    ])
    .examples(
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "    Volatile Uncorrectable ECC errors : 0",
    ),
    class(
        "gpu.ecc_contained",
        Kind::Transient,
        Some(Action::Relaunch),
        "Go on; reset the GPU when it is convenient.",
    )
    .lines(&[xid!("94"), holds("contained ECC error")])
    .examples(
        "NVRM: Xid (PCI:0000:81:00): 94, pid=8121, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
        "step: 94 xid_check ok",
    ),
    class(
        "gpu.ecc_uncontained",
        Kind::Hardware,
        Some(Action::Node),
        "Take the node out of the job and reset its GPUs.",
    )
    .lines(&[xid!("95"), holds("uncontained ECC error")])
    .examples(
        "kernel: NVRM: Xid (PCI:0000:81:00): 95, pid=8121, Uncontained: FBHUB. RST: Yes, D-RST: No",
        "step: 95 no xid seen",
    ),
    class(
        "gpu.row_remap_failed",
        Kind::Hardware,
        Some(Action::Node),
        "Take the node out of the job: the GPU has no spare rows left.",
    )
    .lines(&[xid!("64"), line("remap", r"row.?remap\w*[: ].{0,60}(?:error init|failed|failure occurred: yes|no more)")])
    .examples(
        "NVRM: Xid (PCI:0000:10:1c): 64, pid=1896, Row Remapper: Error initializing row remapper",
        "Row remapping: no failure, 0 pending",
    ),
    class(
        "gpu.fallen_off_bus",
        Kind::Hardware,
        Some(Action::Node),
        "Take the node out of the job: the GPU is gone until the machine restarts.",
    )
    .lines(&[
        xid!("79"),
        holds("fallen off the bus"),
        holds("Unable to determine the device handle for GPU"),
        holds("no CUDA-capable device is detected"),
        line("GPU is lost", r"GPU is lost"),
        holds("cudaErrorNoDevice"),
        holds("NVML_ERROR_GPU_IS_LOST"),
    ])
    .examples(
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1896, GPU has fallen off the bus.",
        "GPU 0: bus 3b:00 state ok, has not fallen behind",
    ),
    class(
        "gpu.nvlink",
        Kind::Hardware,
        Some(Action::Relaunch),
        "Relaunch after a reset; take the node out where it comes again.",
    )
    .lines(&[
        xid!("74|136|14[4-9]|150|155"),
        line("SXid", r"\bSXid\b.*: [1-9]\d*, (?:Fatal|[^n])"),
        line("NVLink", r"NVLink.{0,60}(?:link (?:is )?down|fatal|failure|uncorrectable|error (?:detected|encountered|on|count increased))"),
        line("NVLink", r"(?:uncorrectable|unrecoverable|fatal) NVLink error"),
        holds("cudaErrorNvlinkUncorrectable"),
        holds("over nvlink or a hardware error"),
    ])
    .examples(
        "NVRM: Xid (PCI:0000:85:00): 74, pid=4410, NVLink: fatal error detected on link 5",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM, NVLink error checking on",
    ),
    class(
        "gpu.gsp",
        Kind::Hardware,
        Some(Action::Node),
        "Reset the GPU; take the node out where it comes again.",
    )
    .lines(&[
        xid!("119|120"),
        line("GSP", r"GSP.{0,20}(?:RPC )?timeout|waiting for RPC (?:response )?from GPU ?\d* ?GSP"),
    ])
    .examples(
        "NVRM: Xid (PCI:0000:18:00): 119, pid=2213, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
        "NVRM: GSP firmware 550.54.15 loaded",
    ),
    class(
        "gpu.halt",
        Kind::Hardware,
        Some(Action::Node),
        "Reset the GPU; take the node out where it comes again.",
    )
    .lines(&[xid!("46|62|109|110|143|158"), line("PMU|internal micro-controller", r"PMU (?:halt|breakpoint) error|internal micro-controller halt"), line("amdgpu", r"amdgpu\b.{0,80}(?:GPU reset\S* failed|ring \S+ timeout)")])
    .examples(
        "NVRM: Xid (PCI:0000:18:00): 62, pid=2213, 0dcf(3b24) 00000000 00000000",
        "step 62: xid count 0",
    ),
    class(
        "gpu.app_fault",
        Kind::Unclear,
        Some(Action::RelaunchOnce),
        "Look at the kernel or index named in the traceback; where the same GPU faults again and others do not, check that GPU.",
    )
    .lines(&[
        xid!("8|11|13|25|31|32|39|40|41|60|6[89]|7[015-7]|80|8[2-6]|12[6-9]|13[0-579]"),
        holds("an illegal memory access was encountered"),
        line("illegal memory access", r"(?:CUDA|cuda|Triton|HIP|kernel).{0,60}illegal memory access"),
        line("unspecified launch failure", r"(?:CUDA|HIP|cuda).*unspecified launch failure|^unspecified launch failure"),
        line("misaligned address", r"(?:CUDA|cuda).*misaligned address"),
        holds("device-side assert triggered"),
        holds("an illegal instruction was encountered"),
        holds("cudaErrorIllegalAddress"),
        line("Memory access fault by GPU", r"Memory access fault by GPU node-\d+"),
        line("HSA_STATUS_ERROR_", r"aborting with error ?: HSA_STATUS_ERROR_\w+"),
        holds("cudaErrorLaunchFailure"),
        holds("CUDA_ERROR_ILLEGAL_ADDRESS"),
        holds("CUBLAS_STATUS_EXECUTION_FAILED"),
        holds("CUBLAS_STATUS_INTERNAL_ERROR"),
        holds("CUDNN_STATUS_EXECUTION_FAILED"),
        holds("CUDNN_STATUS_INTERNAL_ERROR"),
        holds("CUDA error: invalid argument"),
        holds("CUDA error: invalid configuration argument"),
        holds("CUDA error: the launch timed out and was terminated"),
        line("Assertion", r"\.cuh?:\d+:.*thread: \[\d+,\d+,\d+\].*Assertion .* failed"),
    ])
    .examples(
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "compute-sanitizer: 0 illegal memory accesses found",
    ),
    class(
        "gpu.reset_needed",
        Kind::Hardware,
        Some(Action::Node),
        "Reset the GPU before the node is used again.",
    )
    .lines(&[
        line("requires reset|reset required|requires a GPU reset|RESET_REQUIRED", r"GPU requires reset|GPU reset required|requires a GPU reset|NVML_ERROR_RESET_REQUIRED"),
        line("Unknown Error", r"(?:nvidia-smi|NVML|nvml).*Unknown Error"),
    ])
    .examples(
        "nvidia-smi: GPU 00000000:3B:00.0: GPU requires reset",
        "optimizer requires reset of its state: False",
    ),
    class(
        "gpu.busy_leftover",
        Kind::Transient,
        Some(Action::Relaunch),
        "End what still holds the GPU, then relaunch.",
    )
    .lines(&[
        line("busy or unavailable", r"CUDA-capable device(?:s are|\(s\) is/are) busy or unavailable"),
        holds("cudaErrorDevicesUnavailable"),
        line("Error in memory profiling", r"AssertionError: Error in memory profiling\b"),
    ])
    .examples(
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "the reward server is busy or unavailable, trying the next one",
    )
    .told_by("memory of the GPU held by no living process, or an out-of-memory before the first step"),
    class(
        "gpu.thermal",
        Kind::Hardware,
        Some(Action::Node),
        "Take the node out of the job and look at its cooling.",
    )
    .lines(&[
        line("thermal", r"thermal.{0,30}(?:shutdown|violation|trip point|runaway)"),
        line("slowdown", r"\b(?:HW|hardware) (?:thermal )?slowdown\b.{0,12}(?:: active|detected|engaged|asserted|event)"),
        line("temperature", r"(?:critical|shutdown) temperature.{0,20}(?:reached|exceeded)|temperature.{0,30}(?:exceeds|exceeded|above) .{0,20}(?:shutdown|critical|max)"),
    ])
    .examples(
        "gpu-monitor: GPU 3: HW Thermal Slowdown: Active (96 C)",
        "        HW Thermal Slowdown               : Not Active",
    ),
    class(
        "gpu.driver",
        Kind::Hardware,
        Some(Action::Stop),
        "Mend the driver of this machine (module, library and fabric manager of one version), or leave the node out.",
    )
    .lines(&[
        holds("Driver/library version mismatch"),
        holds("CUDA driver initialization failed"),
        holds("system not yet initialized"),
        holds("cudaErrorSystemNotReady"),
        holds("CUDA_ERROR_SYSTEM_NOT_READY"),
        line("nvidia-container-cli", r"nvidia-container-cli: (?:initialization error|device error|ldcache error)"),
        line("could not select device driver", r"Error response from daemon: could not select device driver"),
        holds("CUDA driver version is insufficient"),
        line("NVIDIA driver", r"RuntimeError: (?:The NVIDIA driver on your system is too old|Found no NVIDIA driver)"),
        holds("couldn't communicate with the NVIDIA driver"),
        line("CUDA unknown error", r"RuntimeError: CUDA unknown error"),
        line("No CUDA GPUs", r"RuntimeError: No CUDA GPUs are available"),
        line("fabric manager|fabricmanager", r"fabric ?manager.{0,60}(?:not running|fail|error|mismatch)"),
    ])
    .examples(
        "Failed to initialize NVML: Driver/library version mismatch",
        "UserWarning: CUDA initialization: Found no NVIDIA driver on your system.",
    ),
    class(
        "gpu.channel_reset",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Look at the program's own log: the driver reset a channel because of what the program did.",
    )
    .lines(&[xid!("43")])
    .examples(
        "NVRM: Xid (PCI:0000:0e:00): 43, pid=31022, name=python3, Ch 00000008",
        "step 43 - xid: none",
    ),
    class(
        "gpu.preempt_cleanup",
        Kind::Cascade,
        Some(Action::RelaunchLater),
        "Look for the message or the kill right before it: the driver cleaned up behind an ended program.",
    )
    .lines(&[xid!("45")])
    .examples(
        "NVRM: Xid (PCI:0000:0e:00): 45, pid=31022, name=python3, Ch 00000008",
        "step 45 - xid: none",
    ),
    class(
        "gpu.row_remap",
        Kind::Report,
        None,
        "Nothing at once: a reset at the next restart puts the spare row in place.",
    )
    .lines(&[xid!("63"), holds("New row marked for remapping")])
    .examples(
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        "    Remapped Rows: Correctable Error : 0",
    ),
    class("gpu.high_sbe", Kind::Report, None, "Nothing at once: watch the count of corrected errors.")
        .lines(&[xid!("37|38|44|66|67|92|93|121|141|156|157"), line("single-bit", r"high single-bit ECC error rate")])
        .examples(
            "NVRM: Xid (PCI:0000:10:1c): 92, pid=1896, High single-bit ECC error rate",
            "step 92 - xid: none",
        ),
    class(
        "gpu.sdc_suspect",
        Kind::Hardware,
        Some(Action::Node),
        "Run the GPU's diagnostics on the node whose replica alone had non-finite values.",
    )
    .lines(&[
        line("silent data corruption", r"(?:possible |suspected )?silent data corruption (?:detected|suspected|on)"),
        line("rerun|Possible persistent|Possible transient", r"Possible persistent error|Possible transient error|rerun state machine.*unexpected result"),
    ])
    .examples(
        "rank 12: silent data corruption suspected: rerun of step 812 gave another loss",
        "silent data corruption checks are off",
    )
    .told_by("non-finite values on one replica only, and another result when the step is run again"),
];
