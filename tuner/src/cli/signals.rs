//! Ends a watching command on SIGINT and SIGTERM, so that its probes are
//! detached in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set once a signal has asked to stop.
pub(super) type StopFlag = Arc<AtomicBool>;

/// Has SIGINT and SIGTERM set a flag from now on. A second one ends the
/// process at once.
pub(super) fn stop_flag() -> io::Result<StopFlag> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Has every signal that would end or halt this process, and that can be
/// caught, set a flag and do nothing else.
pub(super) fn deferred() -> io::Result<StopFlag> {
    use signal_hook::consts::{
        SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1,
        SIGUSR2, SIGVTALRM,
    };
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [
        SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1,
        SIGUSR2, SIGVTALRM,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Sleeps up to `until`; false if it was asked to stop before.
pub(super) fn sleep_until(until: Instant, stop: &StopFlag) -> bool {
    const LOOK: Duration = Duration::from_millis(50);
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}
