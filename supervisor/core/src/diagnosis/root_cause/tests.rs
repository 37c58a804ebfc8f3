use super::*;

fn clue(class: Class, text: &'static str) -> LogClue<'static> {
    LogClue {
        class,
        text,
        raised: false,
        in_thread: false,
        chained: false,
        loose: false,
        own: false,
    }
}

fn chosen(clues: &[LogClue<'_>]) -> Class {
    clues[choose(clues).unwrap().at].class
}

#[test]
fn the_kernel_counts_before_the_program_and_a_cause_before_its_echo() {
    let echo = clue(Class::CommConn, "Connection reset by peer");
    let fault = clue(Class::GpuAppFault, "CUDA error: unspecified launch failure");
    let bus = clue(Class::GpuFallenOffBus, "NVRM: Xid (PCI:0000:3b:00): 79");
    assert_eq!(chosen(&[echo, fault]), Class::GpuAppFault);
    assert_eq!(chosen(&[echo, fault, bus]), Class::GpuFallenOffBus);
    let oom = clue(Class::MemCudaOom, "torch.OutOfMemoryError: x");
    assert_eq!(chosen(&[oom, fault]), Class::MemCudaOom);
}

#[test]
fn a_warning_counts_where_nothing_else_was_said() {
    let retried = clue(Class::HubRate, "WARNING: 429 Client Error, retrying in 3 s");
    assert_eq!(chosen(&[retried]), Class::HubRate);
    assert_eq!(
        chosen(&[retried, clue(Class::CommConn, "Connection refused")]),
        Class::CommConn
    );
    let plugin = "n1:4:4 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file";
    for warned in [
        plugin,
        "[W519 05:00:11.22 TCPStore.cpp:125] [c10d] recvValue failed",
        "INFO 06-12 09:00:11 [x.py:1] boom",
    ] {
        assert_eq!(weight(&clue(Class::MemCudaOom, warned)), Weight::Hint, "{warned}");
    }
}

#[test]
fn what_a_pod_waited_for_counts_where_nothing_else_was_said() {
    let pulled = clue(Class::SchedLaunch, "2m  Warning  Failed  pod/a  Error: ErrImagePull");
    assert_eq!(chosen(&[pulled]), Class::SchedLaunch);
    assert_eq!(
        chosen(&[pulled, clue(Class::CodeTypeKey, "KeyError: 'a'")]),
        Class::CodeTypeKey
    );
}

#[test]
fn the_first_of_a_chain_counts_unless_it_says_nothing() {
    let after = |class, text| LogClue {
        class,
        text,
        raised: true,
        in_thread: false,
        chained: true,
        loose: false,
        own: false,
    };
    let oom = clue(Class::MemCudaOom, "torch.OutOfMemoryError: x");
    assert_eq!(
        chosen(&[oom, after(Class::CodeTypeKey, "KeyError: 'x'")]),
        Class::MemCudaOom
    );
    let general = clue(Class::CodeException, "TimeoutError: timed out");
    assert_eq!(
        chosen(&[general, after(Class::HubRate, "LocalEntryNotFoundError: x")]),
        Class::HubRate
    );
    assert_eq!(
        chosen(&[general, clue(Class::HubRate, "LocalEntryNotFoundError: x")]),
        Class::CodeException
    );
    let busy = LogClue {
        raised: true,
        ..clue(Class::HubRate, "HfHubHTTPError: 429")
    };
    assert_eq!(
        chosen(&[busy, after(Class::CodeSyntaxImport, "SyntaxError: invalid syntax")]),
        Class::HubRate
    );
    let missed = clue(Class::CodeTypeKey, "KeyError: 'layers.0'");
    assert_eq!(
        chosen(&[missed, after(Class::MemCudaOom, "torch.OutOfMemoryError: x")]),
        Class::MemCudaOom
    );
    assert_eq!(
        chosen(&[missed, after(Class::HubRate, "ReadTimeout: x")]),
        Class::CodeTypeKey
    );
}

#[test]
fn words_that_say_no_more_than_the_part_that_ended_are_its_detail() {
    let engine = clue(
        Class::EngineSglangWatchdog,
        "Scheduler hit an exception: Traceback (most recent call last):",
    );
    let general = clue(Class::CodeException, "RuntimeError: bad state");
    assert_eq!(chosen(&[engine, general]), Class::EngineSglangWatchdog);
    assert_eq!(chosen(&[general, engine]), Class::CodeException);
    assert_eq!(
        chosen(&[engine, clue(Class::MemCudaOom, "torch.OutOfMemoryError: x")]),
        Class::MemCudaOom
    );
    let sum = clue(Class::CkptSaveFailed, "CheckpointException ranks:dict_keys([3])");
    assert_eq!(chosen(&[sum, general]), Class::CkptSaveFailed);
    // Ray saw the death of the process that aborted.
    let dead = clue(Class::RayActorDied, "The actor died unexpectedly");
    assert_eq!(
        chosen(&[clue(Class::NativeCrash, "Fatal Python error: Aborted"), dead]),
        Class::NativeCrash
    );
    assert_eq!(
        chosen(&[
            clue(Class::CommLauncherTeardown, "Sending process 1 closing signal"),
            dead
        ]),
        Class::RayActorDied
    );
}

#[test]
fn a_failure_that_is_told_of_is_not_one_that_is_over() {
    let told = |class, text| weight(&clue(class, text));
    assert_eq!(
        told(Class::GpuEccUncorrectable, "Xid: 140, Unrecovered ECC Error"),
        Weight::Machine
    );
    assert_eq!(
        told(Class::CommConn, "rank 3 recovered from Connection reset by peer"),
        Weight::Hint
    );
    assert_eq!(told(Class::SchedPreempt, "WARNING: Preempted by pod x"), Weight::Cause);
    assert_eq!(told(Class::DiskFull, "WARNING: No space left on device"), Weight::Hint);
}

#[test]
fn what_a_runtime_does_after_its_own_words_is_no_cause() {
    let abort = clue(
        Class::NativeCrash,
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    );
    let timeout = clue(
        Class::CommNcclTimeout,
        "Watchdog caught collective operation timeout: WorkNCCL(",
    );
    assert_eq!(chosen(&[abort, timeout]), Class::CommNcclTimeout);
    let crash = clue(Class::NativeCrash, "Fatal Python error: Segmentation fault");
    assert_eq!(chosen(&[timeout, crash]), Class::NativeCrash);
}
