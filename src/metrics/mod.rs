//! Definitions: the one catalog of metrics, the formulas, the one quantile rule. Pure functions over [`row::RequestRow`]s.

pub mod row;
