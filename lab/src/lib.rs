//! The lab's guest: an interrupt-driven virtio-net driver on
//! `/dev/vhost-net`, in one ordinary process, with traffic that is counted
//! exactly.
//!
//! It stands in for a VM where a test must know to the packet, the kick and
//! the interrupt what a probe ought to have seen. [`ring`] and [`nic`] are
//! the driver, [`device`] opens taps and vhost, [`guest`] and [`host`] are
//! the two ends of the traffic, [`traffic`] are the modes, and [`session`]
//! is the program.

pub mod bench;
pub mod console;
pub mod counters;
pub mod device;
pub mod guest;
pub mod hold;
pub mod host;
pub mod mmsg;
pub mod nic;
pub mod options;
pub mod pace;
pub mod packet;
pub mod quantiles;
pub mod report;
pub mod ring;
pub mod sequence;
pub mod session;
pub mod sitters;
pub mod system;
pub mod traffic;
pub mod wire;
