//! The command line.

use std::net::Ipv4Addr;
use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::pace::Spread;
use crate::packet::{HEADERS, MAX_QUEUES, MIN_PAYLOAD};
use crate::sitters::Call;

/// A virtio-net guest in one process, on /dev/vhost-net, with traffic that
/// is counted exactly.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Open devices and make traffic; speaks JSON lines on stdout.
    Run(Box<RunOptions>),
    /// Only sit in system calls and report returns that should not be.
    Target(TargetOptions),
}

/// The traffic to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Round trips: guest asks, host answers.
    Echo,
    /// Guest to host as fast as it goes.
    Txflood,
    /// Host to guest as fast as it goes without drops.
    Rxflood,
    /// Both floods at once.
    Bidir,
    /// Bursts from the guest with a known gap between them.
    Txburst,
    /// Bursts from the host with a known gap between them.
    Rxburst,
    /// Guest to host at full rate, then silence, in turns.
    Onoff,
    /// No traffic.
    Idle,
}

impl Mode {
    /// The name as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Txflood => "txflood",
            Self::Rxflood => "rxflood",
            Self::Bidir => "bidir",
            Self::Txburst => "txburst",
            Self::Rxburst => "rxburst",
            Self::Onoff => "onoff",
            Self::Idle => "idle",
        }
    }
}

/// What the device's packets go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// A tap.
    Tap,
    /// A macvtap on one end of a veth pair. One queue pair only.
    Macvtap,
}

/// An IPv4 network, written like 10.77.0.0/16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net(Ipv4Addr);

impl Net {
    /// Host's and guest's address on device `index`: .1 and .2 of the
    /// index-th /24. From 256 on they are beyond the network, and only good for
    /// telling devices apart.
    #[must_use]
    pub fn pair(self, index: u16) -> (Ipv4Addr, Ipv4Addr) {
        let network = u32::from(self.0).wrapping_add(u32::from(index) << 8);
        (Ipv4Addr::from(network | 1), Ipv4Addr::from(network | 2))
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let net = text
            .strip_suffix("/16")
            .and_then(|address| address.parse::<Ipv4Addr>().ok())
            .ok_or("expected an IPv4 network with /16, like 10.77.0.0/16")?;
        if net.octets()[2..] != [0, 0] {
            return Err("the last two numbers of a /16 network must be 0".to_owned());
        }
        Ok(Self(net))
    }
}

