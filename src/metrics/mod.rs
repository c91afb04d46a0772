//! Definitions: the one catalog of metrics, the formulas, the one quantile rule, the statistics. Pure functions over
//! [`row::RequestRow`]s and plain numbers: nothing here reads a clock, a socket or a file.

pub mod catalog;
pub mod compat;
pub mod distribution;
pub mod exact;
pub mod formula;
pub mod gaps;
pub mod interval;
pub mod observe;
pub mod parts;
pub mod quantile;
pub mod rates;
pub mod row;
pub mod rows;
#[cfg(test)]
pub(crate) mod testing;
pub mod token_gaps;
pub mod varint;

pub use catalog::{CATALOG, Metric, MetricId};
pub use distribution::{Distribution, Percentiles, Statistic};
