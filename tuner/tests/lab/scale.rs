//! As many devices as a large host has.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Lab, Stat, tuner, until};

/// What a command took.
struct Taken {
    whole: Duration,
    cpu: Duration,
    /// Its largest size in memory, KiB.
    memory: i64,
}

/// Runs a command to its end; what it printed as JSON, and what it took.
#[expect(
    clippy::zombie_processes,
    reason = "wait4 reaps it, which also says what it took"
)]
fn measured(mut command: Command) -> (Value, Taken) {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    let mut status = 0;
    // SAFETY: all zero is a valid value, which the call below fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let pid = child.id().cast_signed();
    // SAFETY: writes to two locals; the child is ours and not reaped yet.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (pid, 0), "{command:?}");
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    let taken = Taken {
        whole: start.elapsed(),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss,
    };
    (serde_json::from_str(&text).unwrap(), taken)
}

fn report(what: &str, taken: &Taken) {
    println!(
        "{what}: {:.2} s, {:.2} s of CPU, at most {} MiB",
        taken.whole.as_secs_f64(),
        taken.cpu.as_secs_f64(),
        taken.memory / 1024
    );
}

#[test]
fn a_thousand_queues_are_listed_and_measured() {
    // Each device's end waits for the kernel's readers, one after the other.
    let expedited = "/sys/kernel/rcu_expedited";
    let before = std::fs::read_to_string(expedited).unwrap();
    std::fs::write(expedited, "1").unwrap();
    let start = Instant::now();
    let mut lab = Lab::open(&[
        "--mode",
        "idle",
        "--bare",
        "--devices",
        "250",
        "--pairs",
        "2",
        "--ring-size",
        "16",
        "--ifname",
        "m",
    ]);
    println!("opened in {:.2} s", start.elapsed().as_secs_f64());
    let pid: u64 = lab.pid().parse().unwrap();
    let is_ours = |queue: &&Value| queue["pid"] == pid;

    // A low limit on open files is raised by the program itself.
    let few_files = |arguments: &[&str]| {
        let mut command = tuner(arguments);
        // SAFETY: the call between fork and exec is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: 64,
                    rlim_max: 4096,
                };
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                Ok(())
            });
        }
        command
    };
    let (document, taken) = measured(few_files(&["list", "--json"]));
    report("list", &taken);
    let queues: Vec<_> = document["queues"].as_array().unwrap().iter().collect();
    assert_eq!(queues.iter().filter(|q| is_ours(q)).count(), 1000);
    let mut taps: Vec<_> = queues.iter().map(|q| q["tap"].to_string()).collect();
    taps.sort_unstable();
    taps.dedup();
    assert_eq!(taps.len(), 250);
    for queue in &queues {
        assert!(
            queue["worker_tid"].is_u64() && queue["mtu"] == 1500,
            "{queue}"
        );
    }
    assert_eq!(document["notes"], serde_json::json!([]));
    // Far from what grows with the square of the devices.
    assert!(taken.memory < 200 * 1024, "{} KiB", taken.memory);

    // Every queue runs, so that there is something to count for each of them.
    let stat = Stat::start();
    lab.go();
    let mut document = Value::Null;
    until("each ring was kicked", || {
        document = stat.fresh();
        let queues = document["queues"].as_array().unwrap().iter();
        queues
            .filter(|q| is_ours(q) && q["totals"]["kicks"] == 1)
            .count()
            == 1000
    });
    for queue in document["queues"].as_array().unwrap() {
        assert!(queue["totals"]["runs"].as_u64() >= Some(1), "{queue}");
        assert_eq!(queue["totals"]["missed"], 0);
    }
    assert_eq!(document["lost"], 0);
    drop(stat);

    let (document, taken) = measured(few_files(&["stat", "-i", "1", "-c", "1", "--json"]));
    report("stat, one interval of 1 s", &taken);
    let queues: Vec<_> = document["queues"].as_array().unwrap().iter().collect();
    assert_eq!(queues.iter().filter(|q| is_ours(q)).count(), 1000);
    for queue in &queues {
        assert_eq!(queue["missed"], 0);
        assert_eq!(queue["totals"]["missed"], 0);
        assert_eq!(queue["tap_dropped"].is_u64(), queue["direction"] == "rx");
    }
    assert_eq!(document["lost"], 0);
    assert!(taken.memory < 300 * 1024, "{} KiB", taken.memory);
    let start = Instant::now();
    lab.close();
    println!("closed in {:.2} s", start.elapsed().as_secs_f64());
    std::fs::write(expedited, before).unwrap();
}
