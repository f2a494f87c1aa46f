//! Who is who: VMs, their vhost devices, queues, workers and taps.

pub mod device;
pub mod link;
pub mod proc;
pub mod target;

pub use device::{Device, Inventory, QueueRef, RingInfo};
pub use target::{Target, TargetError};
