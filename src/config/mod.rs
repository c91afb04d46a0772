//! From what was typed to what will run: flags and file (`args`) become a [`spec::RunSpec`].

pub mod sim_args;
pub mod spec;
