//! Ratios of paired measurements, and medians.

/// Two-sided 97.5 % quantiles of Student's t, for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A geometric mean and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    /// Of ratios that are each of one round, by Student's t on their logarithms.
    /// None for fewer than two.
    pub(super) fn of(ratios: &[f64]) -> Option<Self> {
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let degrees = logs.len().checked_sub(1).filter(|&n| n > 0)?;
        let count = f64::from(u32::try_from(logs.len()).ok()?);
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let t = T.get(degrees - 1).copied().unwrap_or(T[T.len() - 1]);
        Some(Self {
            mean: mean.exp(),
            low: (mean - t * error).exp(),
            high: (mean + t * error).exp(),
        })
    }

    /// What is lost, in per cent: mean, least and most.
    pub(super) fn cost(&self) -> [f64; 3] {
        [self.mean, self.high, self.low].map(|ratio| (1.0 - ratio) * 100.0)
    }
}

/// The one in the middle; not a number if there is none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rounds_leave_no_doubt() {
        let ratio = Ratio::of(&[0.5, 0.5, 0.5]).unwrap();
        for value in [ratio.mean, ratio.low, ratio.high] {
            assert!((value - 0.5).abs() < 1e-12, "{ratio:?}");
        }
    }

    #[test]
    fn the_interval_is_students() {
        // Logarithms -0.1, 0, 0.1: standard error 0.1 / sqrt(3).
        let ratio = Ratio::of(&[(-0.1f64).exp(), 1.0, 0.1f64.exp()]).unwrap();
        assert!((ratio.mean - 1.0).abs() < 1e-12);
        let half = 4.303 * 0.1 / 3f64.sqrt();
        assert!((ratio.high.ln() - half).abs() < 1e-9);
        assert!((ratio.low.ln() + half).abs() < 1e-9);
    }

    #[test]
    fn one_round_has_no_interval() {
        assert_eq!(Ratio::of(&[1.0]), None);
        assert_eq!(Ratio::of(&[]), None);
    }

    #[test]
    fn cost_is_what_is_lost() {
        let ratio = Ratio {
            mean: 0.9,
            low: 0.8,
            high: 1.1,
        };
        let [mean, least, most] = ratio.cost();
        assert!((mean - 10.0).abs() < 1e-9 && (least + 10.0).abs() < 1e-9);
        assert!((most - 20.0).abs() < 1e-9);
    }

    #[test]
    fn the_middle_of_nothing_is_no_number() {
        assert!(median(&[]).is_nan());
        assert!((median(&[3.0, 1.0]) - 2.0).abs() < 1e-12);
    }
}
