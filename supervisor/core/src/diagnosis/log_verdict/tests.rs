use super::*;

fn told(log: &str, exit: Option<i32>) -> (Option<Class>, Option<u64>) {
    let mut reading = LogReader::new(&[]).unwrap();
    reading.begin();
    reading.feed(log.as_bytes());
    reading.end_log();
    let v = reading.verdict(exit);
    (v.class.map(|c| c.counts_as()), v.root.map(|r| r.line))
}

const RAISED: &str = "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\nKeyError: 'x'\n";

#[test]
fn what_the_training_went_on_after_is_no_root() {
    let log = format!("step 1\nstep 2\n{RAISED}step 3\nstep 4\nstep 5\nOSError: [Errno 28] No space left on device\n");
    assert_eq!(told(&log, Some(1)), (Some(Class::DiskFull), Some(9)));
    assert_eq!(told(&format!("step 1\n{RAISED}step 2\nstep 3\n"), Some(0)).0, None);
}

#[test]
fn bars_of_any_unit_count_what_was_trained_after_a_failed_start() {
    let bar = |epoch: u32| format!("\r {epoch}%|#    | {epoch}/300 [08:43<21:37:54, 261.32s/epoch, loss=-.524]");
    let bars = |epochs: u32| (0..epochs).map(bar).collect::<String>();
    assert_eq!(told(&format!("{RAISED}{}", bars(9)), None).0, None);
    // A bar that closes draws its position once more.
    assert_eq!(
        told(&format!("{}\n{RAISED}{}", bars(9), bar(9)), None).0,
        Some(Class::CodeTypeKey)
    );
}

#[test]
fn a_job_that_its_scheduler_ends_may_step_until_then() {
    let ended = "step 1\nslurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-02T04:00:13 DUE TO TIME LIMIT ***\n";
    let steps = |n: u32| (2..2 + n).map(|s| format!("step {s}\n")).collect::<String>();
    let class = |n, exit| told(&format!("{ended}{}", steps(n)), exit).0;
    assert_eq!(
        (class(1, None), class(8, Some(143))),
        (Some(Class::SchedTimelimit), Some(Class::SchedTimelimit))
    );
    // Steps beyond that belong to the next job.
    assert_eq!((class(2, None), class(9, Some(143))), (None, Some(Class::OpSignal)));
}

#[test]
fn a_node_is_back_by_its_own_word_and_by_no_pod_that_starts_elsewhere() {
    let lost = "step 1\n9m  Normal  NodeNotReady  node/n1  Node n1 status is now: NodeNotReady\n";
    let started = "4m  Normal  Scheduled  pod/a  Successfully assigned rl/a to n2\n3m  Normal  Started  pod/a  Started container t\n";
    let back = "8m  Normal  NodeReady  node/n1  Node n1 status is now: NodeReady\n";
    assert_eq!(told(&format!("{lost}{started}"), None).0, Some(Class::NodeLost));
    assert_eq!(told(&format!("{lost}{back}"), None).0, None);
    let waits = "9m  Warning  FailedScheduling  pod/a  0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n";
    assert_eq!(told(&format!("{waits}{back}"), None).0, Some(Class::SchedLaunch));
    assert_eq!(told(&format!("{waits}{started}"), None).0, None);
}

#[test]
fn a_script_that_python_cannot_read_has_no_traceback() {
    let log = "  File \"t.py\", line 4\n    return 1 2\nSyntaxError: invalid syntax\n";
    let ends = "failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n";
    assert_eq!(
        told(&format!("{log}{ends}"), Some(1)),
        (Some(Class::CodeSyntaxImport), Some(3))
    );
    assert_eq!(told(&format!("{log}step 1\nstep 2\nstep 3\n"), Some(0)).0, None);
}

#[test]
fn records_of_skipped_iterations_are_no_warning() {
    let bad = |n: u32| format!(" iteration {n}/ 500 | lm loss: nan | number of skipped iterations:   0 |\n");
    let log = format!("{}{}{}{}{RAISED}", bad(1), bad(2), bad(3), bad(4));
    assert_eq!(told(&log, Some(1)), (Some(Class::NumNan), Some(1)));
}

#[test]
fn the_code_of_a_launcher_that_counts_down_is_the_end_it_reports() {
    let log = "step 1\n[launch.py:325:sigkill_handler] ['python'] exits with return code = -9\n";
    assert_eq!(told(log, Some(247)).0, Some(Class::KillUnknown));
}

#[test]
fn records_that_were_held_back_do_not_hide_the_exception() {
    let log = format!("step 1\n{RAISED}step 2\nstep 3\nstep 4\n");
    assert_eq!(told(&log, Some(1)), (Some(Class::CodeTypeKey), Some(4)));
}

