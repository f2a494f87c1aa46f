//! Finding out why the kernel refused to let us trace a process.
//!
//! The kernel says `EPERM` for all reasons; which one it was is read from
//! procfs afterwards.

use std::fs;

use super::{InjectError, Refusal};
use crate::inventory::proc::{ProcStat, ProcStatus};

/// Bit of CAP_SYS_PTRACE.
const CAP_SYS_PTRACE: u64 = 1 << 19;

/// The error for a refused process.
pub(super) fn refused(pid: i32) -> InjectError {
    // A process on its way out is refused with EPERM, too.
    let ending = ProcStat::of_process(pid).map_or(true, |stat| stat.is_exiting());
    let (false, Ok(target)) = (ending, ProcStatus::of_process(pid)) else {
        return InjectError::Ended { pid };
    };
    let ours = ProcStatus::of_self().unwrap_or_default();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope = scope.and_then(|text| text.trim().parse().ok());
    InjectError::Refused {
        pid,
        why: reason(&target, &ours, scope.unwrap_or(0)),
    }
}

/// The reason, from the target's status, our own, and Yama's setting (0 where
/// there is no Yama).
fn reason(target: &ProcStatus, ours: &ProcStatus, yama: u32) -> Refusal {
    let capable = ours
        .capabilities
        .is_some_and(|set| set & CAP_SYS_PTRACE != 0);
    if let Some(tracer) = target.tracer {
        Refusal::Traced { tracer }
    } else if yama == 3 {
        Refusal::Yama { scope: yama }
    } else if capable {
        Refusal::SecurityModule
    } else if target.euid == ours.euid && yama > 0 {
        Refusal::Yama { scope: yama }
    } else {
        Refusal::NoCapability { owner: target.euid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(euid: u32, capabilities: u64, tracer: Option<i32>) -> ProcStatus {
        ProcStatus {
            euid: Some(euid),
            capabilities: Some(capabilities),
            tracer,
            ..ProcStatus::default()
        }
    }

    #[test]
    fn the_reason_that_bites_first_is_named() {
        let root = status(0, u64::MAX, None);
        let user = status(1000, 0, None);
        let cases = [
            (
                status(0, 0, Some(7)),
                &root,
                0,
                Refusal::Traced { tracer: 7 },
            ),
            (status(0, 0, None), &root, 3, Refusal::Yama { scope: 3 }),
            (status(0, 0, None), &root, 1, Refusal::SecurityModule),
            (status(1000, 0, None), &user, 1, Refusal::Yama { scope: 1 }),
            (
                status(64055, 0, None),
                &user,
                1,
                Refusal::NoCapability { owner: Some(64055) },
            ),
        ];
        for (target, ours, yama, expected) in cases {
            assert_eq!(reason(&target, ours, yama), expected);
            assert!(!expected.to_string().is_empty());
        }
    }
}
