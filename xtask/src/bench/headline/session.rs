//! Traffic that runs for as long as it is measured.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    super::{
        flood::Flood,
        memory::InMemory,
        process::{LIMIT, Process},
        tap, worker,
    },
    bridge::{self, Bridge},
    roundtrips::RoundTrips,
    workload::{Figure, Traffic},
};

/// Processors of the three-processor VM: the worker's own …
pub(super) const WORKER_CPU: usize = 2;
/// … that of the guest's and the host's network stack where testpmd has the
/// other …
pub(super) const STACK_CPU: usize = 0;
/// … and those of the lab driver's guest and host.
const LAB_CPUS: [usize; 2] = [0, 1];

/// Traffic under way; dropped, it is ended, its ends before what is between.
pub(super) struct Session {
    processes: Vec<Process>,
    trips: Option<RoundTrips>,
    bridge: Option<Bridge>,
    flood: Option<Flood>,
    pid: u32,
    tap: String,
    figure: Figure,
}

impl Session {
    /// Starts it, and waits until it flows.
    pub(super) fn start(traffic: &Traffic, figure: Figure, lab: &InMemory) -> Result<Self> {
        let mut session = Self {
            processes: Vec::new(),
            trips: None,
            bridge: None,
            flood: None,
            pid: 0,
            tap: bridge::TAP.to_owned(),
            figure,
        };
        match *traffic {
            Traffic::Lab(arguments) => session.start_lab_driver(lab, arguments)?,
            Traffic::Flood => {
                let flood = Flood::start()?;
                session.pid = flood.pid();
                session.flood = Some(flood);
            }
            Traffic::Tcp(arguments) => {
                session.start_bridge()?;
                session.processes = Bridge::iperf3(arguments)?;
            }
            Traffic::TcpRoundTrips { connections, bytes } => {
                session.start_bridge()?;
                session.trips = Some(RoundTrips::start(connections, bytes)?);
            }
        }
        session.wait_for_traffic()?;
        Ok(session)
    }

    fn start_lab_driver(&mut self, lab: &InMemory, arguments: &[&str]) -> Result<()> {
        let mut command = lab.command();
        command
            .arg("run")
            .args(arguments)
            .args(["--wait-go", "--seconds", "86400"]);
        let (mut driver, ready) = Process::lab_driver(&mut command)?;
        let tap = ready["tap"].as_str().context("no tap in `ready`")?;
        self.tap = tap.to_owned();
        self.pid = driver.pid();
        // The worker may be one of its threads.
        worker::pin_process(self.pid, &LAB_CPUS)?;
        worker::pin_workers(self.pid, WORKER_CPU)?;
        driver.say("go")?;
        self.processes.push(driver);
        Ok(())
    }

    fn start_bridge(&mut self) -> Result<()> {
        let bridge = Bridge::build()?;
        self.pid = bridge.pid();
        self.bridge = Some(bridge);
        Ok(())
    }

    /// The process that owns the device.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    fn wait_for_traffic(&mut self) -> Result<()> {
        let (limit, before) = (Instant::now() + LIMIT, self.count()?);
        while self.count()? <= before {
            self.check()?;
            ensure!(
                Instant::now() < limit,
                "no traffic within {} s",
                LIMIT.as_secs()
            );
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// How much has got through so far, in the unit of the figure.
    fn count(&self) -> Result<f64> {
        if let Some(trips) = &self.trips {
            return Ok(f64::from(trips.count()));
        }
        let tap = |name| tap::statistic(&self.tap, name);
        match self.figure {
            // An answer is one packet to the guest.
            Figure::RoundTrips | Figure::Received => tap("tx_packets"),
            Figure::Sent => tap("rx_packets"),
            Figure::Throughput => Ok(tap("tx_bytes")? * 8.0 / 1e6),
        }
    }

    /// So much a second, over this long from now.
    pub(super) fn rate(&mut self, over: Duration) -> Result<f64> {
        let (start, before) = (Instant::now(), self.count()?);
        thread::sleep(over);
        let rate = (self.count()? - before) / start.elapsed().as_secs_f64();
        self.check()?;
        ensure!(rate > 0.0, "the traffic stands still");
        Ok(rate)
    }

    /// That all of it is still there.
    fn check(&mut self) -> Result<()> {
        for process in &mut self.processes {
            process.check()?;
        }
        match &mut self.bridge {
            Some(bridge) => bridge.check(),
            None => Ok(()),
        }
    }
}
