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

/// A figure of a set, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Longest,
    Together,
    Span,
    Command,
}

impl Figure {
    pub(super) const ALL: [Self; 4] = [Self::Longest, Self::Together, Self::Span, Self::Command];

    /// As the table calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Longest => "longest",
            Self::Together => "together",
            Self::Span => "span",
            Self::Command => "command",
        }
    }

    /// Of one set.
    pub(super) fn of(self, operation: &Operation) -> f64 {
        match self {
            Self::Longest => operation.stops.longest / 1e3,
            Self::Together => operation.stops.together / 1e3,
            Self::Span => operation.stops.span / 1e3,
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

    /// By how much what `set` reports is off what the kernel's trace says, in
    /// milliseconds: the median without sign, and the worst.
    pub(super) fn off(&self, load: Load) -> Option<(f64, f64)> {
        let off: Vec<f64> = self
            .of(Way::Inject, load)
            .iter()
            .filter_map(|operation| Some(operation.done.reported? - operation.stops.asked?))
            .map(|off| off / 1e3)
            .collect();
        let worst = off
            .iter()
            .copied()
            .max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        let sizes: Vec<f64> = off.iter().map(|off| off.abs()).collect();
        Some((median(&sizes), worst))
    }
}
