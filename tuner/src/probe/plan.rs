//! Which program goes to which function of this kernel. Pure.

use tuner_common::layout::{ABSENT, Layout};

use crate::inspect::kallsyms::{Kallsyms, Symbol};
use crate::inspect::layout::QUEUE_WORK;

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

const RUNS: &[&str] = &["runs", "packets", "run_ns"];
const POLLS: &[&str] = &[
    "polls",
    "poll_own_hits",
    "poll_peer_hits",
    "poll_misses",
    "poll_interrupted",
    "poll_skipped",
    "poll_resched",
    "spin_ns",
    // A hand-over or a gap is told from others by the poll that follows it.
    "flushes",
    "gap_us",
];
const BATCHES: &[&str] = &["batches", "batch", "flushes"];
const INTERRUPTS: &[&str] = &["interrupts"];
const WAKES: &[&str] = &[
    "kicks",
    "runs_by_cause",
    "wake_us",
    "gap_us",
    "poll_peer_hits",
    "poll_skipped",
    "flushes",
];
const OWN_QUEUEING: &[&str] = &[
    "runs_by_cause",
    "poll_peer_hits",
    "poll_skipped",
    "flushes",
    "gap_us",
];
const NOTHING: &[&str] = &[];

/// What a program asks of a function.
struct Wish {
    program: &'static str,
    module: &'static str,
    /// Functions, any of which will do, the best first.
    functions: &'static [&'static str],
    /// Positions of the arguments that the program reads; none means that a
    /// compiler's clone will do as well.
    reads: fn(&Layout) -> Vec<u32>,
    essential: bool,
    figures: &'static [&'static str],
}

fn none(_: &Layout) -> Vec<u32> {
    Vec::new()
}

/// The first argument of the handlers, and the second of a release: their
/// types allow no other order.
fn fixed(_: &Layout) -> Vec<u32> {
    vec![0]
}

impl Wish {
    const fn new(
        program: &'static str,
        module: &'static str,
        functions: &'static [&'static str],
        reads: fn(&Layout) -> Vec<u32>,
        essential: bool,
        figures: &'static [&'static str],
    ) -> Self {
        Self {
            program,
            module,
            functions,
            reads,
            essential,
            figures,
        }
    }
}

const WISHES: [Wish; 13] = [
    Wish::new("rx_return", "vhost_net", &["handle_rx"], none, true, RUNS),
    Wish::new("tx_return", "vhost_net", &["handle_tx"], none, true, RUNS),
    Wish::new(
        "poll_return",
        "vhost_net",
        &["vhost_net_busy_poll"],
        none,
        false,
        POLLS,
    ),
    Wish::new(
        "poll_enter",
        "vhost_net",
        &["vhost_net_busy_poll"],
        |layout| vec![layout.arg_poll_intr],
        false,
        POLLS,
    ),
    Wish::new(
        "notify_enabled",
        "vhost",
        &["vhost_enable_notify"],
        none,
        false,
        POLLS,
    ),
    Wish::new(
        "batch_done",
        "vhost",
        &["vhost_add_used_and_signal_n"],
        |layout| {
            vec![
                layout.arg_flush_dev,
                layout.arg_flush_vq,
                layout.arg_flush_count,
            ]
        },
        false,
        BATCHES,
    ),
    Wish::new(
        "notify_return",
        "vhost",
        &["vhost_notify"],
        none,
        false,
        INTERRUPTS,
    ),
    Wish::new(
        "work_queued",
        "vhost",
        &QUEUE_WORK,
        |layout| vec![layout.arg_queue_work],
        false,
        WAKES,
    ),
    Wish::new(
        "poll_queued",
        "vhost",
        &["vhost_poll_queue"],
        fixed,
        false,
        OWN_QUEUEING,
    ),
    Wish::new(
        "device_released",
        "vhost_net",
        &["vhost_net_release"],
        fixed,
        false,
        NOTHING,
    ),
    Wish::new(
        "device_opened",
        "vhost",
        &["vhost_dev_init"],
        fixed,
        false,
        NOTHING,
    ),
    Wish::new("rx_enter", "vhost_net", &["handle_rx"], fixed, true, RUNS),
    Wish::new("tx_enter", "vhost_net", &["handle_tx"], fixed, true, RUNS),
];

