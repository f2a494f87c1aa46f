//! Decides what to set. Pure: what it saw and its configuration go in, decisions
//! with reasons come out; the same looks give the same decisions.

mod batching;
mod budget;
mod check;
pub mod config;
mod cpus;
mod decide;
mod decision;
mod explain;
mod guard;
mod holder;
mod learners;
mod look;
mod pace;
mod pair;
mod pattern;
mod phases;
mod profile;
mod rule;
mod verify;
mod window;
mod worth;

use std::collections::{BTreeMap, BTreeSet};

pub use check::ConfigError;
pub use config::Config;
pub use cpus::Cpus;
pub use decision::{Basis, Decision, Knob, Notice, Reason, Way};
pub use explain::{Capped, Choice, Explained, Explanation, Priced, explain};
pub use look::{Backend, Direction, Look, PairKey, PairLook, VringLook, WorkerLook};
pub use profile::{Bounds, Profile, ProfileName, Profiles};

use self::pair::{Common, Pair};
use self::rule::Rule;
use crate::model::Grid;

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are, before the next look.
    Act,
    /// They are shown and nothing is set.
    Advise,
}

/// What a look led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What to change.
    pub decisions: Vec<Decision>,
    /// What to tell.
    pub notices: Vec<Notice>,
    /// Pairs to look at again sooner than usual, with the time until then in
    /// milliseconds.
    pub again: Vec<(PairKey, f64)>,
}

/// The policy with all that it remembers.
#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    mode: Mode,
    grid: Grid,
    pairs: BTreeMap<PairKey, Pair>,
    spin_price: f64,
    over_budget: bool,
}

impl Policy {
    /// A policy that has seen nothing yet.
    ///
    /// # Errors
    ///
    /// The first number of the configuration that cannot be.
    pub fn new(config: Config, mode: Mode) -> Result<Self, ConfigError> {
        config.check()?;
        let grid = Grid::new(&config.busyloop.candidates);
        Ok(Self {
            config,
            mode,
            grid,
            pairs: BTreeMap::new(),
            spin_price: 1.0,
            over_budget: false,
        })
    }

    /// Takes in a look and decides.
    pub fn look(&mut self, look: &Look) -> Outcome {
        let mut outcome = Outcome::default();
        for seen in &look.pairs {
            let (config, grid) = (&self.config, &self.grid);
            let pair = self
                .pairs
                .entry(seen.key)
                .or_insert_with(|| Pair::new(config, grid, seen));
            let common = Common {
                config,
                grid,
                now_ns: look.at_ns,
                spin_price: self.spin_price,
                may_raise: true,
            };
            pair.add(&common, look, seen, &mut outcome.notices);
            if self.mode == Mode::Advise && seen.backend == Backend::None {
                // Advice needs nothing that could set it.
                pair.backend = Backend::Inject;
            }
        }
        if look.complete && self.pairs.len() > look.pairs.len() {
            let present = keys(look);
            self.pairs.retain(|key, _| present.contains(key));
        }
        let may_raise = self.budget(look, &mut outcome.notices);
        for seen in &look.pairs {
            let common = Common {
                config: &self.config,
                grid: &self.grid,
                now_ns: look.at_ns,
                spin_price: self.spin_price,
                may_raise,
            };
            if let Some(pair) = self.pairs.get_mut(&seen.key) {
                pair.decide(&common, self.mode, seen.key, &mut outcome.decisions);
            }
        }
        self.again(look, &mut outcome.again);
        outcome
    }

    /// Goes on with another configuration. What was learnt is kept, unless it was
    /// learnt for other candidates.
    ///
    /// # Errors
    ///
    /// The first number of it that cannot be; then nothing changes.
    pub fn reconfigure(&mut self, config: Config) -> Result<(), ConfigError> {
        config.check()?;
        let kept = config.busyloop.candidates == self.config.busyloop.candidates;
        let grid = Grid::new(&config.busyloop.candidates);
        for pair in self.pairs.values_mut() {
            pair.rule = Rule::of(&config, &pair.vm);
            if !kept {
                pair.learn_anew(&config, &grid);
            }
        }
        self.config = config;
        self.grid = grid;
        self.spin_price = 1.0;
        Ok(())
    }

    /// A decision could not be carried out.
    pub fn failed(&mut self, decision: &Decision) {
        let Some(pair) = self.pairs.get_mut(&decision.pair) else {
            return;
        };
        match decision.knob {
            Knob::BusyloopRx => pair.vrings[0].holder.failed(),
            Knob::BusyloopTx => pair.vrings[1].holder.failed(),
            Knob::TxBatched => pair.batching.holder.failed(),
        }
    }

