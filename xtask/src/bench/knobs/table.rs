//! What the rounds say together.

use std::fmt;

use super::{
    super::{
        machine::Machine,
        ratio::{Ratio, median},
    },
    measured::{Figure, Load, Measured, Operation},
    way::Way,
};

/// All that was measured, on one kernel.
pub(super) struct Table {
    pub(super) machine: Machine,
    pub(super) measured: Measured,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.measured.of(Way::Inject, Load::Idle).len();
        writeln!(
            f,
            "{}; medians of {rounds} rounds, times in ms\n",
            self.machine.line()
        )?;
        self.figures(f)?;
        self.ratios(f)?;
        self.report(f)?;
        self.noticed(f)?;
        f.write_str(NOTES)?;
        if self.machine.emulated {
            f.write_str(EMULATED)?;
        }
        Ok(())
    }
}

const NOTES: &str = "
* longest: for how long that thread stood still, all in all, that did so longest; together: all
  threads' sum; span: from the first stop to the last time that one went on; worker: for how long the
  vhost worker stood still, and with it all packets, where it is a thread of the process. These are
  the kernel's, by probes at both ends of ptrace_stop.
* command: the whole program, most of it its start.
* gdb has a program without symbols before it, and looks for no debugging information. It stops all
  threads, and all of them anew for each function that it calls.
";
const EMULATED: &str = "\
* Under emulation everything takes many times what it takes on hardware. Ratios tell the order of
  magnitude.
";

impl Table {
    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:5} {:18} {:>7} {:>5}", "", "", "threads", "stops")?;
        for figure in Figure::ALL {
            write!(f, " {:>20}", figure.name())?;
        }
        writeln!(f)?;
        for load in Load::ALL {
            for way in Way::ALL {
                let operations = self.measured.of(way, load);
                let middle = |of: fn(&Operation) -> usize| {
                    let mut counts: Vec<usize> = operations.iter().map(of).collect();
                    counts.sort_unstable();
                    counts.get(counts.len() / 2).copied().unwrap_or(0)
                };
                write!(
                    f,
                    "{:5} {:18} {:7} {:5}",
                    load.name(),
                    way.name(),
                    middle(|operation| operation.stops.threads),
                    middle(|operation| operation.stops.count),
                )?;
                for figure in Figure::ALL {
                    let cell = range(&self.measured.figures(way, load, figure));
                    write!(f, " {cell:>20}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }

    fn ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nTimes what the injection takes [95 %]")?;
        for load in Load::ALL {
            for (way, figures) in [
                (Way::Gdb, &Figure::COMPARED[..]),
                (Way::Module, &[Figure::Command]),
            ] {
                write!(f, "{:5} {:18}", load.name(), way.name())?;
                for &figure in figures {
                    let ratio = self.measured.ratio(way, load, figure);
                    write!(f, "  {} {}", figure.name(), shown(ratio))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }

    /// Our own figure against the kernel's.
    fn report(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nstopped_us of `set` against the kernel's time from PTRACE_INTERRUPT to PTRACE_DETACH"
        )?;
        for load in Load::ALL {
            let excess = self.measured.excess(load);
            writeln!(
                f,
                "{:5} {} reported; that is {:.1} % more, at most {:.1} %",
                load.name(),
                range(&self.measured.reported(load)),
                excess.middle * 100.0,
                excess.most * 100.0
            )?;
        }
        Ok(())
    }

    fn noticed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for way in Way::ALL {
            let all = self.measured.all_noticed(way);
            let calls: u64 = all.iter().map(|noticed| noticed.calls).sum();
            let packets: u64 = all.iter().map(|noticed| noticed.packets).sum();
            let rounds = all.iter().filter(|noticed| noticed.anything()).count();
            writeln!(
                f,
                "{}: {calls} of the target's system calls returned early or with EINTR, {packets} \
                 packets went wrong, in {rounds} of {} rounds (2 sets each)",
                way.name(),
                all.len()
            )?;
        }
        Ok(())
    }
}

/// The median, the least and the most.
fn range(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most <= 0.0 {
        return "0".to_owned();
    }
    let [middle, least, most] = [median(values), least, most].map(short);
    format!("{middle} [{least}, {most}]")
}

/// With three digits or a little more, which is more than is certain.
fn short(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        middling if middling < 100.0 => format!("{middling:.1}"),
        large => format!("{large:.0}"),
    }
}

fn shown(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(
        || "too few rounds".to_owned(),
        |ratio| {
            let [mean, low, high] = [ratio.mean, ratio.low, ratio.high].map(short);
            format!("{mean} [{low}, {high}]")
        },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{stops::Stops, target::Noticed, way::Done},
        *,
    };

    fn operation(threads: usize, milliseconds: f64, reported: Option<f64>) -> Operation {
        let micros = milliseconds * 1e3;
        Operation {
            stops: Stops {
                threads,
                count: threads,
                longest: micros,
                together: micros * 2.0,
                span: micros,
                worker: if threads > 1 { micros } else { 0.0 },
                asked: reported.map(|_| micros),
            },
            done: Done {
                command: Duration::from_millis(500),
                reported,
            },
        }
    }

    fn table(rounds: u32) -> String {
        let mut measured = Measured::default();
        for round in 1..=rounds {
            let ours = f64::from(round);
            for load in Load::ALL {
                let reported = Some(ours * 1e3 + 250.0);
                measured.push(Way::Inject, load, operation(1, ours, reported));
                measured.push(Way::Gdb, load, operation(9, ours * 300.0, None));
                measured.push(Way::Module, load, operation(0, 0.0, None));
            }
            for way in Way::ALL {
                let calls = if way == Way::Gdb { 4 } else { 0 };
                measured.noticed(way, Noticed { calls, packets: 0 });
            }
        }
        Table {
            machine: Machine::here(),
            measured,
        }
        .to_string()
    }

    #[test]
    fn each_round_is_compared_with_itself() {
        let text = table(3);
        assert!(text.contains("longest 300 [300, 300]"), "{text}");
        assert!(text.contains("command 1.00 [1.00, 1.00]"), "{text}");
    }

    #[test]
    fn what_stops_nobody_shows_zeros() {
        let text = table(3);
        let row = text
            .lines()
            .find(|line| line.starts_with("idle  set, by the module"))
            .unwrap();
        let cells: Vec<&str> = row.split_whitespace().skip(5).collect();
        assert_eq!(cells[..6], ["0"; 6], "{row}");
    }

    #[test]
    fn our_own_figure_stands_beside_the_kernels() {
        let text = table(3);
        assert!(
            text.contains("2.25 [1.25, 3.25] reported; that is 12.5 % more, at most 25.0 %"),
            "{text}"
        );
    }

    #[test]
    fn what_the_target_noticed_is_said() {
        let text = table(3);
        assert!(text.contains("gdb's call: 12 of the target's"), "{text}");
        assert!(text.contains("in 3 of 3 rounds"), "{text}");
    }

    #[test]
    fn one_round_makes_no_ratio() {
        assert!(table(1).contains("too few rounds"));
    }
}
