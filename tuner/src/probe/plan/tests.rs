use super::wishes::{CAP, WISHES};
use super::*;

const WANTED: &[&str] = &[
    "handle_rx",
    "handle_tx",
    "vhost_net_busy_poll",
    "vhost_net_release",
    "vhost_net_ioctl",
    "vhost_dev_init",
    "vhost_poll_queue",
    "vhost_add_used_and_signal_n",
    "vhost_enable_notify",
    "vhost_notify",
    "vhost_worker_queue",
    "vhost_work_queue",
    "vnt_poll_own_side",
    "vnt_cap_reached",
    "vnt_vhost_net_busy_poll",
];

const DEBIAN_6_12: &str = "\
ffffffffc0a00010 t vhost_net_busy_poll\t[vhost_net]
ffffffffc0a00020 t handle_rx\t[vhost_net]
ffffffffc0a00030 t handle_tx\t[vhost_net]
ffffffffc0a00040 t vhost_net_release\t[vhost_net]
ffffffffc0a00045 t vhost_net_ioctl\t[vhost_net]
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
fn without_its_events_no_figure_is_lost_but_devices_have_to_be_listed() {
    let text = DEBIAN_6_12.replace("vhost_net_ioctl", "somebody_elses_ioctl");
    let plan = plan(&text, &Layout::default());
    let refused: Vec<_> = plan.refused.iter().map(|r| r.program).collect();
    assert_eq!(refused, ["control_return", "control_enter"]);
    for refused in &plan.refused {
        assert_eq!(refused.figures, ["devices"]);
        assert!(!refused.essential);
    }
}

#[test]
fn returns_are_attached_before_entries() {
    let plan = plan(DEBIAN_6_12, &Layout::default());
    let at = |name| plan.points.iter().position(|p| p.program == name);
    assert!(at("tx_return") < at("tx_enter"));
    assert!(at("rx_return") < at("rx_enter"));
    assert!(at("poll_return") < at("poll_enter"));
    assert!(at("control_return") < at("control_enter"));
}

fn attached(plan: &Plan) -> Vec<(&str, &str)> {
    let points = plan.points.iter();
    points.map(|p| (p.program, p.symbol.as_str())).collect()
}

#[test]
fn our_vhost_net_tells_what_a_stock_one_does_not() {
    let ours = format!(
        "{DEBIAN_6_12}\
         ffffffffc0a00050 t vnt_poll_own_side\t[vhost_net]\n\
         ffffffffc0a00060 t vnt_cap_reached\t[vhost_net]\n"
    );
    let found = plan(&ours, &Layout::default());
    assert_eq!(found.refused, []);
    let told = attached(&found);
    assert!(told.contains(&("own_side_polled", "vnt_poll_own_side")));
    assert!(told.contains(&("cap_reached", "vnt_cap_reached")));
    let half = ours.replace("vnt_cap_reached", "vnt_something_else");
    let refused = plan(&half, &Layout::default()).refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].figures, CAP);
}

const PATCHED: &str = "\
ffffffffc0d00010 t vnt_vhost_net_busy_poll\t[livepatch_vhost_net]
ffffffffc0d00020 t vnt_poll_own_side\t[livepatch_vhost_net]
ffffffffc0d00030 t vnt_cap_reached\t[livepatch_vhost_net]
";

fn patched(arg_poll_intr: u32) -> Plan {
    let text = format!("{DEBIAN_6_12}{PATCHED}");
    let livepatch = Livepatch {
        symbols: Kallsyms::parse(&text, WANTED),
        arg_poll_intr,
    };
    let layout = Layout {
        arg_poll_intr: 88,
        ..Layout::default()
    };
    Plan::livepatch(&livepatch, &layout)
}

#[test]
fn the_livepatchs_copies_are_probed_too() {
    let found = patched(88);
    assert_eq!(found.refused, []);
    assert_eq!(
        attached(&found),
        [
            ("own_side_polled", "vnt_poll_own_side"),
            ("cap_reached", "vnt_cap_reached"),
            ("poll_return", "vnt_vhost_net_busy_poll"),
            ("poll_enter", "vnt_vhost_net_busy_poll"),
        ]
    );
    assert!(found.points.iter().all(|point| !point.essential));
    // What is in the livepatch is no part of vhost_net.
    let stock = plan(&format!("{DEBIAN_6_12}{PATCHED}"), &Layout::default());
    assert_eq!(stock.points.len(), WISHES.len());
}

#[test]
fn a_copy_that_takes_its_arguments_otherwise_is_not_read() {
    for arg in [80, ABSENT] {
        let found = patched(arg);
        let refused: Vec<_> = found.refused.iter().map(|r| r.program).collect();
        assert_eq!(refused, ["poll_return", "poll_enter"]);
        assert_eq!(found.points.len(), 2);
    }
}

#[test]
fn without_vhost_net_every_essential_probe_is_refused() {
    let plan = plan("", &Layout::default());
    assert!(plan.points.is_empty());
    assert!(plan.refused.iter().any(|r| r.essential));
}
