//! Network devices of the host, and vhost on top of them.

mod link;
mod macvtap;
mod setup;
mod tap;
mod vhost;

pub use link::{LinkCounts, mac_address};
pub use setup::{Device, QueuePair, RxGeometry};
pub use vhost::VhostNet;
