//! A model of vhost queue pairs, event by event, on which policies are compared.
//! Nothing here touches the kernel.

pub mod day;
mod flow;
mod machine;
mod random;
mod rivals;
mod run;
mod table;
mod tally;
mod workload;

pub use machine::Sight;
pub use run::{Contender, Result, ours, run};
pub use table::{Comparison, POLICIES, Plan, Row, compare};
pub use workload::{ALL as WORKLOADS, Kind, Workload};
