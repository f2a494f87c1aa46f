//! A flood of 64-byte packets through vhost_net, by DPDK's own driver of it.

use std::{
    fs,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::worker;
use crate::command;

const TAP: &str = "tap0";
const START_LIMIT: Duration = Duration::from_secs(90);
/// The processors of the three-processor VM: testpmd keeps to the first two.
const WORKER_CPU: usize = 2;

/// testpmd, sending as fast as vhost_net takes it.
pub(super) struct Flood {
    child: Child,
    // testpmd ends with its standard input.
    _stdin: ChildStdin,
}

impl Flood {
    /// Starts it and waits until packets flow.
    pub(super) fn start() -> Result<Self> {
        let mut testpmd = Command::new("dpdk-testpmd");
        testpmd
            .args(["-l", "0-1", "--no-pci", "--no-huge", "-m", "300"])
            .arg(format!(
                "--vdev=virtio_user0,path=/dev/vhost-net,queues=1,queue_size=1024,iface={TAP}"
            ))
            .args(["--", "-i", "--auto-start", "--forward-mode=txonly"])
            .args(["--txpkts=64", "--total-num-mbufs=16384"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = testpmd
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(&testpmd)))?;
        let stdin = child
            .stdin
            .take()
            .context("testpmd has no standard input")?;
        let mut flood = Self {
            child,
            _stdin: stdin,
        };
        flood.wait("its tap appears", || {
            Path::new("/sys/class/net").join(TAP).exists()
        })?;
        command::run(Command::new("ip").args(["link", "set", TAP, "up"]))?;
        let before = packets()?;
        flood.wait("packets flow", || {
            packets().is_ok_and(|now| now > before + 10_000)
        })?;
        worker::pin_workers(flood.pid(), WORKER_CPU)?;
        Ok(flood)
    }

    fn wait(&mut self, what: &str, done: impl Fn() -> bool) -> Result<()> {
        let limit = Instant::now() + START_LIMIT;
        while !done() {
            if let Some(status) = self.child.try_wait().context("wait for testpmd")? {
                bail!("testpmd ended before {what}: {status}");
            }
            if Instant::now() > limit {
                bail!("testpmd takes too long until {what}");
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// testpmd.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packets that the tap has taken so far.
pub(super) fn packets() -> Result<u64> {
    let file = format!("/sys/class/net/{TAP}/statistics/rx_packets");
    let text = fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
    text.trim().parse().with_context(|| format!("parse {file}"))
}

/// Packets a second, over this long from now.
pub(super) fn rate(over: Duration) -> Result<f64> {
    let (start, before) = (Instant::now(), packets()?);
    thread::sleep(over);
    #[expect(
        clippy::cast_precision_loss,
        reason = "packets of seconds fit an f64 exactly"
    )]
    let sent = (packets()? - before) as f64;
    ensure!(sent > 0.0, "packets no longer flow");
    Ok(sent / start.elapsed().as_secs_f64())
}
