//! A guest with a whole network stack: a network namespace, whose packets
//! DPDK's testpmd carries between a veth and vhost_net.

use std::{net::Ipv4Addr, path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::{
    super::{process::Process, worker},
    session::{STACK_CPU, WORKER_CPU},
};
use crate::command;

/// The namespace.
pub(super) const GUEST: &str = "headline";
/// vhost_net's tap.
pub(super) const TAP: &str = "tap0";
/// The guest's address.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const HOST_ADDRESS: &str = "10.78.0.1/24";
/// The veth's ends: testpmd's and the guest's.
const VETH: [&str; 2] = ["headline0", "headline1"];
/// What would have the stacks exchange something else than packets of the
/// network's size, with sums in them.
const OFFLOADS: &str = "rx off tx off sg off tso off gso off gro off";

/// The guest, the veth and testpmd; dropped, all of it goes.
pub(super) struct Bridge {
    testpmd: Process,
    // After testpmd.
    _guest: Guest,
}

impl Bridge {
    /// Builds it, and waits until the guest answers.
    pub(super) fn build() -> Result<Self> {
        let guest = Guest::make()?;
        // Its first thread, on processor 0, only waits for its input.
        let mut testpmd = Process::start(
            Command::new("dpdk-testpmd")
                .args(["-l", "0-1", "--no-pci", "--no-huge", "-m", "300"])
                .arg(format!(
                    "--vdev=virtio_user0,path=/dev/vhost-net,queues=1,queue_size=1024,iface={TAP}"
                ))
                .arg(format!("--vdev=net_af_packet0,iface={}", VETH[0]))
                .args(["--", "-i", "--auto-start", "--forward-mode=io"])
                .arg("--total-num-mbufs=16384"),
        )?;
        testpmd.wait("its tap appears", || {
            Path::new("/sys/class/net").join(TAP).exists()
        })?;
        run(&format!("ip addr add {HOST_ADDRESS} dev {TAP}"))?;
        run(&format!("ip link set {TAP} up"))?;
        run(&format!("ethtool -K {TAP} {OFFLOADS}"))?;
        let ping = format!("ping -q -c 1 -W 1 {ADDRESS}");
        testpmd.wait("the guest answers", || run(&ping).is_ok())?;
        worker::pin_workers(testpmd.pid(), WORKER_CPU)?;
        Ok(Self {
            testpmd,
            _guest: guest,
        })
    }

    /// testpmd, which owns the device.
    pub(super) fn pid(&self) -> u32 {
        self.testpmd.pid()
    }

    /// That it is still there.
    pub(super) fn check(&mut self) -> Result<()> {
        self.testpmd.check()
    }

    /// TCP from the host to the guest: both ends of it.
    pub(super) fn iperf3(arguments: &[&str]) -> Result<Vec<Process>> {
        let ours = format!("taskset -c {STACK_CPU} iperf3");
        let in_guest = format!("ip netns exec {GUEST}");
        let mut server = Process::start(&mut words(&format!("{in_guest} {ours} -s")))?;
        let listening = format!("{in_guest} ss -Hltn");
        server.wait("it listens", || {
            run(&listening).is_ok_and(|list| list.contains(":5201"))
        })?;
        let mut client = words(&format!("{ours} -c {ADDRESS} -t 86400"));
        let client = Process::start(client.args(arguments))?;
        Ok(vec![client, server])
    }
}

/// The namespace and the veth.
struct Guest;

impl Guest {
    fn make() -> Result<Self> {
        let made = Self;
        let [outer, inner] = VETH;
        for line in [
            format!("ip netns add {GUEST}"),
            format!("ip link add {outer} type veth peer name {inner}"),
            format!("ip link set {inner} netns {GUEST}"),
            format!("ip -n {GUEST} addr add {ADDRESS}/24 dev {inner}"),
            format!("ip -n {GUEST} link set {inner} up"),
            format!("ip link set {outer} up"),
            format!("ethtool -K {outer} {OFFLOADS}"),
            format!("ip netns exec {GUEST} ethtool -K {inner} {OFFLOADS}"),
        ] {
            run(&line).context("make a guest of a network namespace")?;
        }
        Ok(made)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // What was not made cannot be removed.
        let _ = run(&format!("ip netns del {GUEST}"));
        let _ = run(&format!("ip link del {}", VETH[0]));
    }
}

/// A line without anything to quote.
fn words(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

fn run(line: &str) -> Result<String> {
    command::output(&mut words(line))
}
