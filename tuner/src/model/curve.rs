//! What a busyloop timeout costs, for every timeout at once.
//!
//! A vring that ran dry waits for work for a *gap*. With timeout T the worker
//! spins for `min(gap, T)`, and is woken if the gap is longer. So
//!
//! ```text
//! cost(T) = Σ min(gap, T)  +  w · #(gap > T)
//! ```
//!
//! where `w` is what one wake-up is worth in time spun. Gaps are measured
//! whatever the timeout is, so one histogram prices all timeouts.
//!
//! Of the gaps between two neighbouring timeouts of a [`Grid`] a [`Curve`] keeps
//! the number, the sum and the sum of squares. That is enough for the cost of
//! any timeout and for how sure a difference between two of them is.

use tuner_common::hist::{TIME_BUCKETS, time_bucket_high_ns, time_bucket_low_ns};

use super::TimeHistogram;

/// The kernel's unit of busyloop timeouts, in nanoseconds.
pub const UNIT_NS: u64 = 1024;

/// A busyloop timeout in the kernel's unit, as nanoseconds.
#[must_use]
pub fn timeout_ns(timeout: u32) -> f64 {
    (u64::from(timeout) * UNIT_NS) as f64
}

/// Timeouts beyond the candidates at which gaps are told apart too, in the
/// kernel's unit: somebody may have set more than we ever would.
const BEYOND: [u32; 6] = [600, 1_000, 2_000, 4_000, 8_000, 16_000];

/// What part of a bucket's gaps falls between two neighbouring edges, taking
/// them to be spread evenly over the bucket.
#[derive(Clone, Copy, Debug)]
struct Piece {
    bin: usize,
    per_gap: Moments,
}

/// Timeouts to choose from, and how histogram buckets fall between them.
#[derive(Clone, Debug)]
pub struct Grid {
    candidates: Vec<u32>,
    /// Upper ends of all bins but the last, in nanoseconds.
    edges: Vec<f64>,
    pieces: Vec<Piece>,
    /// Where each bucket's pieces begin, and the end of the last.
    starts: Vec<usize>,
}

impl Grid {
    /// A grid of these timeouts, in the kernel's unit. They are sorted, and 0 is
    /// always among them: not to spin can always be chosen.
    #[must_use]
    pub fn new(timeouts: &[u32]) -> Self {
        let mut candidates = timeouts.to_vec();
        candidates.push(0);
        candidates.sort_unstable();
        candidates.dedup();
        let longest = candidates.last().copied().unwrap_or(0);
        let edges: Vec<f64> = candidates
            .iter()
            .copied()
            .filter(|timeout| *timeout > 0)
            .chain(BEYOND.into_iter().filter(|timeout| *timeout > longest))
            .map(timeout_ns)
            .collect();
        let mut pieces = Vec::new();
        let mut starts = Vec::with_capacity(TIME_BUCKETS + 1);
        for bucket in 0..TIME_BUCKETS {
            starts.push(pieces.len());
            cut(bucket, &edges, &mut pieces);
        }
        starts.push(pieces.len());
        Self {
            candidates,
            edges,
            pieces,
            starts,
        }
    }

    /// The timeouts to choose from, from 0 upward, in the kernel's unit.
    #[must_use]
    pub fn candidates(&self) -> &[u32] {
        &self.candidates
    }

    fn bins(&self) -> usize {
        self.edges.len() + 1
    }
}

/// Cuts a bucket at the edges.
fn cut(bucket: usize, edges: &[f64], pieces: &mut Vec<Piece>) {
    let (low, high) = (
        time_bucket_low_ns(bucket) as f64,
        time_bucket_high_ns(bucket) as f64,
    );
    let first = edges.partition_point(|edge| *edge <= low);
    let inside = edges[first..].iter().copied().take_while(|e| *e < high);
    let mut from = low;
    for (at, to) in inside.chain([high]).enumerate() {
        pieces.push(Piece {
            bin: first + at,
            per_gap: Moments::even(from, to, (to - from) / (high - low)),
        });
        from = to;
    }
}

/// Number, sum (ns) and sum of squares (ns²) of some gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    /// So many gaps, spread evenly between two lengths.
    fn even(from: f64, to: f64, count: f64) -> Self {
        Self {
            count,
            sum: count * f64::midpoint(from, to),
            squares: count * (from * from + from * to + to * to) / 3.0,
        }
    }

    fn add(&mut self, other: Self, times: f64) {
        self.count += other.count * times;
        self.sum += other.sum * times;
        self.squares += other.squares * times;
    }

    fn scale(&mut self, factor: f64) {
        self.count *= factor;
        self.sum *= factor;
        self.squares *= factor;
    }
}

/// What one timeout costs over the gaps of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Time spun, in nanoseconds.
    pub spin_ns: f64,
    /// Gaps that outlast the timeout, each of which takes a wake-up.
    pub misses: f64,
}

impl Price {
    /// With a wake-up worth so many nanoseconds of spinning.
    #[must_use]
    pub fn cost_ns(self, wake_ns: f64) -> f64 {
        self.spin_ns + wake_ns * self.misses
    }
}

/// How much one timeout costs more than another, per gap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// On average, in nanoseconds; negative if it costs less.
    pub mean_ns: f64,
    /// How far off that may be: the standard error, taking the gaps to be
    /// independent of each other.
    pub error_ns: f64,
}

/// Gaps, sorted into the bins of a grid. Counts are fractions once they have
/// decayed. All methods take the grid it was made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    bins: Box<[Moments]>,
    /// Sum of squared weights: decayed gaps say less than their number.
    squared_weights: f64,
}

impl Curve {
    /// A curve of no gaps.
    #[must_use]
    pub fn new(grid: &Grid) -> Self {
        Self {
            bins: vec![Moments::default(); grid.bins()].into(),
            squared_weights: 0.0,
        }
    }

