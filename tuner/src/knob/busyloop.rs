//! Sets busyloop timeouts on a stock vhost_net: by an ioctl run inside the
//! process that owns the device, read back from kernel memory.

use std::fmt;
use std::time::{Duration, Instant};

use super::inject::{self, Call, InjectError, Limits, Outcome, Target};
use crate::inventory::Device;
use crate::inventory::device::direction_name;
use crate::inventory::proc::{ProcStat, ProcStatus};
use crate::probe::{DeviceLister, DeviceRecord, ProbeError};

/// Longest timeout that is set without being forced: the kernel has no bound of
/// its own, and a worker that spins for longer than this only burns its CPU.
pub const LONGEST_US: u32 = 10_000;
/// Longest timeout that is set at all. A worker that spins holds its ring, and
/// whoever sets the ring by injection then waits for it, with a thread of the
/// VM's process standing still.
pub const LONGEST_FORCED_US: u32 = 1_000_000;

/// For how long a fit thread is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is asked for a device; none leaves a direction alone. In the kernel's
/// microseconds (1.024 µs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// For the ring that the guest receives on.
    pub rx: Option<u32>,
    /// For the ring that the guest sends on.
    pub tx: Option<u32>,
}

impl Change {
    /// What is asked for a direction.
    #[must_use]
    pub fn of(self, direction: u32) -> Option<u32> {
        if direction == tuner_common::queue::RX {
            self.rx
        } else {
            self.tx
        }
    }

    /// What is asked, by direction.
    fn asked(self) -> Vec<(u32, u32)> {
        [0, 1]
            .into_iter()
            .filter_map(|direction| Some((direction, self.of(direction)?)))
            .collect()
    }
}

/// One ring that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingChange {
    /// 0 for RX, 1 for TX.
    pub direction: u32,
    /// What was set before.
    pub before: u32,
    /// What the kernel has now.
    pub after: u32,
}

/// What a set did to one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Rings that were asked for.
    pub rings: Vec<RingChange>,
    /// How long a thread of the owner stood still, in nanoseconds.
    pub stopped_ns: u64,
    /// Which thread.
    pub tid: i32,
}

/// Why a device was not set. Whatever the reason, its rings have the values
/// they had, unless the text says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// Only the owner may change the rings, and it is not known.
    #[error("{0} is owned by no process that can be seen, so nobody may change its rings")]
    NoOwner(String),
    /// The call could not be made.
    #[error("{what} was not set: {why}")]
    Inject {
        /// The device.
        what: String,
        /// Why.
        why: InjectError,
    },
    /// The kernel refused the call.
    #[error("{what} was not set: the kernel refused it for the {direction} ring: {why}")]
    Refused {
        /// The device.
        what: String,
        /// Which ring.
        direction: &'static str,
        /// What it said.
        why: std::io::Error,
    },
    /// The device is gone.
    #[error("{0} ended while it was being set")]
    Ended(String),
    /// The kernel has another value than the one set.
    #[error(
        "{what}: the kernel has {found} for the {direction} ring after {wanted} was set; \
         somebody else is setting it too"
    )]
    Different {
        /// The device.
        what: String,
        /// Which ring.
        direction: &'static str,
        /// What was set.
        wanted: u32,
        /// What is there.
        found: u32,
    },
    /// The value could not be read back.
    #[error("{what} was set, but could not be read back: {why}")]
    Unread {
        /// The device.
        what: String,
        /// Why.
        why: Box<ProbeError>,
    },
}

/// How a device is called in messages.
pub(super) struct Name<'a>(pub(super) &'a Device);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.0;
        write!(f, "{} ({}:{}", device.vm.name, device.pid, device.fd)?;
        match &device.tap {
            Some(tap) => write!(f, ", {tap})"),
            None => f.write_str(")"),
        }
    }
}

/// Sets both directions of a device or neither, and reads them back.
///
/// # Errors
/// See [`SetError`].
pub fn set(device: &Device, change: Change, lister: &mut DeviceLister) -> Result<Report, SetError> {
    let stop = make_calls(device, change)?;
    let records = lister.list().map_err(|why| SetError::Unread {
        what: Name(device).to_string(),
        why: Box::new(why),
    })?;
    Ok(Report {
        rings: check(device, change, &records)?,
        stopped_ns: stop.ns,
        tid: stop.tid,
    })
}

/// For how long a thread stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Nanoseconds.
    pub ns: u64,
    /// The thread.
    pub tid: i32,
}

/// Has the owner make the calls. Where the kernel refuses one, those before it
/// are undone to what `device` says was set.
pub(super) fn make_calls(device: &Device, change: Change) -> Result<Stop, SetError> {
    let name = || Name(device).to_string();
    let (Some(start_time), true) = (device.start_time, device.owner_known) else {
        return Err(SetError::NoOwner(name()));
    };
    let (Ok(pid), Ok(fd)) = (i32::try_from(device.pid), i32::try_from(device.fd)) else {
        return Err(SetError::NoOwner(name()));
    };
    let asked = change.asked();
    let calls: Vec<Call> = asked
        .iter()
        .map(|(direction, value)| {
            let before = device.rings[*direction as usize].ring.timeout;
            inject::set_busyloop(fd, *direction, *value, Some(before)).on("/dev/vhost-net")
        })
        .collect();
    let target = Target { pid, start_time };
    let outcome = call(&target, &calls).map_err(|why| {
        // A process that is being killed first loses its threads, then itself:
        // in between there is nobody left to make the call.
        if matches!(why, InjectError::Ended { .. }) || is_ending(pid) {
            SetError::Ended(name())
        } else {
            SetError::Inject { what: name(), why }
        }
    })?;
    if let Some((at, why)) = outcome.failure() {
        return Err(SetError::Refused {
            what: name(),
            direction: asked.get(at).map_or("?", |(d, _)| direction_name(*d)),
            why,
        });
    }
    Ok(Stop {
        ns: outcome.stopped_ns,
        tid: outcome.tid,
    })
}

/// Makes the calls, again and again for a while where no thread is fit for it:
/// one that starts another process or waits for a disk is so for an instant
/// only.
fn call(target: &Target, calls: &[Call]) -> Result<Outcome, InjectError> {
    let limits = Limits::default();
    let until = Instant::now() + PATIENCE;
    loop {
        match inject::ioctls_in(target, calls, &limits) {
            Err(InjectError::NoThread { .. })
                if Instant::now() < until && !is_ending(target.pid) =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

/// True for a process that has ended or is about to.
fn is_ending(pid: i32) -> bool {
    let exiting = ProcStat::of_process(pid).is_ok_and(|stat| stat.is_exiting());
    let killed = ProcStatus::of_process(pid).is_ok_and(|status| status.is_killed());
    exiting || killed || !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether the kernel has what was set, as read afterwards.
pub(super) fn check(
    device: &Device,
    change: Change,
    records: &[DeviceRecord],
) -> Result<Vec<RingChange>, SetError> {
    let name = || Name(device).to_string();
    let record = records
        .iter()
        .find(|r| r.net == device.net && r.pid == device.pid && r.fd == device.fd)
        .ok_or_else(|| SetError::Ended(name()))?;
    let ring = |(direction, wanted): (u32, u32)| {
        let found = record.rings[direction as usize].timeout;
        if found != wanted {
            return Err(SetError::Different {
                what: name(),
                direction: direction_name(direction),
                wanted,
                found,
            });
        }
        Ok(RingChange {
            direction,
            before: device.rings[direction as usize].ring.timeout,
            after: found,
        })
    };
    change.asked().into_iter().map(ring).collect()
}
