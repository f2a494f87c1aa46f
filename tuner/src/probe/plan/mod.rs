//! Which program goes to which function of this kernel. Pure.

#[cfg(test)]
mod tests;
mod wishes;

use tuner_common::layout::{ABSENT, Layout};

use crate::inspect::Livepatch;
use crate::inspect::kallsyms::{Kallsyms, Symbol};
use crate::knob::module::LIVEPATCH;
use wishes::{COPIED, WISHES, Wish, told_by};
pub(crate) use wishes::{DEVICES, POLLS};

/// A program and the function that it is to be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Program in the object file.
    pub program: &'static str,
    /// Function, as kallsyms spells it.
    pub symbol: String,
    /// Names to try, in this order: bare where that is unique, else and then
    /// with the module before it.
    pub names: Vec<String>,
    /// True if nothing can be measured without it.
    pub essential: bool,
    /// Figures that need it.
    pub figures: &'static [&'static str],
}

/// A program that has nowhere to go in this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Program in the object file.
    pub program: &'static str,
    /// Why, in words.
    pub why: String,
    /// True if nothing can be measured without it.
    pub essential: bool,
    /// Figures that are unknown therefore.
    pub figures: &'static [&'static str],
}

/// What to attach, and what cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Programs to attach.
    pub points: Vec<Point>,
    /// Programs that cannot be attached.
    pub refused: Vec<Refused>,
}

impl Plan {
    /// Decides for this kernel's symbols and layout. Returns are attached
    /// before entries, so that no run is seen to begin and not to end.
    #[must_use]
    pub fn make(symbols: &Kallsyms, layout: &Layout) -> Self {
        let mut plan = Self::default();
        let told = told_by("vhost_net");
        // A stock vhost_net has nothing to tell, and lacks nothing by that.
        let has = |wish: &Wish| !symbols.functions(wish.functions[0], wish.module).is_empty();
        if told.iter().any(has) {
            plan.add(&told, symbols, layout);
        }
        plan.add(&WISHES, symbols, layout);
        plan
    }

    /// Decides what is to be attached besides while the livepatch is there, for
    /// a layout that was found without it.
    #[must_use]
    pub fn livepatch(livepatch: &Livepatch, layout: &Layout) -> Self {
        let mut plan = Self::default();
        plan.add(&told_by(LIVEPATCH), &livepatch.symbols, layout);
        // A program reads its argument at one place, wherever it is attached.
        if livepatch.arg_poll_intr == layout.arg_poll_intr {
            plan.add(&COPIED, &livepatch.symbols, layout);
        } else {
            plan.refused.extend(COPIED.iter().map(|wish| Refused {
                program: wish.program,
                why: format!(
                    "{} does not take its arguments as vhost_net_busy_poll does, or BTF does not \
                     say how",
                    Livepatch::BUSY_POLL
                ),
                essential: wish.essential,
                figures: wish.figures,
            }));
        }
        plan
    }

    fn add(&mut self, wishes: &[Wish], symbols: &Kallsyms, layout: &Layout) {
        for wish in wishes {
            match place(wish, symbols, layout) {
                Ok(symbol) => self.points.push(Point {
                    program: wish.program,
                    symbol: symbol.name.clone(),
                    names: names(symbol, symbols),
                    essential: wish.essential,
                    figures: wish.figures,
                }),
                Err(why) => self.refused.push(Refused {
                    program: wish.program,
                    why,
                    essential: wish.essential,
                    figures: wish.figures,
                }),
            }
        }
    }
}

fn place<'a>(wish: &Wish, symbols: &'a Kallsyms, layout: &Layout) -> Result<&'a Symbol, String> {
    let names = wish.functions.join(" or ");
    let reads = (wish.reads)(layout);
    let mut clone = None;
    for function in wish.functions {
        for symbol in symbols.functions(function, wish.module) {
            if !symbol.is_clone() {
                if reads.contains(&ABSENT) {
                    return Err(format!(
                        "BTF does not say how the arguments of {function} are passed"
                    ));
                }
                return Ok(symbol);
            }
            clone = Some(symbol);
        }
    }
    match clone {
        Some(symbol) if reads.is_empty() => Ok(symbol),
        Some(symbol) => Err(format!(
            "only a compiler's clone of {names} exists ({}), whose arguments cannot be trusted",
            symbol.name
        )),
        None => Err(format!("this kernel has no function {names}")),
    }
}

/// The bare name fails where another module has a function of the same name,
/// and `module:name` fails on some stable kernels; each is tried where it may
/// work.
fn names(symbol: &Symbol, symbols: &Kallsyms) -> Vec<String> {
    let mut names = Vec::new();
    if symbols.namesakes(&symbol.name) == 1 {
        names.push(symbol.name.clone());
    }
    if let Some(module) = &symbol.module {
        names.push(format!("{module}:{}", symbol.name));
    }
    names
}
