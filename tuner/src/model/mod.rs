//! What two samples mean. Pure: no I/O, nothing from the kernel.

pub mod figures;
pub mod histogram;

pub use figures::Figures;
pub use histogram::{Quantiles, TimeHistogram};
