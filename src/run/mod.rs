//! Runs.
pub mod feeder;
pub mod progress;
pub mod sim_child;
