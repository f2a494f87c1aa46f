//! Phases of a vring's traffic, remembered by how their gaps are spread.
//!
//! Traffic that comes back is met with what fitted it the last time, before
//! there are gaps enough to learn it anew.

use super::window::Window;
use crate::model::cost::HalfLife;
use crate::model::{Curve, Grid};

/// Gaps by which a phase is recognised, at least.
const RECOGNISED_BY: f64 = 8.0;

/// How far the shares of so many gaps stray by chance: the largest difference,
/// exceeded once in a hundred times (Kolmogorov and Smirnov).
fn chance(gaps: f64) -> f64 {
    1.63 / gaps.sqrt()
}

#[derive(Clone, Debug)]
struct Phase {
    window: Window,
    /// When it was met last, by the number of the look.
    met: u64,
}

/// The phases of one vring.
#[derive(Clone, Debug)]
pub(super) struct Phases {
    phases: Vec<Phase>,
    present: usize,
    /// Gaps since the last time that a phase was recognised.
    pending: Curve,
    pending_s: f64,
    looks: u64,
    most: usize,
    distance: f64,
}

impl Phases {
    pub(super) fn new(grid: &Grid, most: usize, distance: f64) -> Self {
        Self {
            phases: Vec::new(),
            present: 0,
            pending: Curve::new(grid),
            pending_s: 0.0,
            looks: 0,
            most,
            distance,
        }
    }

    /// Takes in a look's gaps and finds their phase, or begins one in place of
    /// that which was not met for longest. Gaps too few for that wait for more.
    pub(super) fn add(
        &mut self,
        grid: &Grid,
        gaps: &Curve,
        seconds: f64,
        half_life: HalfLife,
        enough: f64,
    ) {
        self.looks += 1;
        self.pending.add(gaps);
        self.pending_s += seconds;
        let count = self.pending.gaps();
        if count < RECOGNISED_BY {
            return;
        }
        match self.recognise(self.distance + chance(count)) {
            Some(at) => self.present = at,
            None if count < enough => return,
            None => self.begin(grid),
        }
        let pending = std::mem::replace(&mut self.pending, Curve::new(grid));
        let seconds = std::mem::take(&mut self.pending_s);
        let phase = &mut self.phases[self.present];
        phase.window.add(&pending, seconds, half_life);
        phase.met = self.looks;
    }

    /// The phase of the pending gaps: the present one, if it may be that, else
    /// the nearest.
    fn recognise(&self, near: f64) -> Option<usize> {
        let distance = |phase: &Phase| phase.window.curve().distance(&self.pending);
        let present = self.phases.get(self.present)?;
        if distance(present) <= near {
            return Some(self.present);
        }
        let distances = self.phases.iter().map(distance).enumerate();
        let (at, nearest) = distances.min_by(|a, b| a.1.total_cmp(&b.1))?;
        (nearest <= near).then_some(at)
    }

    fn begin(&mut self, grid: &Grid) {
        let phase = Phase {
            window: Window::new(grid),
            met: self.looks,
        };
        if self.phases.len() < self.most {
            self.present = self.phases.len();
            self.phases.push(phase);
            return;
        }
        let oldest = self.phases.iter().enumerate().min_by_key(|(_, p)| p.met);
        self.present = oldest.map_or(0, |(at, _)| at);
        self.phases[self.present] = phase;
    }

    /// Gaps of the phase that the last look belonged to.
    pub(super) fn present(&self) -> Option<&Curve> {
        self.phases.get(self.present).map(|p| p.window.curve())
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.phases.len()
    }
}

#[cfg(test)]
mod tests {
    use tuner_common::hist::time_bucket;

    use super::*;
    use crate::model::TimeHistogram;

    fn gaps(grid: &Grid, us: u64, count: u64) -> Curve {
        let mut histogram = TimeHistogram::default();
        histogram.add(time_bucket(us * 1000), count);
        Curve::of(grid, &histogram)
    }

    fn add(phases: &mut Phases, grid: &Grid, us: u64, count: u64) {
        let half = HalfLife::seconds(60.0);
        phases.add(grid, &gaps(grid, us, count), 0.1, half, 30.0);
    }

    #[test]
    fn a_phase_that_comes_back_is_recognised_by_few_gaps() {
        let grid = Grid::new(&[10, 100, 400]);
        let mut phases = Phases::new(&grid, 4, 0.1);
        assert!(phases.present().is_none());
        add(&mut phases, &grid, 60, 1000);
        add(&mut phases, &grid, 5_000, 100);
        assert_eq!(phases.count(), 2);
        add(&mut phases, &grid, 60, 10);
        assert_eq!(phases.count(), 2);
        assert!(phases.present().unwrap().gaps() > 1000.0);
    }

    #[test]
    fn few_gaps_begin_no_phase() {
        let grid = Grid::new(&[10, 100, 400]);
        let mut phases = Phases::new(&grid, 4, 0.1);
        add(&mut phases, &grid, 60, 29);
        assert_eq!(phases.count(), 0);
        add(&mut phases, &grid, 60, 1000);
        add(&mut phases, &grid, 5_000, 20);
        assert_eq!(phases.count(), 1);
    }

    #[test]
    fn few_at_a_time_begin_one_together() {
        let grid = Grid::new(&[10, 100, 400]);
        let mut phases = Phases::new(&grid, 4, 0.1);
        add(&mut phases, &grid, 60, 1000);
        for _ in 0..3 {
            add(&mut phases, &grid, 5_000, 10);
        }
        assert_eq!(phases.count(), 2);
        assert!(phases.present().unwrap().gaps() < 31.0);
    }

    #[test]
    fn of_too_many_the_one_longest_unmet_is_forgotten() {
        let grid = Grid::new(&[10, 20, 50, 100, 400]);
        let mut phases = Phases::new(&grid, 2, 0.1);
        for us in [5, 15, 5, 300] {
            add(&mut phases, &grid, us, 100);
        }
        assert_eq!(phases.count(), 2);
        add(&mut phases, &grid, 5, 10);
        assert!(phases.present().unwrap().gaps() > 200.0, "still known");
    }
}
