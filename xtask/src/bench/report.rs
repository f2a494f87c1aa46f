//! What the rounds say together.

use std::fmt;

use super::ratio::{Ratio, median};

/// What we allow ourselves to cost, in per cent.
const GOAL: f64 = 1.0;

/// The rounds of one tool, in packets a second.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) before: Vec<f64>,
    pub(super) with: Vec<f64>,
    pub(super) after: Vec<f64>,
    /// Time in BPF programs per packet.
    pub(super) nanoseconds: Vec<f64>,
}

impl Measured {
    fn ratio(&self) -> Option<Ratio> {
        let around = self.before.iter().zip(&self.after);
        let ratios: Vec<f64> = self
            .with
            .iter()
            .zip(around)
            .map(|(with, (before, after))| with / (f64::midpoint(*before, *after)))
            .collect();
        Ratio::of(&ratios)
    }
}

/// Both tools.
pub(super) struct Report {
    pub(super) ours: Measured,
    pub(super) bpftrace: Measured,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "attached      packets/s    ratio to bare [95 %]      cost %   BPF ns/packet"
        )?;
        writeln!(f, "nothing        {:9.0}", median(&self.ours.before))?;
        let tools = [("vhost-tuner", &self.ours), ("bpftrace", &self.bpftrace)];
        for (name, measured) in tools {
            let rate = median(&measured.with);
            let spent = median(&measured.nanoseconds);
            match measured.ratio() {
                Some(ratio) => writeln!(
                    f,
                    "{name:13}  {rate:9.0}    {:.4} [{:.4}, {:.4}]  {:8.2}   {spent:13.1}",
                    ratio.mean,
                    ratio.low,
                    ratio.high,
                    ratio.cost()[0],
                )?,
                None => writeln!(f, "{name:13}  {rate:9.0}    too few rounds")?,
            }
        }
        if let (Some(ours), Some(theirs)) = (self.ours.ratio(), self.bpftrace.ratio()) {
            f.write_str(&verdict(&ours, &theirs))?;
        }
        let spent = median(&self.bpftrace.nanoseconds) / median(&self.ours.nanoseconds);
        if spent.is_finite() {
            writeln!(
                f,
                "BPF time per packet: the script spends {spent:.1} times ours."
            )?;
        }
        Ok(())
    }
}

fn verdict(ours: &Ratio, theirs: &Ratio) -> String {
    let [cost, least, most] = ours.cost();
    let met = if most <= GOAL {
        "met"
    } else if least > GOAL {
        "missed"
    } else {
        "within the noise: more rounds would tell"
    };
    let times = if cost > 0.0 {
        format!("{:.1} times ours", theirs.cost()[0] / cost)
    } else {
        "against none measurable of ours".to_owned()
    };
    format!(
        "Ours costs {cost:.2} % [{least:.2}, {most:.2}]; goal at most {GOAL} %: {met}. \
         The script costs {:.2} %, {times}.\n",
        theirs.cost()[0]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(with: f64, nanoseconds: f64) -> Measured {
        Measured {
            before: vec![100.0, 120.0, 110.0],
            with: vec![with, with * 1.1, with * 1.0],
            after: vec![100.0, 100.0, 90.0],
            nanoseconds: vec![nanoseconds],
        }
    }

    #[test]
    fn each_round_is_compared_with_the_bare_phases_around_it() {
        let ratio = measured(50.0, 1.0).ratio().unwrap();
        assert!((ratio.mean - 0.5).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn says_what_it_found() {
        let text = Report {
            ours: measured(99.5, 2.0),
            bpftrace: measured(60.0, 100.0),
        }
        .to_string();
        assert!(text.contains("goal at most 1 %: met"), "{text}");
        assert!(text.contains("costs 40.00 %, 80.0 times ours"), "{text}");
        assert!(text.contains("50.0 times ours"), "{text}");
    }
}
