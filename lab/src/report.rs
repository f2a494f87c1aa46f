//! What is printed: one JSON object a line.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::counters::PairCounts;
use crate::device::LinkCounts;
use crate::quantiles::{Quantiles, Step};
use crate::sequence::FlowCounts;
use crate::sitters::SitterCounts;
use crate::storm::StormCounts;

/// A line on stdout.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The devices are there; nothing was sent yet.
    Ready {
        /// This process.
        pid: u32,
        /// Name of the first device's tap.
        tap: String,
        /// All queue pairs of all devices.
        pairs: Vec<PairFiles>,
    },
    /// How far the traffic has come, since the devices were opened.
    Progress {
        /// Seconds since this round began.
        seconds: f64,
        /// Round trips.
        round_trips: u64,
        /// Packets that vhost took from the transmit rings.
        tx_packets: u64,
        /// Packets that vhost put into the receive rings.
        rx_packets: u64,
    },
    /// A ring's mutex is held from now on.
    Held {
        /// `rx` or `tx`.
        ring: &'static str,
    },
    /// It is held no more.
    Freed,
    /// A round has ended, and no counter moves any more.
    Result(Box<Outcome>),
    /// What the sitters saw.
    Target {
        /// One for each system call.
        sitters: Vec<SitterCounts>,
        /// Calls of all of them.
        calls: u64,
        /// Failures of all of them.
        failures: u64,
        /// Signals sent to them and handled; none without a storm.
        signals: Option<StormCounts>,
    },
}

impl Event {
    /// Prints the line.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn print(&self) -> Result<()> {
        let mut line = serde_json::to_vec(self).context("cannot format a report")?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)
            .and_then(|()| out.flush())
            .context("cannot write to stdout")
    }
}

/// Where a queue pair is to be found.
#[derive(Debug, Clone, Serialize)]
pub struct PairFiles {
    /// Number of the device.
    pub device: u16,
    /// Name of its tap.
    pub tap: String,
    /// Queue of the tap.
    pub queue: u16,
    /// Descriptor of the vhost-net file.
    pub vhost_fd: i32,
    /// Descriptor of the tap's queue.
    pub tap_fd: i32,
}

/// Counts and times of one queue pair over some time.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Counts.
    #[serde(flatten)]
    pub counts: PairCounts,
    /// Guest to host.
    pub tx_flow: FlowCounts,
    /// Host to guest.
    pub rx_flow: FlowCounts,
    /// Round-trip times.
    pub latency_us: Quantiles,
    /// Gaps between bursts: from the last packet of one to the first of the
    /// next.
    pub gap_us: Quantiles,
}

/// One queue pair's part of a result.
#[derive(Debug, Clone, Serialize)]
pub struct PairOutcome {
    /// Where it is.
    #[serde(flatten)]
    pub files: PairFiles,
    /// Since the device was opened.
    #[serde(flatten)]
    pub total: Figures,
    /// The gaps of `gap_us`, eight steps to the octave.
    pub gap_histogram: Vec<Step>,
    /// Packets the host's socket had no room for.
    pub socket_drops: Option<u64>,
    /// This round alone.
    pub round: Figures,
}

/// A tap's own counters.
#[derive(Debug, Clone, Serialize)]
pub struct TapOutcome {
    /// Its name.
    pub tap: String,
    /// The counters; none when the kernel does not show them.
    pub counts: Option<LinkCounts>,
}

/// Sums over all queue pairs, since the devices were opened.
#[derive(Debug, Clone, Serialize)]
pub struct Totals {
    /// Counts.
    #[serde(flatten)]
    pub counts: PairCounts,
    /// Guest to host.
    pub tx_flow: FlowCounts,
    /// Host to guest.
    pub rx_flow: FlowCounts,
}

/// A result. Every counter is since the devices were opened, unless it
/// stands under `round`.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Mode of the traffic.
    pub mode: &'static str,
    /// Which round this was, from 1.
    pub number: u64,
    /// Length of this round's traffic.
    pub seconds: f64,
    /// Of this round.
    pub round_trips_per_s: f64,
    /// Packets per second from the guest in this round.
    pub tx_packets_per_s: f64,
    /// Packets per second to the guest in this round.
    pub rx_packets_per_s: f64,
    /// By device and queue.
    pub pairs: Vec<PairOutcome>,
    /// All pairs together.
    pub totals: Totals,
    /// By device.
    pub taps: Vec<TapOutcome>,
    /// What the sitters saw.
    pub sitters: Vec<SitterCounts>,
    /// Signals sent to them and handled; none without a storm.
    pub signals: Option<StormCounts>,
}
