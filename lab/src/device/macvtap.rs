//! A macvtap on one end of a veth pair.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::link::{ip, settle_udev, silence};

/// The veth pair below a macvtap; both go when it is dropped.
#[derive(Debug)]
pub(super) struct VethPair {
    /// The host's end, which gets the addresses.
    pub(super) host: String,
    /// The end that the macvtap sits on.
    lower: String,
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // Takes the other end and the macvtap along. There is nobody left
        // to tell of a failure.
        let _ = ip(&[format!("link del dev {}", self.host)]);
    }
}

/// Makes the macvtap `name` with the guest's MAC address, and returns what
/// it sits on and the file that opens it.
///
/// # Errors
/// What `ip` said, or that udev or devtmpfs made no file.
pub(super) fn create(name: &str, guest_mac: &str, mtu: u16) -> Result<(VethPair, PathBuf)> {
    let (host, lower) = (format!("{name}h"), format!("{name}l"));
    ip(&[format!("link add {host} type veth peer name {lower}")])?;
    let pair = VethPair { host, lower };
    let lower = &pair.lower;
    ip(&[
        format!("link set dev {lower} mtu {mtu}"),
        format!("link add link {lower} name {name} type macvtap mode bridge"),
    ])?;
    for device in [name, lower, &pair.host] {
        silence(device)?;
    }
    for device in [lower, &pair.host] {
        // A veth hands packets to whichever CPU the sender is on, so a
        // sender that moves would overtake itself. One CPU for all keeps
        // them in order.
        let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
        fs::write(&file, "1").with_context(|| format!("cannot write {file}"))?;
    }
    settle_udev();
    ip(&[
        format!("link set dev {name} address {guest_mac} mtu {mtu}"),
        format!("link set dev {lower} up"),
        format!("link set dev {name} up"),
    ])?;
    let index = fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))
        .with_context(|| format!("cannot read the index of {name}"))?;
    let file = PathBuf::from(format!("/dev/tap{}", index.trim()));
    let patience = Instant::now() + Duration::from_secs(5);
    while !file.exists() {
        if Instant::now() > patience {
            bail!("{} did not appear", file.display());
        }
        sleep(Duration::from_millis(5));
    }
    Ok((pair, file))
}
