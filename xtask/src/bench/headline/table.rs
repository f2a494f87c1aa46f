//! What the rounds say together, and what they cannot say.

use std::fmt;

use super::{
    super::{
        machine::Machine,
        ratio::{Ratio, median},
    },
    caveats::caveats,
    workload::{Comparison, Workload},
};

/// The rounds of one workload: so much a second, by setting.
pub(super) struct Measured {
    pub(super) workload: &'static Workload,
    pub(super) rates: Vec<Vec<f64>>,
}

impl Measured {
    /// With nothing measured yet.
    pub(super) fn new(workload: &'static Workload) -> Self {
        Self {
            workload,
            rates: vec![Vec::new(); workload.settings.len()],
        }
    }

    /// Each round's by itself.
    fn ratio(&self, of: &Comparison) -> Option<Ratio> {
        let pairs = self.rates[of.setting].iter().zip(&self.rates[of.against]);
        let ratios: Vec<f64> = pairs.map(|(rate, against)| rate / against).collect();
        Ratio::of(&ratios)
    }
}

/// All that was measured, on one kernel.
pub(super) struct Table {
    pub(super) machine: Machine,
    pub(super) measured: Vec<Measured>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}; rates are medians, ratios are between phases of the same round\n",
            self.machine.line()
        )?;
        writeln!(
            f,
            "{:8} {:22} {:>9} {:8} {:22} {:>9}  {:21}  the patch says",
            "", "setting", "rate", "", "against", "rate", "ratio [95 %]"
        )?;
        for measured in &self.measured {
            for comparison in measured.workload.comparisons {
                row(f, measured, comparison)?;
            }
        }
        writeln!(f)?;
        for measured in &self.measured {
            let workload = measured.workload;
            writeln!(f, "{:8} {}", workload.name.shown(), workload.what)?;
        }
        write!(f, "\n{}", caveats(&self.machine))
    }
}

fn row(f: &mut fmt::Formatter<'_>, measured: &Measured, of: &Comparison) -> fmt::Result {
    let workload = measured.workload;
    let ratio = measured.ratio(of).map_or_else(
        || "too few rounds".to_owned(),
        |ratio| format!("{:.3} [{:.3}, {:.3}]", ratio.mean, ratio.low, ratio.high),
    );
    writeln!(
        f,
        "{:8} {:22} {:9.0} {:8} {:22} {:9.0}  {ratio:21}  {}",
        workload.name.shown(),
        workload.settings[of.setting].name,
        median(&measured.rates[of.setting]),
        workload.figure.unit(),
        workload.settings[of.against].name,
        median(&measured.rates[of.against]),
        of.claim.unwrap_or("–"),
    )
}

#[cfg(test)]
mod tests {
    use super::{super::workload::ALL, *};

    fn table(rounds: u32) -> String {
        let workload = &ALL[0];
        let mut measured = Measured::new(workload);
        for (rates, rate) in measured.rates.iter_mut().zip([100.0, 150.0, 75.0]) {
            *rates = (1..=rounds).map(|round| rate * f64::from(round)).collect();
        }
        Table {
            machine: Machine::here(),
            measured: vec![measured],
        }
        .to_string()
    }

    #[test]
    fn each_round_is_compared_with_itself() {
        let text = table(3);
        assert!(text.contains("1.500 [1.500, 1.500]"), "{text}");
        assert!(text.contains("2.000 [2.000, 2.000]"), "{text}");
    }

    #[test]
    fn what_the_patch_measured_stands_beside_ours() {
        let text = table(3);
        let row = text.lines().find(|line| line.contains("1.500")).unwrap();
        assert!(row.contains("12.7 to 21.1 Gbit/s"), "{row}");
    }

    #[test]
    fn one_round_makes_no_ratio() {
        assert!(table(1).contains("too few rounds"));
    }
}
