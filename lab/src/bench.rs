//! All devices with their guests and peers, and the rounds they run.

mod crew;
mod watch;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use self::crew::Crew;
use self::watch::watch;
use crate::console::Console;
use crate::counters::{PairCounters, PairCounts};
use crate::device::Device;
use crate::guest::Guest;
use crate::hold::{Holder, Order};
use crate::host::HostPeer;
use crate::nic::Nic;
use crate::options::{Backend, Mode, RunOptions};
use crate::quantiles::Times;
use crate::report::{Event, Figures, Outcome, PairFiles, PairOutcome, TapOutcome, Totals};
use crate::sequence::FlowCounts;
use crate::sitters::Sitters;
use crate::storm::{Storm, Weather};
use crate::system::want_many_files;
use crate::traffic;
use crate::wire::{Progress, Stop, Wire};

/// How often late packets may be looked for after a round.
const SETTLE_TRIES: usize = 50;

/// A queue pair with everything that belongs to it.
#[derive(Debug)]
struct Pair {
    guest: Guest,
    /// None where the host's end has no address.
    peer: Option<HostPeer>,
    counters: Arc<PairCounters>,
    wires: Arc<Vec<Wire>>,
    files: PairFiles,
    /// Since the device was opened.
    latency: Times,
    gaps: Times,
    /// Gaps that the host's sender left in the last round.
    host_gaps: Times,
    /// The counts when the last round ended.
    earlier: (PairCounts, FlowCounts, FlowCounts),
}

/// Everything that is open. The order matters: files close before their
/// devices go.
#[derive(Debug)]
pub struct Bench {
    /// For the rings of the first pair.
    holder: Holder,
    pairs: Vec<Pair>,
    devices: Vec<Device>,
    sitters: Sitters,
    weather: Option<Weather>,
    options: RunOptions,
    round: u64,
}

impl Bench {
    /// Opens the devices, and starts the sitters.
    ///
    /// # Errors
    /// Which step failed, and how.
    pub fn open(options: &RunOptions) -> Result<Self> {
        want_many_files();
        let waker = options.thread_name("waker");
        let sitters =
            Sitters::start(&options.sitters, &waker).context("cannot start the sitters")?;
        let mut bench = Self {
            holder: Holder::default(),
            pairs: Vec::new(),
            devices: Vec::new(),
            sitters,
            weather: None,
            options: options.clone(),
            round: 0,
        };
        for index in 0..options.devices {
            bench.add_device(index)?;
        }
        if let Some(pair) = bench.pairs.first() {
            bench.holder = Holder::new(Arc::clone(&pair.guest.nic().pair().vhost));
        }
        // Last: setting devices up takes children, too, and they would count.
        let name = options.thread_name("storm");
        bench.weather = Weather::of(&bench.sitters, options.storm_us, name)?;
        Ok(bench)
    }

    fn add_device(&mut self, index: u16) -> Result<()> {
        let options = &self.options;
        let mut device = Device::open(options, index)?;
        let wires = (0..options.pairs)
            .map(|_| Wire::new())
            .collect::<std::io::Result<Vec<_>>>()
            .context("cannot make an eventfd")?;
        let wires = Arc::new(wires);
        // A macvtap's packets go through a queue of the network stack that
        // drops above 1000.
        let tx_window = match options.backend {
            Backend::Tap => options.tx_window,
            Backend::Macvtap => options.tx_window.min(512),
        };
        for pair in std::mem::take(&mut device.pairs) {
            let ends = pair.ends;
            let counters = Arc::new(PairCounters::default());
            let files = PairFiles {
                device: index,
                tap: device.tap.clone(),
                queue: ends.queue,
                vhost_fd: pair.vhost.fd(),
                tap_fd: pair.tap.as_raw_fd(),
            };
            let nic = Nic::new(pair, Arc::clone(&counters));
            let peer = (!options.bare)
                .then(|| HostPeer::open(Arc::clone(&wires), &ends, options.payload))
                .transpose()?;
            self.pairs.push(Pair {
                guest: Guest::new(
                    nic,
                    Arc::clone(&counters),
                    Arc::clone(&wires),
                    options.payload,
                    tx_window,
                ),
                peer,
                counters,
                wires: Arc::clone(&wires),
                files,
                latency: Times::default(),
                gaps: Times::default(),
                host_gaps: Times::default(),
                earlier: Default::default(),
            });
        }
        self.devices.push(device);
        Ok(())
    }

    /// The line that says what is there.
    #[must_use]
    pub fn ready(&self) -> Event {
        Event::Ready {
            pid: std::process::id(),
            tap: self.options.ifname.clone(),
            pairs: self.pairs.iter().map(|pair| pair.files.clone()).collect(),
        }
    }