    /// The curve of a histogram.
    #[must_use]
    pub fn of(grid: &Grid, gaps: &TimeHistogram) -> Self {
        let mut curve = Self::new(grid);
        for (bucket, count) in gaps.occupied() {
            let times = count as f64;
            for piece in &grid.pieces[grid.starts[bucket]..grid.starts[bucket + 1]] {
                curve.bins[piece.bin].add(piece.per_gap, times);
            }
            curve.squared_weights += times;
        }
        curve
    }

    /// Adds the gaps of another curve of the same grid.
    pub fn add(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            bin.add(*more, 1.0);
        }
        self.squared_weights += other.squared_weights;
    }

    /// Forgets: what was there counts for this part of itself from now on.
    pub fn decay(&mut self, factor: f64) {
        for bin in &mut self.bins {
            bin.scale(factor);
        }
        self.squared_weights *= factor * factor;
    }

    /// Gaps in it.
    #[must_use]
    pub fn gaps(&self) -> f64 {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// So many gaps of equal weight would say as much.
    #[must_use]
    pub fn effective_gaps(&self) -> f64 {
        let gaps = self.gaps();
        if self.squared_weights > 0.0 {
            gaps * gaps / self.squared_weights
        } else {
            0.0
        }
    }

    /// What a timeout, in nanoseconds, costs. Exact for the grid's; between two
    /// of them gaps are taken to be spread evenly.
    #[must_use]
    pub fn price(&self, grid: &Grid, timeout_ns: f64) -> Price {
        let below = self.below(grid, timeout_ns);
        let misses = (self.gaps() - below.count).max(0.0);
        Price {
            spin_ns: below.sum + timeout_ns * misses,
            misses,
        }
    }

    /// Prices of all candidates, in their order.
    pub fn prices<'a>(&'a self, grid: &'a Grid) -> impl Iterator<Item = (u32, Price)> + 'a {
        let mut misses = self.gaps();
        let mut sum = 0.0;
        grid.candidates
            .iter()
            .enumerate()
            .map(move |(at, timeout)| {
                // The candidate of number `at` is the upper end of the bin before.
                if let Some(bin) = at.checked_sub(1) {
                    misses = (misses - self.bins[bin].count).max(0.0);
                    sum += self.bins[bin].sum;
                }
                let price = Price {
                    spin_ns: sum + timeout_ns(*timeout) * misses,
                    misses,
                };
                (*timeout, price)
            })
    }

    /// The cheapest candidate within bounds, the shortest of those that cost the
    /// same. `None` if there is none within them.
    #[must_use]
    pub fn cheapest(&self, grid: &Grid, wake_ns: f64, bounds: (u32, u32)) -> Option<u32> {
        let mut best: Option<(u32, f64)> = None;
        for (timeout, price) in self.prices(grid) {
            if timeout < bounds.0 || timeout > bounds.1 {
                continue;
            }
            let cost = price.cost_ns(wake_ns);
            // The part in a million is for sums that only rounding tells apart.
            if best.is_none_or(|(_, least)| cost < least - least.abs() * 1e-6) {
                best = Some((timeout, cost));
            }
        }
        best.map(|(timeout, _)| timeout)
    }

    /// How much `one` costs more than `other`, both in nanoseconds, per gap.
    #[must_use]
    pub fn difference(&self, grid: &Grid, one: f64, other: f64, wake_ns: f64) -> Difference {
        let gaps = self.gaps();
        if gaps <= 0.0 {
            return Difference::default();
        }
        let (short, long) = (one.min(other), one.max(other));
        let (caught, all) = (self.below(grid, short), self.below(grid, long));
        // Gaps between the two: the shorter spins in vain and is woken, the
        // longer spins them out. Longer gaps: both are woken.
        let between = all.count - caught.count;
        let sum = all.sum - caught.sum;
        let squares = all.squares - caught.squares;
        let missed = (gaps - all.count).max(0.0);
        let paid = short + wake_ns;
        let apart = long - short;
        let total = between * paid - sum - missed * apart;
        let total_squares =
            between * paid * paid - 2.0 * paid * sum + squares + missed * apart * apart;
        let mean = total / gaps;
        let variance = (total_squares / gaps - mean * mean).max(0.0);
        Difference {
            mean_ns: if one <= other { mean } else { -mean },
            error_ns: (variance / self.effective_gaps()).sqrt(),
        }
    }

    /// How differently two curves' gaps are spread: the largest difference, over
    /// all timeouts, of the share of gaps that outlast one. 0 to 1.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        let (here, there) = (self.gaps(), other.gaps());
        if here <= 0.0 || there <= 0.0 {
            return 1.0;
        }
        let (mut a, mut b, mut most) = (0.0, 0.0, 0.0f64);
        for (mine, theirs) in self.bins.iter().zip(&other.bins) {
            a += mine.count / here;
            b += theirs.count / there;
            most = most.max((a - b).abs());
        }
        most
    }

    /// The gaps up to a length.
    fn below(&self, grid: &Grid, length_ns: f64) -> Moments {
        let mut below = Moments::default();
        let mut from = 0.0;
        for (bin, to) in self.bins.iter().zip(&grid.edges) {
            if *to <= length_ns {
                below.add(*bin, 1.0);
            } else {
                if length_ns > from {
                    let part = (length_ns - from) / (to - from);
                    let even = Moments::even(from, length_ns, bin.count * part);
                    // Never more than is there.
                    below.count += even.count;
                    below.sum += even.sum.min(bin.sum);
                    below.squares += even.squares.min(bin.squares);
                }
                break;
            }
            from = *to;
        }
        below
    }
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
