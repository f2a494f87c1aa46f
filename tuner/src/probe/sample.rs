//! Raw counters at one instant.

use std::collections::BTreeMap;

use tuner_common::queue::{Lost, Queue};

/// Raw counters of one queue.
#[derive(Clone, Debug)]
pub struct QueueSample(pub Box<Queue>);

/// All raw counters at one instant.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// By address of the `struct vhost_net` and direction.
    pub queues: BTreeMap<(u64, u32), QueueSample>,
    /// Events that could be counted for no queue.
    pub lost: Lost,
    /// What each program cost so far.
    pub programs: Vec<ProgramCost>,
}

/// What the kernel accounts of one program. Run time and count stand still
/// unless BPF statistics are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramCost {
    /// Name of the program.
    pub program: String,
    /// Time in it, in nanoseconds.
    pub run_ns: u64,
    /// How often it ran.
    pub runs: u64,
    /// How often it was not run because a program was running already.
    pub missed: u64,
}

impl ProgramCost {
    /// Reads the text of a program's fdinfo; what is not there counts as zero.
    #[must_use]
    pub fn parse(program: &str, text: &str) -> Self {
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| key.trim() == name)
                .and_then(|(_, value)| value.trim().parse().ok())
                .unwrap_or(0)
        };
        Self {
            program: program.to_owned(),
            run_ns: field("run_time_ns"),
            runs: field("run_cnt"),
            missed: field("recursion_misses"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_fdinfo_is_read() {
        let text = "pos:\t0\nflags:\t02000002\nprog_type:\t2\nrun_time_ns:\t1234\nrun_cnt:\t56\n\
                    recursion_misses:\t7\n";
        let cost = ProgramCost::parse("tx_enter", text);
        assert_eq!((cost.run_ns, cost.runs, cost.missed), (1234, 56, 7));
    }

    #[test]
    fn an_older_kernels_fdinfo_lacks_fields_and_reads_as_zero() {
        assert_eq!(ProgramCost::parse("x", "").runs, 0);
    }
}
