//! Reads and sets what can be turned on a running VM.
//!
//! [`turn`] is where knobs are turned and [`undo`] where they get back what
//! they had: both by way of a [`backend`], `module` or `busyloop` and `inject`,
//! and with the [`journal`].

pub mod backend;
pub mod busyloop;
pub mod inject;
pub mod journal;
pub mod module;
pub mod turn;
pub mod undo;

pub use busyloop::{Change, Report, SetError, set};
