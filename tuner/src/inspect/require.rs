//! What measuring needs from a host, one sentence each.

use super::{Kernel, ModuleState};
use crate::probe::plan::{DEVICES, Plan};

/// One thing that is needed, and whether it is there.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Requirement {
    /// Short name, stable.
    pub name: &'static str,
    /// True if it is there.
    pub met: bool,
    /// True if nothing can be measured without it.
    pub essential: bool,
    /// One sentence: what is, and if it is not met, what to do.
    pub sentence: String,
}

fn requirement(name: &'static str, met: bool, yes: String, no: String) -> Requirement {
    Requirement {
        name,
        met,
        essential: true,
        sentence: if met { yes } else { no },
    }
}

/// All requirements in the order in which they are worth reading.
#[must_use]
pub fn requirements(kernel: &Kernel) -> Vec<Requirement> {
    let mut list = vec![
        requirement(
            "privilege",
            kernel.lacking.is_none(),
            "This process may load BPF programs.".to_owned(),
            format!(
                "This process may not load BPF programs, since it lacks {}: run as root, or with \
                 CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_PTRACE, CAP_SYS_ADMIN and \
                 CAP_DAC_READ_SEARCH.",
                kernel.lacking.as_deref().unwrap_or("nothing")
            ),
        ),
        requirement(
            "kprobes",
            kernel.kprobes,
            "This kernel has kprobes.".to_owned(),
            "This kernel has no kprobes (CONFIG_KPROBES, CONFIG_KPROBE_EVENTS): nothing can be \
             attached; a kernel built with them is needed."
                .to_owned(),
        ),
        lockdown(kernel),
        vhost_net(kernel),
        requirement(
            "vhost_net_device",
            kernel.device_node,
            "/dev/vhost-net exists.".to_owned(),
            "/dev/vhost-net does not exist: load the module (`modprobe vhost_net`).".to_owned(),
        ),
        requirement(
            "kallsyms",
            kernel.addresses_visible,
            "/proc/kallsyms shows addresses.".to_owned(),
            format!("{}.", super::HIDDEN),
        ),
    ];
    list.push(match &kernel.layout {
        Ok(_) => requirement(
            "btf",
            true,
            "BTF says where everything lies.".to_owned(),
            String::new(),
        ),
        Err(why) => requirement(
            "btf",
            false,
            String::new(),
            format!("Structure offsets are not known: {why}."),
        ),
    });
    if kernel.vhost_net != ModuleState::Absent {
        list.push(module(kernel));
    }
    if let Ok(layout) = &kernel.layout {
        list.extend(probes(&Plan::make(&kernel.symbols, layout)));
        if let Some(livepatch) = &kernel.livepatch {
            list.extend(probes(&Plan::livepatch(livepatch, layout)));
        }
    }
    list
}

fn lockdown(kernel: &Kernel) -> Requirement {
    let word = kernel.lockdown.as_deref().unwrap_or("none");
    requirement(
        "lockdown",
        word != "confidentiality",
        format!("Kernel lockdown is `{word}`, which lets BPF read kernel memory."),
        "Kernel lockdown is `confidentiality`: BPF may not read kernel memory; boot with \
         lockdown=integrity or less."
            .to_owned(),
    )
}

fn vhost_net(kernel: &Kernel) -> Requirement {
    let yes = match kernel.vhost_net {
        ModuleState::BuiltIn => "vhost_net is built into this kernel.",
        _ => "vhost_net is loaded.",
    };
    requirement(
        "vhost_net",
        kernel.vhost_net != ModuleState::Absent,
        yes.to_owned(),
        "vhost_net is not loaded: load it (`modprobe vhost_net`); if there is no such module, \
         this kernel was built without CONFIG_VHOST_NET."
            .to_owned(),
    )
}

/// Measuring works without it.
fn module(kernel: &Kernel) -> Requirement {
    Requirement {
        name: "module",
        met: kernel.module.answers(),
        essential: false,
        sentence: kernel.module.sentence().to_owned(),
    }
}

/// One requirement for each probe: those that only some figures need are not
/// essential.
fn probes(plan: &Plan) -> Vec<Requirement> {
    let mut list = Vec::new();
    for point in &plan.points {
        list.push(Requirement {
            name: point.program,
            met: true,
            essential: point.essential,
            sentence: format!("{} can be probed ({}).", point.symbol, point.program),
        });
    }
    for refused in &plan.refused {
        let lacking = if refused.figures == [DEVICES] {
            "without it the list of devices is read anew every few seconds, and a device's last \
             figures may go to the next one at its address"
                .to_owned()
        } else {
            format!("without it there is no {}", refused.figures.join(", "))
        };
        list.push(Requirement {
            name: refused.program,
            met: false,
            essential: refused.essential,
            sentence: format!("{} ({}): {lacking}.", refused.why, refused.program),
        });
    }
    list
}
