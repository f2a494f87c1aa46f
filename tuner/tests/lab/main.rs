//! Tests on a real vhost_net, run as root inside the lab VM by
//! `cargo xtask test`. One after the other: they share the kernel.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on ends, and says where"
)]

mod batches;
mod broken_into;
mod byhand;
mod counts;
mod detach;
mod ends;
mod events;
mod gaps;
mod guests;
mod inventory;
mod locks;
mod module;
mod namespaces;
mod polls;
mod rights;
mod scale;
mod set;
mod support;
mod undo;
