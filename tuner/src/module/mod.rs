//! Our kernel module: which one is loaded, which files fit this kernel, and
//! how it is brought in and out.
//!
//! [`decide`], [`state`], [`elf`], [`layout`] and [`files`] decide and parse;
//! [`facts`], [`insert`], [`transition`], [`contend`] and [`act`] touch the
//! kernel.

pub mod act;
pub mod contend;
pub mod decide;
pub mod elf;
pub mod facts;
pub mod files;
pub mod insert;
pub mod layout;
pub mod state;
pub mod status;
mod stock;
pub mod tasks;
pub mod transition;

/// Name of the module that is replaced, and of our replacement.
pub const VHOST_NET: &str = "vhost_net";
pub use crate::knob::module::LIVEPATCH;
