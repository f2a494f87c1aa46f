//! Coming and going under load: nothing is missed, nothing stays behind.

use crate::support::{Lab, Lines, Stat, run, total, tuner, tuner_output, until};

/// Names of our programs and maps, as the kernel cuts them.
const OURS: [&str; 6] = [
    "tx_enter",
    "rx_return",
    "work_queued",
    "batch_done",
    "QUEUES",
    "WORKERS",
];

fn left_behind() -> Vec<String> {
    let mut found = Vec::new();
    for what in ["prog", "map", "link"] {
        let text = run("bpftool", &[what, "show"]);
        found.extend(
            text.lines()
                .filter(|line| OURS.iter().any(|name| line.contains(name)))
                .map(|line| format!("{what}: {line}")),
        );
    }
    // Probes of ours are the only ones on these functions here.
    let probes = std::fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    found.extend(
        probes
            .lines()
            .filter(|line| line.contains("[vhost"))
            .map(|line| format!("probe: {line}")),
    );
    found
}

fn gone() {
    // The kernel frees programs and probes after a grace period.
    until("programs, maps and probes are gone", || {
        left_behind().is_empty()
    });
}

#[test]
fn attaching_under_load_misses_nothing() {
    let mut lab = Lab::open(&["--mode", "bidir", "--seconds", "100", "--busyloop-tx", "50"]);
    lab.go();
    for _ in 0..3 {
        let stat = Stat::start();
        until("there is traffic", || {
            let queues = stat.queues(&lab.pid());
            queues.values().all(|q| total(q, "packets") > 1000)
        });
        for queue in stat.queues(&lab.pid()).values() {
            assert_eq!(total(queue, "missed"), 0, "{}", queue["totals"]);
        }
    }
    lab.stop();
    lab.result();
    lab.close();
}

#[test]
fn after_the_last_interval() {
    let output = tuner_output(&["stat", "-i", "0.1", "-c", "2", "--json-lines"]);
    assert!(output.status.success());
    gone();
}

#[test]
fn after_sigterm_and_after_sigkill() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
        let stat = Stat::start();
        assert!(!left_behind().is_empty(), "the probes were never there");
        stat.process().signal(signal);
        drop(stat);
        gone();
    }
}

#[test]
fn after_the_programs_were_told_to_log() {
    let mut command = tuner(&["stat", "-i", "0.2", "--json-lines", "--debug-probes"]);
    let log = tempfile::NamedTempFile::new().unwrap();
    command.stderr(log.reopen().unwrap());
    let stat = Lines::start(command);
    stat.next().unwrap();
    let mut lab = Lab::open(&["--mode", "echo", "--packets", "10"]);
    lab.run();
    lab.close();
    until("the programs log runs", || {
        stat.next().unwrap();
        let text = std::fs::read_to_string(log.path()).unwrap();
        text.contains("run 1 cause 0")
    });
    drop(stat);
    gone();
}

#[test]
fn after_check() {
    let output = tuner_output(&["check"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    gone();
}
