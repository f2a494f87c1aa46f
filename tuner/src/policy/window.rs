//! A curve of gaps that forgets, and the time it was taken over.

use crate::model::cost::HalfLife;
use crate::model::{Curve, Grid};

/// Gaps of the recent past.
#[derive(Clone, Debug)]
pub(super) struct Window {
    curve: Curve,
    seconds: f64,
}

impl Window {
    pub(super) fn new(grid: &Grid) -> Self {
        Self {
            curve: Curve::new(grid),
            seconds: 0.0,
        }
    }

    /// Adds what happened in so many seconds.
    pub(super) fn add(&mut self, gaps: &Curve, seconds: f64, half_life: HalfLife) {
        let remains = half_life.remains(seconds);
        self.curve.decay(remains);
        self.curve.add(gaps);
        self.seconds = self.seconds * remains + seconds;
    }

    pub(super) fn curve(&self) -> &Curve {
        &self.curve
    }

    /// CPU time that a timeout, in nanoseconds, would spin away: a share of one
    /// core.
    pub(super) fn spin_share(&self, grid: &Grid, timeout_ns: f64) -> f64 {
        if self.seconds > 0.0 {
            self.curve.price(grid, timeout_ns).spin_ns / 1e9 / self.seconds
        } else {
            0.0
        }
    }
}