/// Options of `vhost-lab run`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Traffic to make
    #[arg(long, value_enum, default_value = "echo")]
    pub mode: Mode,
    /// Packets per queue and direction; with echo, round trips per queue
    /// [default: 10000, unless --seconds is given]
    #[arg(long, conflicts_with = "seconds")]
    pub packets: Option<u64>,
    /// Stop making traffic after this many seconds
    #[arg(long)]
    pub seconds: Option<f64>,

    /// Queue pairs per device
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub pairs: u16,
    /// Devices, each with its own tap (IFNAME, IFNAME1, IFNAME2, ...); with
    /// addresses at most 200
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub devices: u16,
    /// Idle: leave the taps down and without addresses
    #[arg(long)]
    pub bare: bool,
    /// Open descriptors of /dev/vhost-net to use, one for each queue pair of
    /// all devices, instead of opening it
    #[arg(long, value_delimiter = ',', value_name = "FD")]
    pub vhost_fd: Vec<i32>,
    /// What the packets go through
    #[arg(long, value_enum, default_value = "tap")]
    pub backend: Backend,
    /// Name of the tap
    #[arg(long, default_value = "vlab0", value_parser = interface_name)]
    pub ifname: String,
    /// Network to take addresses from, a /24 per device
    #[arg(long, default_value = "10.77.0.0/16")]
    pub net: Net,
    /// Descriptors per ring
    #[arg(long, default_value_t = 256)]
    pub ring_size: u16,
    /// Negotiate VIRTIO_RING_F_EVENT_IDX
    #[arg(long)]
    pub event_idx: bool,
    /// Negotiate VIRTIO_NET_F_MRG_RXBUF
    #[arg(long)]
    pub mergeable: bool,
    /// Bytes per receive buffer [default: as many as a frame needs]
    #[arg(long, requires = "mergeable")]
    pub rx_buffer: Option<usize>,
    /// MTU of the tap in bytes
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=65_000))]
    pub mtu: u16,
    /// Bytes the tap's socket may hold in flight [default: unlimited]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub sndbuf: Option<i32>,
    /// Initial busyloop timeout of the receive rings, in the kernel's unit
    /// of 1.024 µs
    #[arg(long, value_name = "US")]
    pub busyloop_rx: Option<u32>,
    /// Initial busyloop timeout of the transmit rings, in the kernel's unit
    /// of 1.024 µs
    #[arg(long, value_name = "US")]
    pub busyloop_tx: Option<u32>,

    /// UDP payload in bytes
    #[arg(long, default_value_t = 64)]
    pub payload: usize,
    /// Echo: questions in flight per queue pair
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub outstanding: u16,
    /// Echo: pause before the next question, mean in µs
    #[arg(long, default_value_t = 0.0)]
    pub think_us: f64,
    /// How think times are spread
    #[arg(long, value_enum, default_value = "fixed")]
    pub think: Spread,
    /// Packets the host may be ahead of the guest's receiver, per queue
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    pub window: u64,
    /// Packets the guest may be ahead of the host's receiver, per queue
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub tx_window: u64,
    /// Floods: packets the guest publishes with one update of the index
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub publish: u16,
    /// Bursts: packets in one burst
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub burst: u16,
    /// Bursts: gap from the last packet of one to the first of the next,
    /// mean in µs
    #[arg(long, default_value_t = 100.0)]
    pub gap_us: f64,
    /// How gaps are spread
    #[arg(long, value_enum, default_value = "fixed")]
    pub gap: Spread,
    /// Onoff: length of the traffic in ms
    #[arg(long, default_value_t = 10.0)]
    pub on_ms: f64,
    /// Onoff: length of the silence in ms
    #[arg(long, default_value_t = 10.0)]
    pub off_ms: f64,
    /// Seed of think times and gaps
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Wait for a line "go" on stdin before making traffic
    #[arg(long)]
    pub wait_go: bool,
    /// Keep the devices open after the result until a line or the end of
    /// stdin; a line "go" makes the same traffic once more
    #[arg(long)]
    pub hold: bool,
    /// Print a progress line every so many ms
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub report_ms: Option<u64>,
    /// Threads that sit in these system calls meanwhile
    #[arg(long, value_enum, value_delimiter = ',')]
    pub sitters: Vec<Call>,
    /// Send the sitters signals of four kinds, with a pause of so many µs, and
    /// count their handlers
    #[arg(long, value_name = "US", requires = "sitters")]
    pub storm_us: Option<u32>,
    /// Name all other threads as those of vCPUs, which an injection takes last
    #[arg(long, requires = "sitters")]
    pub vcpu_names: bool,
}

fn interface_name(text: &str) -> Result<String, String> {
    // Three characters are kept for suffixes: IFNAMSIZ is 16 with its NUL.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=12).contains(&text.len()) && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 12 letters, digits, '-', '_' or '.'".to_owned())
    }
}

impl RunOptions {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// Says what does not fit together.
    pub fn check(&self) -> Result<()> {
        let most = usize::from(self.mtu) - (HEADERS - 14);
        ensure!(
            (MIN_PAYLOAD..=most).contains(&self.payload),
            "--payload must be from {MIN_PAYLOAD} to {most} with an MTU of {}",
            self.mtu
        );
        ensure!(
            self.ring_size.is_power_of_two() && (2..=4096).contains(&self.ring_size),
            "--ring-size must be a power of two from 2 to 4096"
        );
        ensure!(
            self.mode != Mode::Txburst || self.burst <= self.ring_size,
            "--burst must fit into the ring of {} descriptors",
            self.ring_size
        );
        ensure!(
            self.backend == Backend::Tap || self.pairs == 1,
            "a macvtap has one queue pair here: it spreads flows by their hash"
        );
        ensure!(
            self.rx_buffer
                .is_none_or(|bytes| (64..=1 << 20).contains(&bytes)),
            "--rx-buffer must be from 64 to 1048576"
        );
        ensure!(
            !self.bare || (self.mode == Mode::Idle && self.backend == Backend::Tap),
            "--bare is for --mode idle on taps: no packet would get anywhere"
        );
        ensure!(
            self.bare || self.devices <= 200,
            "there are addresses for 200 devices: more need --bare"
        );
        let pairs = usize::from(self.devices) * usize::from(self.pairs);
        ensure!(
            self.vhost_fd.is_empty() || self.vhost_fd.len() == pairs,
            "--vhost-fd must name {pairs} descriptors, one for each queue pair"
        );
        for (name, value) in [
            ("--think-us", self.think_us),
            ("--gap-us", self.gap_us),
            ("--on-ms", self.on_ms),
            ("--off-ms", self.off_ms),
            ("--seconds", self.seconds.unwrap_or(0.0)),
        ] {
            ensure!(
                (0.0..=1e9).contains(&value),
                "{name} must be from 0 to 1000000000"
            );
        }
        debug_assert!(self.pairs <= MAX_QUEUES);
        Ok(())
    }

