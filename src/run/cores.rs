//! Which core does what: workers on the last cores, everything else on the rest.

use crate::client::affinity::allowed_cores;
use crate::config::spec::RunSpec;
use crate::config::usage::UsageError;
use crate::units::display;

/// The cores of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// One entry per worker; `None` lets the scheduler choose.
    pub workers: Vec<Option<usize>>,
    /// For the collector, the feeder, the control plane and the simulator; empty when every core has a worker.
    pub control: Vec<usize>,
}

impl Cores {
    /// Divides the cores this process may use.
    ///
    /// # Errors
    /// When `--cores` names one that this process may not use, or there are more workers than cores: two on one core would
    /// delay each other.
    pub fn divide(spec: &RunSpec) -> Result<Self, UsageError> {
        Self::among(&allowed_cores(), spec)
    }

    fn among(allowed: &[usize], spec: &RunSpec) -> Result<Self, UsageError> {
        let asked: Vec<usize> =
            spec.instrument.cores.iter().filter_map(|c| usize::try_from(*c).ok()).collect();
        if let Some(foreign) = asked.iter().find(|core| !allowed.contains(core)) {
            return Err(UsageError::bad(
                "--cores",
                format!("names core {foreign}, which this process may not use"),
            ));
        }
        let slots = spec
            .load
            .asked_concurrency()
            .map_or(usize::MAX, |n| usize::try_from(n.max(1)).unwrap_or(usize::MAX));
        let default = if asked.is_empty() { allowed.len().saturating_sub(1).max(1) } else { asked.len() };
        let asked_workers = spec.instrument.workers.and_then(|n| usize::try_from(n).ok());
        let most = allowed.len().max(1);
        if asked_workers.is_some_and(|workers| workers > most) {
            let cores = display::counted(most as u64, "core");
            let allowed =
                format!("at most {most}: each has a core of its own, and this process may use {cores}");
            return Err(UsageError::range("--workers", allowed));
        }
        // A worker without a slot would have nothing to do.
        let count = asked_workers.unwrap_or(default).clamp(1, slots);
        let pool = if asked.is_empty() {
            // The first cores get most of the machine's interrupts.
            allowed.get(allowed.len().saturating_sub(count)..).unwrap_or_default().to_vec()
        } else {
            asked
        };
        let workers: Vec<Option<usize>> =
            (0..count).map(|worker| pool.get(worker % pool.len().max(1)).copied()).collect();
        let control = allowed.iter().copied().filter(|core| !workers.contains(&Some(*core))).collect();
        Ok(Self { workers, control })
    }
}
