//! `supervise diagnose`: logs in, a cause out, and what is said of logs that cannot be read.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn diagnose(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_supervise"))
        .arg("diagnose")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have said no before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn a_cause_is_told_with_its_line_and_what_followed() {
    let log = "step 1 loss 0.5\nRuntimeError: x Connection reset by peer\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nOSError: [Errno 28] No space left on device\n";
    let out = diagnose(&["-", "--exit-code", "1", "--json"], log.as_bytes());
    assert!(out.status.success(), "{out:?}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&json["class"], &json["action"]),
        (&"disk.full".into(), &"W".into()),
        "{json}"
    );
    assert_eq!(
        (&json["root"]["line"], &json["root"]["file"]),
        (&5.into(), &"-".into()),
        "{json}"
    );
    assert_eq!(json["cascade"].as_array().unwrap().len(), 1, "{json}");
}

#[test]
fn a_healthy_log_is_none_and_ends_with_0() {
    let out = diagnose(&["-", "--json"], b"step 1 loss 0.5\nstep 2 loss 0.4\n");
    assert!(out.status.success(), "{out:?}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&json["class"], &json["action"]),
        (&"none".into(), &"none".into()),
        "{json}"
    );
}

#[test]
fn the_rules_of_a_runs_configuration_count() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("ppo.yaml");
    let rules = "supervisor:\n  trainer: plain\n  command: [x]\n  policy: {mem.cuda_oom: stop}\n  rules:\n  - {pattern: 'no licence', class: user.licence, action: wait, advice: 'Ask the licence server.'}\n";
    std::fs::write(&config, rules).unwrap();
    let config = config.to_str().unwrap();
    let raised = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
    for (line, class, action) in [
        ("RuntimeError: no licence for vsim", "user.licence", "W"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "mem.cuda_oom", "S"),
    ] {
        let log = format!("step 1 loss 0.5\n{raised}{line}\n");
        let out = diagnose(&["-", "--exit-code", "1", "--config", config, "--json"], log.as_bytes());
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        assert_eq!(
            (&json["class"], &json["action"]),
            (&class.into(), &action.into()),
            "{out:?}"
        );
        if class == "user.licence" {
            assert_eq!(json["advice"], "Ask the licence server.");
        }
    }
}

#[test]
fn a_log_that_holds_no_text_is_refused_and_an_empty_one_leaves_doubt() {
    let wide: Vec<u8> = "step 1 loss 0.5\r\nKilled\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    for (input, why) in [(&wide, "- is text in UTF-16"), (&bytes, "- is no text")] {
        let out = diagnose(&["-", "--json"], input);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(64), 0), "{out:?}");
        let said: serde_json::Value = serde_json::from_slice(&out.stderr).unwrap();
        let message = said["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(why), "{said}");
    }
    let out = diagnose(&["-", "--json"], b"");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&json["class"], &json["confidence"], &json["doubt"]),
        (&"none".into(), &"low".into(), &"- is empty".into()),
        "{json}"
    );
    let text = String::from_utf8(diagnose(&["-"], b"").stdout).unwrap();
    assert!(text.starts_with("no failure was found, but - is empty"), "{text}");
}

#[test]
fn a_line_is_shown_once() {
    let log = "step 1\nKeyError: 'mask'\n[rank0]: KeyError: 'mask'\n";
    let text = String::from_utf8(diagnose(&["-"], log.as_bytes()).stdout).unwrap();
    assert!(
        text.starts_with("The program raised a type, key or attribute error [code.type_key]\n"),
        "{text}"
    );
    assert_eq!(text.matches("KeyError: 'mask'").count(), 1, "{text}");
}

#[test]
fn a_failure_in_bytes_that_are_no_text_is_doubted() {
    let noise: Vec<u8> = (1..=31).cycle().take(4096).collect();
    let failure = b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
    let zeros = vec![0; 4096];
    for (bytes, confidence) in [(&noise, "low"), (&zeros, "medium")] {
        let input = [bytes, failure.as_slice()].concat();
        let out = diagnose(&["-", "--json"], &input);
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json["class"], "mem.cuda_oom", "{json}");
        assert_eq!(
            (&json["confidence"], json["doubt"].is_string()),
            (&confidence.into(), true),
            "{json}"
        );
    }
}

#[test]
fn the_exception_and_the_number_of_runs_are_told() {
    let log = b"nohup: ignoring input\nKeyError: 'a'\nnohup: ignoring input\nmodel is built\nAssertionError\n";
    let out = diagnose(&["-", "--json"], log);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&json["exception"], &json["runs"]),
        (&"AssertionError".into(), &2.into()),
        "{json}"
    );
    let text = String::from_utf8(diagnose(&["-"], log).stdout).unwrap();
    assert!(text.contains("the log holds 2 runs; this is of the last"), "{text}");
    let out = diagnose(&["-", "--json"], b"step 1 loss 2.0\n");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&json["exception"], &json["runs"]),
        (&serde_json::Value::Null, &1.into()),
        "{json}"
    );
}

#[test]
fn what_could_not_be_read_is_told_and_the_end_is_found() {
    let failure = b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
    let line = vec![b'x'; 5 << 20];
    let out = diagnose(&["-", "--json"], &[line, failure.to_vec()].concat());
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&json["class"], &json["confidence"]),
        (&"mem.cuda_oom".into(), &"medium".into()),
        "{json}"
    );
    assert!(
        json["doubt"].as_str().unwrap().contains("a line of more than 1 MiB"),
        "{json}"
    );
}

#[test]
fn a_pipe_that_nobody_writes_to_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let out = diagnose(&[pipe.to_str().unwrap()], b"");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("it is a pipe that nobody writes to"), "{said}");
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, "AssertionError\n").unwrap()
    });
    let out = diagnose(&[pipe.to_str().unwrap(), "--json"], b"");
    writer.join().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["exception"], "AssertionError", "{json}");
}

#[test]
fn logs_that_cannot_be_read_are_refused_with_one_error() {
    for (args, input, said) in [
        (
            &["/nowhere/train.log"][..],
            &b""[..],
            "there is no log /nowhere/train.log",
        ),
        (&["/"], b"", "/ is a directory"),
        (&["-"], b"\x1f\x8b\x08\x00", "standard input is compressed (gzip)"),
        (&["-", "-"], b"", "standard input is named twice"),
    ] {
        let out = diagnose(args, input);
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(64), "{err}");
        assert!(err.contains(said), "{err}");
    }
}

#[test]
fn a_number_that_is_no_exit_code_is_refused() {
    for (code, ok) in [
        ("255", true),
        ("-9", true),
        ("999", false),
        ("-65", false),
        ("abc", false),
    ] {
        let out = diagnose(&["-", "--exit-code", code], b"step:1 - loss:0.5\n");
        assert_eq!(out.status.code(), Some(if ok { 0 } else { 64 }), "{code}");
    }
}
