//! Our modules come and go while the programs are attached. The livepatch has
//! copies of some functions, which are probed as well while it is there; the
//! stock ones stay probed, since for a while some tasks run these and others
//! those. A vhost_net that was loaded anew took its probes along when it went.

use std::collections::BTreeMap;

use aya::programs::kprobe::KProbeLinkId;
use aya::programs::{KProbe, ProgramError};

use super::load::{Attached, ProbeError, Probes, attach_one};
use super::plan::Plan;
use crate::inspect::{Kernel, Livepatch, Modules};

/// What is attached to the livepatch.
#[derive(Default)]
pub(super) struct Patch {
    links: Vec<(&'static str, KProbeLinkId)>,
    pub(super) attached: Vec<Attached>,
    /// Figures that are unknown as long as it is there.
    pub(super) degraded: BTreeMap<&'static str, String>,
}

/// What has changed since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Nothing.
    Nothing,
    /// The livepatch came. From then until now, what ran its copies was not
    /// seen.
    Came,
    /// The livepatch went, when nothing ran it any more: nothing was missed.
    Went,
    /// vhost_net was loaded anew, and the probes attached anew: everything
    /// counts from nothing.
    Reloaded,
}

impl Probes {
    /// Looks whether our livepatch came or went, or vhost_net was loaded anew,
    /// and attaches to what is there. Cheap while nothing has changed.
    ///
    /// # Errors
    /// If a new vhost_net cannot be measured. The probes are of no use then.
    pub fn follow(&mut self) -> Result<Followed, ProbeError> {
        let now = Modules::look();
        // While vhost_net is away there is nothing to attach to, and nothing
        // to count.
        if now.vhost_net.is_some() && now.vhost_net != self.modules.vhost_net {
            *self = Self::attach(&Kernel::inspect(), self.options)
                .map_err(|why| ProbeError::Reloaded(Box::new(why)))?;
            return Ok(Followed::Reloaded);
        }
        if now.livepatch == self.modules.livepatch {
            return Ok(Followed::Nothing);
        }
        self.modules.livepatch = now.livepatch;
        self.leave_patch();
        if now.livepatch.is_none() {
            return Ok(Followed::Went);
        }
        self.attach_patch(&Livepatch::inspect());
        Ok(Followed::Came)
    }

    /// Attaches to the livepatch's copies.
    pub(super) fn attach_patch(&mut self, livepatch: &Livepatch) {
        let plan = Plan::livepatch(livepatch, &self.layout);
        let mut patch = Patch::default();
        for refused in plan.refused {
            patch.degrade(refused.figures, &refused.why);
        }
        for point in plan.points {
            match attach_one(&mut self.ebpf, &point) {
                Ok((attached, link)) => {
                    patch.attached.push(attached);
                    patch.links.push((point.program, link));
                }
                Err(why) => patch.degrade(point.figures, &why),
            }
        }
        self.patch = Some(patch);
    }

    /// Lets go of what was attached to a livepatch that is gone.
    fn leave_patch(&mut self) {
        let links = self.patch.take().into_iter().flat_map(|patch| patch.links);
        for (name, link) in links {
            let Some(program) = self.ebpf.program_mut(name) else {
                continue;
            };
            let detached =
                <&mut KProbe>::try_from(program).and_then(|probe: &mut KProbe| probe.detach(link));
            // The kernel has disarmed it together with the code it was in.
            if let Err::<(), ProgramError>(why) = detached {
                log::debug!("{name} cannot be let go: {why}");
            }
        }
    }
}

impl Patch {
    fn degrade(&mut self, figures: &[&'static str], why: &str) {
        for figure in figures {
            self.degraded
                .entry(figure)
                .or_insert_with(|| why.to_owned());
        }
    }
}
