//! All that was measured, in the order in which it was.

use super::{
    super::ratio::{Ratio, median},
    stops::Stops,
    target::Noticed,
    way::{Done, Way},
};

/// What the target does while it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Idle,
    Traffic,
}

impl Load {
    pub(super) const ALL: [Self; 2] = [Self::Idle, Self::Traffic];

    /// As the table calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Traffic => "load",
        }
    }
}

/// One set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) stops: Stops,
    pub(super) done: Done,
}

/// By how much `set` reports more than the kernel, as a share of the kernel's
/// time: the median of the rounds and the most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excess {
    pub(super) middle: f64,
    pub(super) most: f64,
}

impl Excess {
    /// What is allowed in the median.
    pub(super) const BOUND: f64 = 0.1;
}

/// A figure of a set, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Longest,
    Together,
    Span,
    Worker,
    Command,
}

impl Figure {
    pub(super) const ALL: [Self; 5] = [
        Self::Longest,
        Self::Together,
        Self::Span,
        Self::Worker,
        Self::Command,
    ];
    /// Those that the injection always has some of.
    pub(super) const COMPARED: [Self; 4] =
        [Self::Longest, Self::Together, Self::Span, Self::Command];

    /// As the table calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Longest => "longest",
            Self::Together => "together",
            Self::Span => "span",
            Self::Worker => "worker",
            Self::Command => "command",
        }
    }

    /// Of one set.
    pub(super) fn of(self, operation: &Operation) -> f64 {
        match self {
            Self::Longest => operation.stops.longest / 1e3,
            Self::Together => operation.stops.together / 1e3,
            Self::Span => operation.stops.span / 1e3,
            Self::Worker => operation.stops.worker / 1e3,
            Self::Command => operation.done.command.as_secs_f64() * 1e3,
        }
    }
}

/// The sets of all rounds, by way and by load.
#[derive(Default)]
pub(super) struct Measured {
    operations: [[Vec<Operation>; 2]; 3],
    noticed: [Vec<Noticed>; 3],
}

impl Measured {
    /// Takes a set.
    pub(super) fn push(&mut self, way: Way, load: Load, operation: Operation) {
        self.operations[way as usize][load as usize].push(operation);
    }

    /// Takes what the target noticed of a round's sets in this way.
    pub(super) fn noticed(&mut self, way: Way, noticed: Noticed) {
        self.noticed[way as usize].push(noticed);
    }

    /// The sets, a round each.
    pub(super) fn of(&self, way: Way, load: Load) -> &[Operation] {
        &self.operations[way as usize][load as usize]
    }

    /// What the target noticed, a round each.
    pub(super) fn all_noticed(&self, way: Way) -> &[Noticed] {
        &self.noticed[way as usize]
    }

    /// A figure, a round each.
    pub(super) fn figures(&self, way: Way, load: Load, figure: Figure) -> Vec<f64> {
        let operations = self.of(way, load).iter();
        operations.map(|operation| figure.of(operation)).collect()
    }

    /// How many times of what the injection takes, each round by itself.
    pub(super) fn ratio(&self, way: Way, load: Load, figure: Figure) -> Option<Ratio> {
        let ours = self.figures(Way::Inject, load, figure);
        let theirs = self.figures(way, load, figure);
        let ratios: Vec<f64> = theirs.iter().zip(&ours).map(|(a, b)| a / b).collect();
        Ratio::of(&ratios)
    }

    /// What `set` itself reports for how long a thread stood still, in
    /// milliseconds, a round each.
    pub(super) fn reported(&self, load: Load) -> Vec<f64> {
        let operations = self.of(Way::Inject, load).iter();
        let reported = operations.filter_map(|operation| operation.done.reported);
        reported.map(|reported| reported / 1e3).collect()
    }

    /// By how much that is more than what the kernel's trace says.
    pub(super) fn excess(&self, load: Load) -> Excess {
        let operations = self.of(Way::Inject, load).iter();
        let shares: Vec<f64> = operations
            .filter_map(|operation| {
                let asked = operation.stops.asked?;
                Some((operation.done.reported? - asked) / asked)
            })
            .collect();
        Excess {
            middle: median(&shares),
            most: shares.iter().copied().fold(f64::NAN, f64::max),
        }
    }
}
