//! Addresses, neighbours, and counters of network devices.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// Runs `ip -batch` on these lines.
///
/// # Errors
/// When `ip` is missing, or with what it said.
pub(super) fn ip(lines: &[String]) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ip (package iproute2)")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all((lines.join("\n") + "\n").as_bytes())
            .context("cannot write to ip")?;
    }
    let output = child.wait_with_output().context("cannot wait for ip")?;
    ensure!(
        output.status.success(),
        "ip failed at one of {lines:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Waits until udev has dealt with devices just made, where there is one.
///
/// It may give a new device another MAC address a moment after it appeared,
/// and so undo ours.
pub(super) fn settle_udev() {
    if Path::new("/run/udev/control").exists() {
        // Without udevadm, or when it takes too long, the first packets
        // will show whether the address stuck.
        let _ = Command::new("udevadm")
            .args(["settle", "--timeout=20"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// The MAC address that `name` has now.
#[must_use]
pub fn mac_address(name: &str) -> Option<[u8; 6]> {
    parse_mac(
        fs::read_to_string(format!("/sys/class/net/{name}/address"))
            .ok()?
            .trim(),
    )
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let mut mac = [0; 6];
    for place in &mut mac {
        *place = bytes.next()?.ok()?;
    }
    bytes.next().is_none().then_some(mac)
}

/// Turns IPv6 off on `name`, so that the kernel sends nothing of its own
/// through it. A kernel without IPv6 has nothing to turn off.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn silence(name: &str) -> Result<()> {
    let file = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    match fs::write(&file, "1") {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot write {file}"))
        }
        _ => Ok(()),
    }
}

/// Lines for [`ip`] that give `name` its addresses and the guest as a known
/// neighbour, and take it up.
pub(super) fn address_lines(
    name: &str,
    mtu: u16,
    (mac, ip): (&str, Ipv4Addr),
    (guest_mac, guest_ip): (&str, Ipv4Addr),
) -> Vec<String> {
    vec![
        format!("link set dev {name} address {mac} mtu {mtu}"),
        format!("addr add {ip}/24 dev {name}"),
        format!("link set dev {name} up"),
        format!("neigh replace {guest_ip} lladdr {guest_mac} dev {name} nud permanent"),
    ]
}

/// A MAC address as text.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A network device's own counters, as the host sees it: `rx` is from guest
/// to host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Packets from the guest.
    pub rx_packets: u64,
    /// Packets to the guest.
    pub tx_packets: u64,
    /// Packets from the guest that were dropped.
    pub rx_dropped: u64,
    /// Packets to the guest that were dropped, for want of room mostly.
    pub tx_dropped: u64,
    /// Packets from the guest that made no sense.
    pub rx_errors: u64,
}

impl LinkCounts {
    /// Reads the counters of `name`; none when it is not there.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        let folder = PathBuf::from(format!("/sys/class/net/{name}/statistics"));
        let figure = |file: &str| -> Option<u64> {
            fs::read_to_string(folder.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        Some(Self {
            rx_packets: figure("rx_packets")?,
            tx_packets: figure("tx_packets")?,
            rx_dropped: figure("rx_dropped")?,
            tx_dropped: figure("tx_dropped")?,
            rx_errors: figure("rx_errors")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_read_as_it_is_written() {
        let mac = [2, 0x56, 0xa, 0xff, 0, 1];
        assert_eq!(mac_text(mac), "02:56:0a:ff:00:01");
        assert_eq!(parse_mac(&mac_text(mac)), Some(mac));
        for text in [
            "",
            "02:56:0a:ff:00",
            "02:56:0a:ff:00:01:02",
            "02:56:0a:ff:00:xx",
        ] {
            assert_eq!(parse_mac(text), None, "{text}");
        }
    }
}