    /// Makes the traffic once, and says what came of it.
    ///
    /// # Errors
    /// The first thing that failed in any thread.
    pub fn round(&mut self, console: &mut Console) -> Result<Outcome> {
        self.round += 1;
        let stop = Stop::new().context("cannot make an eventfd")?;
        let left = Progress::new().context("cannot make an eventfd")?;
        let start = Instant::now();
        let round = self.round;
        let options = &self.options;
        let holder = &mut self.holder;
        let storm = self.weather.as_ref().map(Weather::begin).transpose()?;
        let counters: Vec<_> = self
            .pairs
            .iter()
            .map(|pair| Arc::clone(&pair.counters))
            .collect();
        thread::scope(|scope| -> Result<()> {
            let mut threads = Vec::new();
            let mut joined = Ok(());
            for (number, pair) in (0..).zip(&mut self.pairs) {
                let crew = Crew {
                    options,
                    stop: &stop,
                    left: &left,
                    round,
                    seed: options.seed.wrapping_mul(1000).wrapping_add(number),
                };
                match crew.start(scope, pair) {
                    Ok(crew) => threads.extend(crew),
                    Err(e) => {
                        stop.set();
                        joined = Err(e);
                        break;
                    }
                }
            }
            let watched = watch(
                &counters,
                options,
                (console, holder),
                &stop,
                &left,
                threads.len(),
                start,
            );
            if watched.is_err() {
                stop.set();
            }
            for thread in threads {
                let result = thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a thread panicked")));
                joined = joined.and(result);
            }
            joined.and(watched)
        })?;
        storm.map_or(Ok(()), Storm::calm)?;
        self.settle()?;
        let seconds = self
            .pairs
            .iter()
            .map(|pair| pair.guest.active)
            .max()
            .unwrap_or_default();
        Ok(self.outcome(seconds))
    }

    /// Holds a ring of the first pair, or gives it back.
    ///
    /// # Errors
    /// As [`Holder::obey`].
    pub fn obey(&mut self, order: Order) -> Result<Event> {
        self.holder.obey(order)
    }

    /// Kicks every ring once for nothing.
    ///
    /// # Errors
    /// When a kick fails.
    pub fn kick_for_nothing(&self) -> Result<()> {
        self.pairs
            .iter()
            .try_for_each(|pair| pair.guest.nic().kick_for_nothing())
    }

    /// Sees to it that no counter moves any more.
    ///
    /// # Errors
    /// When a ring is held, and when a device does not come to rest.
    pub fn settle(&mut self) -> Result<()> {
        if self.holder.holds() {
            bail!("a ring is still held, so the traffic cannot come to its end");
        }
        for _ in 0..SETTLE_TRIES {
            let mut busy = false;
            for pair in &mut self.pairs {
                busy |= pair.guest.settle()?;
            }
            if busy {
                continue;
            }
            for pair in &mut self.pairs {
                busy |= pair.guest.rest()?;
            }
            if !busy {
                return Ok(());
            }
        }
        bail!("packets kept coming after the end of the traffic")
    }

    /// The result, with `active` as the length of the traffic.
    pub fn outcome(&mut self, active: Duration) -> Outcome {
        let mode = self.options.mode;
        let pairs: Vec<_> = self
            .pairs
            .iter_mut()
            .map(|pair| pair.outcome(mode))
            .collect();
        let mut totals = Totals {
            counts: PairCounts::default(),
            tx_flow: FlowCounts::default(),
            rx_flow: FlowCounts::default(),
        };
        let mut round = PairCounts::default();
        for pair in &pairs {
            totals.counts = totals.counts.plus(&pair.total.counts);
            totals.tx_flow.add(&pair.total.tx_flow);
            totals.rx_flow.add(&pair.total.rx_flow);
            round = round.plus(&pair.round.counts);
        }
        let seconds = active.as_secs_f64();
        let per_second = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        Outcome {
            mode: self.options.mode.name(),
            number: self.round,
            seconds,
            round_trips_per_s: per_second(round.round_trips),
            tx_packets_per_s: per_second(round.tx.packets),
            rx_packets_per_s: per_second(round.rx.packets),
            pairs,
            totals,
            taps: self
                .devices
                .iter()
                .map(|device| TapOutcome {
                    tap: device.tap.clone(),
                    counts: device.link_counts(),
                })
                .collect(),
            sitters: self.sitters.counts(),
            signals: self.weather.as_ref().map(Weather::counts),
        }
    }
}

impl Pair {
    fn outcome(&mut self, mode: Mode) -> PairOutcome {
        let wire = &self.wires[usize::from(self.files.queue)];
        let (latency, gaps) = self.guest.times();
        // Only one of the two ends makes gaps in any mode.
        let gaps = if traffic::host_sends(mode) {
            &self.host_gaps
        } else {
            gaps
        };
        let now = (self.counters.counts(), wire.tx.counts(), wire.rx.counts());
        let round = Figures {
            counts: now.0.since(&self.earlier.0),
            tx_flow: now.1.since(&self.earlier.1),
            rx_flow: now.2.since(&self.earlier.2),
            latency_us: latency.quantiles(),
            gap_us: gaps.quantiles(),
        };
        self.latency.merge(latency);
        self.gaps.merge(gaps);
        self.guest.clear_times();
        self.earlier = now;
        PairOutcome {
            files: self.files.clone(),
            total: Figures {
                counts: now.0,
                tx_flow: now.1,
                rx_flow: now.2,
                latency_us: self.latency.quantiles(),
                gap_us: self.gaps.quantiles(),
            },
            gap_histogram: self.gaps.steps(),
            socket_drops: self.peer.as_ref().and_then(HostPeer::drops),
            round,
        }
    }
}