#[test]
fn the_lines_are_counted_across_pieces_and_carriage_returns() {
    let mut reading = LogReader::new(&[]).unwrap();
    reading.begin();
    let log = format!("a\r\nb\n{}\n{RAISED}", " 1%|# | 1/9 [\r".repeat(500));
    for piece in log.as_bytes().chunks(7) {
        reading.feed(piece);
    }
    reading.end_log();
    assert_eq!(reading.verdict(Some(1)).root.map(|r| r.line), Some(6));
}

fn step(logs: &[&str], exit: Option<i32>) -> Option<u64> {
    let mut reading = LogReader::new(&[]).unwrap();
    for log in logs {
        reading.begin();
        log.as_bytes().chunks(100).for_each(|piece| reading.feed(piece));
        reading.end_log();
    }
    reading.verdict(exit).step
}

#[test]
fn the_newest_step_before_the_line_is_told() {
    let steps: String = (1..=500).map(|n| format!("step:{n} - actor/pg_loss:0.1\n")).collect();
    let full = "OSError: [Errno 28] No space left on device\n";
    assert_eq!(step(&[&format!("{steps}{full}")], Some(1)), Some(500));
    assert_eq!(step(&[&format!("{steps}{RAISED}")], Some(1)), Some(500));
    // The last exit counts if no line shows the cause.
    assert_eq!(step(&[&steps], Some(137)), Some(500));
    // Only one of two ranks prints records.
    assert_eq!(step(&[full, &steps], Some(1)), Some(500));
    let again = format!("{steps}{full}step:501 - x\nstep:502 - x\nstep:503 - x\n{full}");
    assert_eq!(step(&[&again], Some(1)), Some(503));
    // Ranks print over each other.
    assert_eq!(step(&[&format!("{steps}step:499 - x\n{full}")], Some(1)), Some(500));
}

#[test]
fn a_launcher_that_raises_for_a_good_end_tells_no_failure() {
    let done = |step: u32| {
        format!(
            "Train step {step}/9 done.\nTraining completes!\nTraceback (most recent call last):\n  File \"l.py\", line 4, in f\nx.JobException: Job a:trainer JobState.COMPLETED at node local\n"
        )
    };
    assert_eq!(told(&done(9), Some(1)).0, None);
    assert_eq!(told(&done(5), Some(1)).0, Some(Class::ExitUnexplained));
}

#[test]
fn what_is_taken_down_after_the_training_is_no_failure() {
    let dead = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n";
    let steps = "step:8 - x\nstep:9 - x\n";
    let log = format!("{steps}(\"Final validation metrics: {{'val': 1.0}}\")\n{dead}");
    assert_eq!(told(&log, None).0, None);
    assert_eq!(told(&log, Some(1)).0, Some(Class::RayActorDied));
    let drawn = format!(
        "{steps}Final validation metrics: {{}}\nTraining Progress: 100%|##| 9/9 [12:20<00:00, 88.80s/it]\n{dead}"
    );
    assert_eq!(told(&drawn, None).0, None);
    assert_eq!(
        told(
            &format!("{steps}Final validation metrics: {{}}\nstep:10 - x\n{dead}"),
            None
        )
        .0,
        Some(Class::RayActorDied)
    );
    assert_eq!(told(&format!("{steps}{dead}"), None).0, Some(Class::RayActorDied));
    let lost = "RuntimeError: NCCL error in: x.cpp:1, remote process exited or there was a network error\n";
    assert_eq!(told(&format!("{steps}{lost}训练结束 | 9 步\n"), None).0, None);
    assert_eq!(
        told(&format!("{steps}Training completed.\n{lost}"), None).0,
        Some(Class::CommNcclRemote)
    );
    for other in [
        "actor training done in 12 s",
        "training ended with an error",
        "SFT training finished, RL begins",
    ] {
        assert_eq!(
            told(&format!("{steps}{dead}{other}\n"), None).0,
            Some(Class::RayActorDied),
            "{other}"
        );
    }
}

#[test]
fn a_step_that_was_saved_was_done() {
    let log = |saved: u32| {
        format!(" 99%|# | 96/100 [\nSaving model checkpoint to /c/checkpoint-{saved}\nTraining completed.\n")
    };
    assert_eq!(told(&log(100), Some(0)).0, None);
    assert_eq!(told(&log(90), Some(0)).0, Some(Class::EndEarlySuccess));
}

#[test]
fn what_a_model_wrote_tells_nothing() {
    let said = format!("step:1 - x\nstep:2 - x\n[response] it prints\n{RAISED}Step 9: mend it\n[score] 0.0\n");
    assert_eq!(told(&said, Some(0)).0, None);
    assert_eq!(told(&said, None).0, None);
    assert_eq!(step(&[&said], Some(1)), Some(2));
    let full = format!("{said}OSError: [Errno 28] No space left on device\n");
    assert_eq!(told(&full, None), (Some(Class::DiskFull), Some(9)));
}

