//! The hammerscale binary.

fn main() {}