impl Plan {
    /// Decides for this kernel's symbols and layout. Returns are attached
    /// before entries, so that no run is seen to begin and not to end.
    #[must_use]
    pub fn make(symbols: &Kallsyms, layout: &Layout) -> Self {
        let mut plan = Self::default();
        for wish in &WISHES {
            match place(wish, symbols, layout) {
                Ok(symbol) => plan.points.push(Point {
                    program: wish.program,
                    symbol: symbol.name.clone(),
                    names: names(symbol, symbols),
                    essential: wish.essential,
                    figures: wish.figures,
                }),
                Err(why) => plan.refused.push(Refused {
                    program: wish.program,
                    why,
                    essential: wish.essential,
                    figures: wish.figures,
                }),
            }
        }
        plan
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

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &[&str] = &[
        "handle_rx",
        "handle_tx",
        "vhost_net_busy_poll",
        "vhost_net_release",
        "vhost_dev_init",
        "vhost_poll_queue",
        "vhost_add_used_and_signal_n",
        "vhost_enable_notify",
        "vhost_notify",
        "vhost_worker_queue",
        "vhost_work_queue",
    ];

    const DEBIAN_6_12: &str = "\
ffffffffc0a00010 t vhost_net_busy_poll\t[vhost_net]
ffffffffc0a00020 t handle_rx\t[vhost_net]
ffffffffc0a00030 t handle_tx\t[vhost_net]
ffffffffc0a00040 t vhost_net_release\t[vhost_net]
ffffffffc0b00010 t vhost_worker_queue\t[vhost]
ffffffffc0b00020 t vhost_notify.constprop.0\t[vhost]
ffffffffc0b00030 t vhost_add_used_and_signal_n\t[vhost]
ffffffffc0b00040 t vhost_enable_notify\t[vhost]
ffffffffc0b00050 t vhost_dev_init\t[vhost]
ffffffffc0b00060 T vhost_poll_queue\t[vhost]
";

    fn plan(text: &str, layout: &Layout) -> Plan {
        Plan::make(&Kallsyms::parse(text, WANTED), layout)
    }

    #[test]
    fn a_kernel_with_everything_refuses_nothing() {
        let plan = plan(DEBIAN_6_12, &Layout::default());
        assert_eq!(plan.refused, []);
        assert_eq!(plan.points.len(), WISHES.len());
    }

    #[test]
    fn an_older_kernels_way_of_queueing_work_is_taken() {
        let text = DEBIAN_6_12.replace("vhost_worker_queue", "vhost_work_queue");
        let plan = plan(&text, &Layout::default());
        let point = plan.points.iter().find(|p| p.program == "work_queued");
        assert_eq!(point.map(|p| p.symbol.as_str()), Some("vhost_work_queue"));
    }

    #[test]
    fn a_clone_is_good_for_a_return_and_never_for_arguments() {
        let text = DEBIAN_6_12.replace("signal_n\t", "signal_n.isra.0\t");
        let plan = plan(&text, &Layout::default());
        assert!(plan.points.iter().any(|p| p.program == "notify_return"));
        let refused: Vec<_> = plan.refused.iter().map(|r| r.program).collect();
        assert_eq!(refused, ["batch_done"]);
        assert!(plan.refused[0].why.contains("isra"));
        assert!(plan.refused[0].figures.contains(&"batches"));
    }

    #[test]
    fn an_unknown_argument_position_is_refused_in_words() {
        let layout = Layout {
            arg_flush_count: ABSENT,
            ..Layout::default()
        };
        let plan = plan(DEBIAN_6_12, &layout);
        assert_eq!(plan.refused.len(), 1);
        assert!(plan.refused[0].why.contains("arguments"));
    }

    #[test]
    fn an_ambiguous_name_is_only_tried_with_its_module() {
        let text = format!("{DEBIAN_6_12}ffffffffc0c00000 t handle_tx\t[other]\n");
        let plan = plan(&text, &Layout::default());
        let point = plan.points.iter().find(|p| p.program == "tx_enter");
        assert_eq!(
            point.map(|p| p.names.clone()),
            Some(vec!["vhost_net:handle_tx".to_owned()])
        );
    }

    #[test]
    fn returns_are_attached_before_entries() {
        let plan = plan(DEBIAN_6_12, &Layout::default());
        let at = |name| plan.points.iter().position(|p| p.program == name);
        assert!(at("tx_return") < at("tx_enter"));
        assert!(at("rx_return") < at("rx_enter"));
        assert!(at("poll_return") < at("poll_enter"));
    }

    #[test]
    fn without_vhost_net_every_essential_probe_is_refused() {
        let plan = plan("", &Layout::default());
        assert!(plan.points.is_empty());
        assert!(plan.refused.iter().any(|r| r.essential));
    }
}
