//! `vhost-lab target`: sitters that are left alone but for signals.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on ends, and says where"
)]

use std::process::{Command, Stdio};

use serde_json::Value;

/// What it says at its end.
fn target(more: &[&str]) -> Value {
    let calls = "poll,read,nanosleep,futex,epoll,recv_timeout,ppoll,pselect,io_uring,sigtimedwait";
    let output = Command::new(env!("CARGO_BIN_EXE_vhost-lab"))
        .args(["target", "--seconds", "2", "--syscall", calls])
        .args(more)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    let last = String::from_utf8_lossy(&output.stdout);
    let last = serde_json::from_str::<Value>(last.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "target");
    assert_eq!(last["failures"], 0, "{last}");
    last
}

#[test]
fn without_a_storm_no_call_is_interrupted() {
    let last = target(&[]);
    assert!(last["signals"].is_null());
    for sitter in last["sitters"].as_array().unwrap() {
        assert!(sitter["calls"].as_u64() > Some(0), "{sitter}");
        assert_eq!(sitter["interrupted"], 0, "{sitter}");
    }
}

#[test]
fn in_a_storm_every_signal_is_handled_and_no_call_fails_without_one() {
    let last = target(&["--storm-us", "500"]);
    let signals = &last["signals"];
    for kind in ["alarm", "user", "child", "queued"] {
        assert!(signals[kind]["sent"].as_u64() > Some(0), "{signals}");
        assert_eq!(signals[kind]["sent"], signals[kind]["handled"], "{signals}");
    }
    assert_eq!(signals["misplaced"], 0, "{signals}");
    let mut interrupted = last["sitters"].as_array().unwrap().iter();
    assert!(interrupted.all(|sitter| sitter["interrupted"].as_u64() > Some(0)));
}
