//! What is set: a running lab driver, with all that tells whether it noticed.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    super::{memory::InMemory, process::Process, tap, worker},
    stops::Threads,
};

/// Processors of the three-processor VM. Whoever sets has one for himself, as on
/// a host that is not overcommitted.
const SETTER_CPU: usize = 0;
const GUEST_CPU: usize = 1;
const WORKER_CPU: usize = 2;
/// Threads of a VMM sit in such calls. The last two are never started again by
/// the kernel when they were interrupted.
const SITTERS: &str = "poll,read,nanosleep,futex,epoll,recv_timeout";
/// Packets each way that show that traffic is on.
const FLOWING: f64 = 200.0;

/// A lab driver, idle until it is told to go; dropped, it is ended.
pub(super) struct Target {
    driver: Process,
    /// Its descriptor of the device.
    pub(super) fd: u64,
    tap: String,
    seen: Noticed,
}

/// What of it did not go as it should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noticed {
    /// System calls that returned early, or with EINTR.
    pub(super) calls: u64,
    /// Packets that were lost, duplicated, reordered or damaged.
    pub(super) packets: u64,
}

impl Noticed {
    /// Whether there was anything.
    pub(super) fn anything(self) -> bool {
        self != Self::default()
    }

    /// In a result of the driver: all of it since it was started.
    fn read(result: &Value) -> Result<Self> {
        let count = |value: &Value| value.as_u64().context("no number");
        let mut seen = Self::default();
        for sitter in result["sitters"].as_array().context("no sitters")? {
            seen.calls += count(&sitter["failures"])?;
        }
        for pair in result["pairs"].as_array().context("no pairs")? {
            for flow in ["tx_flow", "rx_flow"] {
                for fault in ["lost", "duplicated", "reordered", "damaged"] {
                    seen.packets += count(&pair[flow][fault])?;
                }
            }
        }
        Ok(seen)
    }
}

impl Target {
    /// Starts it, and keeps it and us to processors of our own.
    pub(super) fn start(lab: &InMemory) -> Result<Self> {
        worker::pin_self(&[SETTER_CPU])?;
        let mut command = lab.command();
        command
            .args(["run", "--mode", "bidir", "--seconds", "86400"])
            .args(["--sitters", SITTERS, "--wait-go", "--hold"]);
        let (driver, ready) = Process::lab_driver(&mut command)?;
        let tap = ready["tap"].as_str().context("no tap in `ready`")?;
        let fd = ready["pairs"][0]["vhost_fd"].as_u64();
        let target = Self {
            fd: fd.context("no descriptor in `ready`")?,
            tap: tap.to_owned(),
            seen: Noticed::default(),
            driver,
        };
        // The worker may be one of its threads.
        worker::pin_process(target.pid(), &[GUEST_CPU])?;
        worker::pin_workers(target.pid(), WORKER_CPU)?;
        Ok(target)
    }

    /// The process.
    pub(super) fn pid(&self) -> u32 {
        self.driver.pid()
    }

    /// Its threads now.
    pub(super) fn threads(&self) -> Result<Threads> {
        let numbers = |tids: Vec<i32>| tids.into_iter().map(i32::unsigned_abs).collect();
        let all = numbers(worker::threads_of(self.pid())?);
        let workers = numbers(worker::workers(self.pid())?);
        Ok(Threads {
            workers: &all & &workers,
            all,
        })
    }

    /// Has it make traffic, as fast as it goes, both ways.
    pub(super) fn go(&mut self) -> Result<()> {
        self.driver.say("go")?;
        self.flows()
    }

    /// Waits until packets get through, from now on.
    pub(super) fn flows(&mut self) -> Result<()> {
        let counts = |tap: &str| -> Result<[f64; 2]> {
            Ok([
                tap::statistic(tap, "tx_packets")?,
                tap::statistic(tap, "rx_packets")?,
            ])
        };
        let tap = self.tap.clone();
        let before = counts(&tap)?;
        self.driver.wait("packets get through both ways", || {
            counts(&tap).is_ok_and(|now| (0..2).all(|way| now[way] > before[way] + FLOWING))
        })
    }

    /// Ends the traffic, and says what went wrong since this was called last.
    pub(super) fn rest(&mut self) -> Result<Noticed> {
        self.driver.say("stop")?;
        let result = self.driver.event("result")?;
        let now = Noticed::read(&result).context("in the driver's result")?;
        let before = std::mem::replace(&mut self.seen, now);
        ensure!(
            now.calls >= before.calls && now.packets >= before.packets,
            "the driver's counts went back: {before:?}, then {now:?}"
        );
        Ok(Noticed {
            calls: now.calls - before.calls,
            packets: now.packets - before.packets,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_goes_wrong_is_counted() {
        let flow = |lost, damaged| json!({"sent": 9, "lost": lost, "duplicated": 0, "reordered": 0, "damaged": damaged});
        let mut result = json!({
            "sitters": [{"failures": 0}, {"failures": 3}],
            "pairs": [{"tx_flow": flow(0, 0), "rx_flow": flow(1, 4)}],
        });
        let wanted = Noticed {
            calls: 3,
            packets: 5,
        };
        assert_eq!(Noticed::read(&result).unwrap(), wanted);
        assert!(wanted.anything() && !Noticed::default().anything());
        result["pairs"][0]["tx_flow"]["reordered"] = Value::Null;
        assert!(Noticed::read(&result).is_err());
    }
}
