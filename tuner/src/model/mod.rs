//! What two samples mean. Pure: no I/O, nothing from the kernel.

pub mod cost;
pub mod curve;
pub mod figures;
pub mod histogram;

pub use curve::{Curve, Grid};
pub use figures::Figures;
pub use histogram::{Quantiles, TimeHistogram};
