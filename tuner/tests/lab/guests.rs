//! Guests that are not ours: DPDK's virtio-user and a real QEMU.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::module::Module;
use crate::support::{Queues, Stat, kernel_is, queues, run, total, tuner_json, until};

/// A process with its output in a file; killed when dropped.
struct Guest {
    child: Child,
    log: PathBuf,
}

impl Guest {
    fn start(mut command: Command, log: &str) -> Self {
        let log = Path::new("/tmp").join(log);
        let file = File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tx(found: &Queues) -> Value {
    let mut all = found.iter().filter(|((_, d), _)| d == "tx");
    all.next().unwrap().1.clone()
}

fn testpmd() -> Guest {
    let mut command = Command::new("dpdk-testpmd");
    command.args(["-l", "0-1", "--no-pci", "--no-huge", "-m", "300"]);
    command.arg("--vdev=virtio_user0,path=/dev/vhost-net,queues=1,queue_size=1024,iface=tap0");
    command.args(["--", "-i", "--forward-mode=txonly", "--txpkts=64"]);
    command.arg("--total-num-mbufs=16384");
    let guest = Guest::start(command, "testpmd.log");
    until("testpmd is ready", || guest.said().contains("testpmd>"));
    run("ip", &["link", "set", "tap0", "up"]);
    guest
}

#[test]
fn testpmd_is_named_measured_and_set() {
    let stat = Stat::start();
    let mut guest = testpmd();
    let list = queues(&tuner_json(&["list", "--json"]), &guest.pid());
    assert_eq!(list.len(), 2);
    for queue in list.values() {
        assert_eq!(queue["vmm"], "dpdk");
        assert_eq!(queue["vm"], "dpdk-testpmd");
        assert_eq!(queue["tap"], "tap0");
        assert_eq!(queue["ring_size"], 1024);
    }
    guest.say("start");
    until("testpmd sends", || {
        tx(&stat.queues(&guest.pid()))["packets"].as_u64() > Some(1000)
    });
    // Sets while it sends at full speed.
    for value in ["40", "0", "70"] {
        let set = tuner_json(&["set", &guest.pid(), "--busyloop-tx", value, "--json"]);
        assert_eq!(set["changes"][0]["after_us"].to_string(), value);
    }
    let before = total(&tx(&stat.queues(&guest.pid())), "packets");
    until("it still sends", || {
        total(&tx(&stat.queues(&guest.pid())), "packets") > before + 1000
    });
    assert!(guest.is_alive());
    guest.say("stop");
    // What it left in the ring is sent too; then all counts stand still.
    let mut last = 0;
    until("the ring is empty", || {
        let now = total(&tx(&stat.queues(&guest.pid())), "packets");
        std::mem::replace(&mut last, now) == now
    });
    let path = "/sys/class/net/tap0/statistics/rx_packets";
    let tap: u64 = std::fs::read_to_string(path)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // Each packet that left the ring arrived at the tap, which drops none of
    // them on that way.
    assert_eq!(last, tap);
}

/// Path from the environment, if the set-up made what it names.
fn given(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
}

fn ping(address: &str) -> bool {
    let status = Command::new("ping")
        .args(["-c", "1", "-W", "2", "-q", address])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap().success()
}

#[test]
fn a_qemu_guest_is_named_measured_and_set_and_keeps_its_ping() {
    // A VM inside an emulated VM takes minutes to boot: once is enough.
    if !kernel_is("6.12") {
        return;
    }
    let stat = Stat::start();
    run(
        "ip",
        &["tuntap", "add", "dev", "tap9", "mode", "tap", "vnet_hdr"],
    );
    run("ip", &["addr", "add", "10.79.0.1/24", "dev", "tap9"]);
    run("ip", &["link", "set", "tap9", "up"]);
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", "guest=lab-vm,debug-threads=on"]);
    command.args([
        "-machine",
        "q35",
        "-accel",
        "tcg",
        "-m",
        "256",
        "-nographic",
    ]);
    command.args(["-kernel", &given("VHOST_TUNER_GUEST_KERNEL")]);
    command.args(["-initrd", &given("VHOST_TUNER_GUEST_INITRD")]);
    command.args(["-append", "console=ttyS0 vt.ip=10.79.0.2/24"]);
    command.args([
        "-netdev",
        "tap,id=n0,ifname=tap9,script=no,downscript=no,vhost=on,poll-us=30",
        "-device",
        "virtio-net-pci,netdev=n0,romfile=",
    ]);
    let mut guest = Guest::start(command, "guest.log");
    let mut tries = 0;
    while !ping("10.79.0.2") {
        tries += 1;
        assert!(tries < 150 && guest.is_alive(), "the guest does not answer");
    }
    let list = queues(&tuner_json(&["list", "--json"]), &guest.pid());
    assert_eq!(list.len(), 2);
    for queue in list.values() {
        assert_eq!(queue["vm"], "lab-vm");
        assert_eq!(queue["vmm"], "qemu");
        assert_eq!(queue["tap"], "tap9");
        assert_eq!(queue["busyloop_timeout_us"], 30);
        assert!(queue["worker_tid"].is_u64());
    }
    let before = total(&tx(&stat.queues(&guest.pid())), "packets");
    let steady = Command::new("ping")
        .args(["-c", "40", "-i", "0.2", "-W", "5", "-q", "10.79.0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for value in ["100", "0", "200"] {
        let set = tuner_json(&[
            "set",
            "lab-vm",
            "--busyloop-rx",
            value,
            "--busyloop-tx",
            value,
            "--json",
        ]);
        for change in set["changes"].as_array().unwrap() {
            assert_eq!(change["after_us"].to_string(), value);
        }
    }
    let output = steady.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("40 received"), "{said}");
    assert!(guest.is_alive());
    let now = tx(&stat.queues(&guest.pid()));
    assert!(total(&now, "packets") >= before + 40, "{now}");
    assert!(total(&now, "polls") > 0, "{now}");
    drop(stat);
    keeps_its_ping_while_patched();
    assert!(guest.is_alive());
    drop(guest);
    run("ip", &["link", "del", "tap9"]);
}

/// The livepatch comes, is used, and goes, while the guest is pinged.
fn keeps_its_ping_while_patched() {
    let steady = Command::new("ping")
        .args(["-i", "0.3", "-W", "10", "-q", "10.79.0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let module = Module::livepatching();
    let set = tuner_json(&[
        "set",
        "lab-vm",
        "--tx-batched",
        "4",
        "--poll-peer",
        "off",
        "--json",
    ]);
    for change in set["changes"].as_array().unwrap() {
        assert_eq!(change["backend"], "module", "{change}");
    }
    module.revert();
    // SAFETY: a plain system call; the child is not reaped yet.
    unsafe { libc::kill(steady.id().cast_signed(), libc::SIGINT) };
    let output = steady.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut counts = said
        .lines()
        .filter(|line| line.contains("packets transmitted"))
        .flat_map(|line| line.split([' ', ',']))
        .filter_map(|word| word.parse::<u32>().ok());
    let (sent, received) = (counts.next().unwrap(), counts.next().unwrap());
    // The last one may have been on its way.
    assert!(sent > 5 && received + 1 >= sent, "{said}");
}