    /// Name of a thread that is no sitter.
    #[must_use]
    pub fn thread_name(&self, role: &str) -> String {
        thread_name(self.vcpu_names, role)
    }

    /// Packets per queue and direction to make; none without a limit.
    #[must_use]
    pub fn goal(&self) -> Option<u64> {
        match (self.packets, self.seconds) {
            (Some(packets), _) => Some(packets),
            (None, Some(_)) => None,
            (None, None) => Some(10_000),
        }
    }
}

/// Options of `vhost-lab target`.
#[derive(Debug, Clone, Args)]
pub struct TargetOptions {
    /// System calls to sit in, a thread for each
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    pub syscall: Vec<Call>,
    /// Send these threads signals of four kinds, with a pause of so many µs, and
    /// count their handlers
    #[arg(long, value_name = "US")]
    pub storm_us: Option<u32>,
    /// Name all other threads as those of vCPUs, which an injection takes last
    #[arg(long)]
    pub vcpu_names: bool,
    /// Stop after this many seconds [default: at the end of stdin]
    #[arg(long)]
    pub seconds: Option<f64>,
}

fn thread_name(as_vcpu: bool, role: &str) -> String {
    if as_vcpu {
        format!("vcpu-{role}")
    } else {
        role.to_owned()
    }
}

impl TargetOptions {
    /// Name of a thread that is no sitter.
    #[must_use]
    pub fn thread_name(&self, role: &str) -> String {
        thread_name(self.vcpu_names, role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(arguments: &[&str]) -> Result<RunOptions> {
        let all = ["vhost-lab", "run"].iter().chain(arguments);
        match Cli::try_parse_from(all)?.command {
            Command::Run(options) => {
                options.check()?;
                Ok(*options)
            }
            Command::Target(_) => unreachable!(),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_number_of_packets_is_the_default_limit() {
        assert_eq!(run(&[]).unwrap().goal(), Some(10_000));
        assert_eq!(run(&["--seconds", "2"]).unwrap().goal(), None);
        assert_eq!(run(&["--packets", "5"]).unwrap().goal(), Some(5));
        assert!(run(&["--packets", "5", "--seconds", "2"]).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for arguments in [
            &["--payload", "47"][..],
            &["--payload", "1473"],
            &["--ring-size", "100"],
            &["--mode", "txburst", "--burst", "257"],
            &["--backend", "macvtap", "--pairs", "2"],
            &["--pairs", "9"],
            &["--net", "10.77.0.0/24"],
            &["--net", "10.77.1.0/16"],
            &["--ifname", "a/b"],
            &["--ifname", "much-too-long-name"],
            &["--gap-us", "-1"],
            &["--gap-us", "NaN"],
            &["--bare"],
            &["--bare", "--mode", "idle", "--backend", "macvtap"],
            &["--devices", "201"],
            &["--vhost-fd", "5,6"],
        ] {
            assert!(run(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn addresses_follow_the_device() {
        let net: Net = "10.9.0.0/16".parse().unwrap();
        assert_eq!(
            net.pair(3),
            (Ipv4Addr::new(10, 9, 3, 1), Ipv4Addr::new(10, 9, 3, 2))
        );
        assert_eq!(net.pair(999).0, Ipv4Addr::new(10, 12, 231, 1));
    }
}