#[test]
fn that_nothing_was_found_where_nothing_could_be_is_uncertain() {
    let mut reading = LogReader::new(&[]).unwrap();
    let mut verdict = |logs: &[&[u8]]| {
        reading.clear();
        for log in logs {
            reading.begin();
            reading.feed(log);
            reading.end_log();
        }
        let v = reading.verdict(None);
        (v.confidence, v.doubt)
    };
    assert_eq!(verdict(&[b""]), (Confidence::Low, Some((0, LogDoubt::Empty))));
    assert_eq!(verdict(&[b"step 1\n", b""]), (Confidence::High, None));
    assert_eq!(
        verdict(&[b"step 1\n", b"\xff\xfes\0t\0"]),
        (Confidence::Low, Some((1, LogDoubt::Utf16)))
    );
}

#[test]
fn across_ranks_the_first_in_time_counts() {
    let mut reading = LogReader::new(&[]).unwrap();
    for log in [
        "2026-11-02 09:00:09 step 1\n2026-11-02 09:00:12 OSError: [Errno 24] Too many open files\n",
        "2026-11-02 09:00:11 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    ] {
        reading.begin();
        reading.feed(log.as_bytes());
        reading.end_log();
    }
    let v = reading.verdict(Some(1));
    assert_eq!(v.class, Some(Class::MemCudaOom.into()));
    assert_eq!(v.root.map(|r| (r.file, r.line)), Some((1, 1)));
    assert_eq!(v.runner_up, Some(Class::HostFds.into()));
}

#[test]
fn a_command_that_was_not_found_ended_nothing_that_was_killed_later() {
    let log = "train.sh: line 2: module: command not found\nstep 1\n";
    assert_eq!(told(log, Some(137)).0, Some(Class::KillUnknown));
    assert_eq!(told(log, Some(127)), (Some(Class::CfgCommand), Some(1)));
}

const ENDED: &str =
    "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\nKeyboardInterrupt\n";

#[test]
fn one_record_may_be_printed_after_the_last_exception() {
    let log = |rest: &str| format!("step 1\nstep 2\n{ENDED}step 3\n{rest}");
    assert_eq!(told(&log(""), None).0, Some(Class::OpSignal));
    assert_eq!(told(&log("a\nb\nc\nd\n"), None).0, None);
}

#[test]
fn lines_of_an_earlier_time_were_held_back() {
    let stamped = |second: u64| {
        format!(
            "2026-11-02 09:{:02}:{:02} - image {second} may be corrupt\n",
            second / 60,
            second % 60
        )
    };
    let before: String = (0..600).map(stamped).collect();
    let late = |from: u64| (from..from + 60).map(stamped).collect::<String>();
    let killed = ENDED.replace(
        "KeyboardInterrupt",
        "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL",
    );
    assert_eq!(
        told(&format!("{before}{killed}{}", late(200)), None).0,
        Some(Class::KillUnknown)
    );
    assert_eq!(told(&format!("{before}{killed}{}", late(600)), None).0, None);
}

#[test]
fn a_long_report_before_the_last_word_of_the_program_is_no_sign_of_life() {
    let report = "  program size: 126.00M\n".repeat(150);
    let log = |last: &str| format!("step 1\n{RAISED}{report}{last}");
    let hydra = "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n";
    assert_eq!(told(&log(hydra), None).0, Some(Class::CodeTypeKey));
    assert_eq!(told(&log("goodbye\n"), None).0, None);
    let thread = "Thread 0x00007fc034fff640 (most recent call first):\n  <no Python frame>\n\n";
    let dump = format!("Fatal Python error: Aborted\n\n{}", thread.repeat(60));
    assert_eq!(
        told(&format!("step 1\n{RAISED}{dump}"), None).0,
        Some(Class::CodeTypeKey)
    );
}

#[test]
fn a_thread_that_died_did_not_end_the_program_that_goes_on() {
    let log = |lines: usize| {
        let thread = "Exception in thread Thread-2 (_readerthread):\nTraceback (most recent call last):\n  File \"threading.py\", line 1045, in _bootstrap_inner\n    self.run()\n";
        let raised = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xad in position 7: invalid start byte\n";
        format!("{thread}{raised}{}", "the model is loaded\n".repeat(lines))
    };
    assert_eq!(told(&log(20), None).0, None);
    assert_eq!(told(&log(2), None).0, Some(Class::DataBadSample));
}

#[test]
fn an_error_that_the_program_logs_all_the_time_did_not_end_it() {
    let logged = "ERROR:2026-03-26 22:17:25,938:Traceback (most recent call last):\n  File \"env.py\", line 4, in act\nTypeError: cannot unpack non-iterable NoneType object\n";
    let each = format!("{logged}{}", "it answers\n".repeat(60));
    assert_eq!(told(&format!("step 1\n{}{logged}", each.repeat(12)), None).0, None);
    assert_eq!(
        told(&format!("step 1\n{}", logged.repeat(12)), None).0,
        Some(Class::CodeTypeKey)
    );
}
