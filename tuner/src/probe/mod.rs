//! Loads the eBPF programs, attaches them and reads what they count.

mod devices;
mod follow;
mod load;
pub mod plan;
mod sample;

pub use devices::{DeviceLister, DeviceRecord};
pub use follow::Followed;
pub use load::{Attached, Options, ProbeError, Probes};
pub use sample::{ProgramCost, QueueSample, Sample};
