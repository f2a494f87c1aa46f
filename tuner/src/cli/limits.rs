//! How many files this process may have open.

/// Lets this process have as many open files as it may. Two sockets are open
/// for each network namespace that a tap is in, and many systems begin with a
/// limit of 1024.
pub(super) fn raise_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes to a local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: reads a local. A limit that stays as it was is said by what then
    // cannot be opened.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_may_be() {
        raise_open_files();
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: writes to a local.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        assert_eq!(result, 0);
        assert_eq!(limit.rlim_cur, limit.rlim_max);
    }
}
