//! Reads and sets what can be turned on a running VM.

pub mod busyloop;
pub mod inject;
pub mod journal;
pub mod module;

pub use busyloop::{Change, Report, SetError, set};