    /// Takes a knob in hand again that somebody else had set.
    pub fn resume(&mut self, key: PairKey, knob: Knob) {
        let Some(pair) = self.pairs.get_mut(&key) else {
            return;
        };
        match knob {
            Knob::BusyloopRx => pair.vrings[0].holder.resume(),
            Knob::BusyloopTx => pair.vrings[1].holder.resume(),
            Knob::TxBatched => pair.batching.holder.resume(),
        }
    }

    /// Pairs that are remembered.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// CPU time, in cores, that is predicted to be spun away with what is set.
    #[must_use]
    pub fn predicted_spin_cores(&self) -> f64 {
        let each = self.pairs.values().flat_map(|pair| {
            Direction::ALL
                .map(|direction| pair.spin_share(&self.grid, direction, pair.set(direction)))
        });
        each.sum()
    }

    fn common(&self, now_ns: u64) -> Common<'_> {
        Common {
            config: &self.config,
            grid: &self.grid,
            now_ns,
            spin_price: self.spin_price,
            may_raise: true,
        }
    }

    /// Finds what spinning must cost for the budget to be kept. Gives whether
    /// anybody may spin more than before.
    fn budget(&mut self, look: &Look, notices: &mut Vec<Notice>) -> bool {
        let Some(budget) = self.config.budget.spin_cores else {
            return true;
        };
        let present = keys(look);
        let predicted = |spin_price: f64| -> f64 {
            let common = Common {
                spin_price,
                ..self.common(look.at_ns)
            };
            let of = |(key, pair): (&PairKey, &Pair), direction| {
                let set = pair.set(direction);
                let open = present.contains(key) && pair.may_change(&common, direction);
                let plan = open.then(|| pair.plan(&common, direction)).flatten();
                pair.spin_share(&self.grid, direction, plan.map_or(set, |plan| plan.to))
            };
            let pairs = self.pairs.iter();
            pairs
                .flat_map(|entry| Direction::ALL.map(|direction| of(entry, direction)))
                .sum()
        };
        if !look.complete {
            // The price is for all to pay: it is found when all are there.
            return predicted(self.spin_price) <= budget;
        }
        let price = budget::price(budget, self.spin_price, predicted);
        let spin_cores = predicted(price);
        let over = spin_cores > budget;
        if over && !self.over_budget {
            notices.push(Notice::OverBudget {
                spin_cores,
                budget_cores: budget,
            });
        }
        self.over_budget = over;
        self.spin_price = price;
        true
    }

    /// Which pairs to look at again sooner than usual.
    fn again(&mut self, look: &Look, again: &mut Vec<(PairKey, f64)>) {
        if look.complete {
            self.choose_quick();
        }
        for seen in &look.pairs {
            let Some(pair) = self.pairs.get_mut(&seen.key) else {
                continue;
            };
            let usual_ms = pair.look_s(&self.config) * 1e3;
            if pair.is_new(&self.config) && pair.first_ms < usual_ms {
                again.push((seen.key, pair.first_ms));
                pair.first_ms *= 2.0;
            } else if let Some(ms) = pair.quick_ms {
                again.push((seen.key, ms));
            }
        }
    }

    /// Chooses the pairs that lose most by being looked at too seldom.
    fn choose_quick(&mut self) {
        let times = &self.config.look;
        let mut losing: Vec<(f64, PairKey)> = Vec::new();
        for (key, pair) in &mut self.pairs {
            pair.quick_ms = None;
            let usual_ms = pair.look_s(&self.config) * 1e3;
            let lost = pair.lost_share();
            // What is lost grows with the time between looks, what looking costs
            // falls with it; together they are least where both are the same.
            let best_ms = (times.cost_us / 1e3 * usual_ms / lost).sqrt();
            if pair.backend == Backend::Module && best_ms < usual_ms {
                pair.quick_ms = Some(best_ms.max(times.shortest_ms));
                losing.push((lost, *key));
            }
        }
        losing.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, key) in losing.into_iter().skip(times.quick_pairs) {
            if let Some(pair) = self.pairs.get_mut(&key) {
                pair.quick_ms = None;
            }
        }
    }
}

/// The pairs of a look.
fn keys(look: &Look) -> BTreeSet<PairKey> {
    look.pairs.iter().map(|pair| pair.key).collect()
}

#[cfg(test)]
mod policy_tests;
