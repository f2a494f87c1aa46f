//! Bursts from the guest, each with one update of the available index, and
//! a gap between them that is known to the microsecond.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::spin_until;
use crate::guest::Guest;
use crate::options::RunOptions;
use crate::pace::Pace;
use crate::packet::Kind;
use crate::wire::Stop;

/// How long vhost may take for one burst.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the host may take to catch up.
const CATCH_UP: Duration = Duration::from_secs(2);

pub(super) fn run(guest: &mut Guest, options: &RunOptions, seed: u64, stop: &Stop) -> Result<()> {
    let mean = Duration::from_secs_f64(options.gap_us / 1e6);
    let mut pace = Pace::new(mean, options.gap, seed);
    let mut left = options.goal().unwrap_or(u64::MAX);
    let mut all_used: Option<Instant> = None;
    while left > 0 && !stop.is_set() {
        let size = left.min(u64::from(options.burst));
        wait_for_room(guest, size)?;
        // Staged within the gap, so that the gap ends on time.
        for _ in 0..size {
            if guest.stage(Kind::Data).is_none() {
                bail!("no room in the ring for a burst of {size}");
            }
        }
        if let Some(then) = all_used {
            spin_until(then + pace.draw(), stop);
            guest.gaps.record(then.elapsed());
        }
        guest.nic.publish()?;
        guest.counters.tx.bursts.add(1);
        left -= size;
        let patience = Instant::now() + PATIENCE;
        while guest.nic.tx_outstanding() > 0 {
            if guest.nic.reap()? == 0 {
                std::hint::spin_loop();
                if Instant::now() > patience {
                    bail!("vhost did not send a burst within {PATIENCE:?}");
                }
            }
        }
        all_used = Some(Instant::now());
        // Within the gap; there is nothing but noise to receive.
        guest.receive(|_| {})?;
    }
    Ok(())
}

/// Waits until the host can take `size` more packets. That makes the gap
/// longer, which is recorded as it is.
fn wait_for_room(guest: &mut Guest, size: u64) -> Result<()> {
    let patience = Instant::now() + CATCH_UP;
    while guest.window.room(&guest.wire().tx) < size {
        let flow = &guest.wire().tx;
        let target = guest.window.target(flow, size);
        flow.received.wait(target, Duration::from_millis(20))?;
        if Instant::now() > patience {
            guest.forgive();
        }
    }
    Ok(())
}
