//! From what was typed to what will run: flags ([`args`]) and file ([`mod@file`]) become a [`spec::RunSpec`]
//! ([`resolve`]), or one sentence that says why not ([`usage`]).

pub mod args;
pub mod calibrate_args;
mod credentials;
pub mod defaults;
pub mod endpoint;
mod endpoint_flags;
mod extra_body;
pub mod file;
mod input;
pub mod inspect_args;
mod lists;
pub mod load;
pub mod masking;
mod outputs;
mod prompts;
pub mod reasoning;
pub mod report_args;
pub mod request_args;
pub mod resolve;
pub mod sim_args;
pub mod spec;
pub mod url;
pub mod usage;
