//! vhost-tuner: sees and turns `vhost_net` on a running Linux host.
//!
//! Data flows one way: [`inventory`] (who is who) and [`probe`] (raw figures)
//! make a sample; [`model`] turns two samples into what they mean; [`knob`]
//! changes what is set. Nothing in `model` touches the kernel.

pub mod cli;
pub mod inspect;
pub mod inventory;
pub mod knob;
pub mod lock;
pub mod model;
pub mod module;
pub mod policy;
pub mod probe;
pub mod sim;
