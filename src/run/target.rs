//! Who is measured: starts the simulator when it is the target, resolves the host, asks for the model.

use std::net::SocketAddr;

use crate::client::probe::{self, Answer, ProbeError};
use crate::client::resolve;
use crate::config::sim_args::child_arguments;
use crate::config::spec::{ResolvedTarget, RunSpec};
use crate::config::url;
use crate::config::usage::UsageError;
use crate::plan::models::{self, ModelList};
use crate::run::error::RunError;
use crate::run::sim_child::SimChild;

/// Stands for the model in the documents of a run whose server could not be asked for it.
const UNKNOWN_MODEL: &str = "unknown";

/// A target that was looked at.
#[derive(Debug)]
pub struct Target {
    /// What was found out.
    pub resolved: ResolvedTarget,
    /// The simulator, as long as it is needed.
    pub sim: Option<SimChild>,
}

/// Looks at the target; the simulator's address goes into the specification.
///
/// # Errors
/// When the simulator does not start, or the server lists no model or several and none was named.
pub fn prepare(spec: &mut RunSpec, sim_cores: &[usize]) -> Result<Target, RunError> {
    let sim = start_sim(spec, sim_cores)?;
    let addresses = resolve::resolve(&spec.target.host, spec.target.port);
    let (addresses, dns_error) = match addresses {
        Ok(addresses) => (addresses, None),
        Err(error) => (Vec::new(), Some(format!("cannot resolve {}: {error}", spec.target.host))),
    };
    let plain = !spec.target.endpoint.takes_prompts();
    let known = plain || (spec.target.model.is_some() && spec.prompt.max_model_len.is_some());
    let answer = if known || addresses.is_empty() { None } else { ask(spec, &addresses) };
    let mut target = Target {
        resolved: ResolvedTarget {
            addresses,
            model: match &spec.target.model {
                Some(model) => model.clone(),
                None if plain => String::new(),
                None => UNKNOWN_MODEL.to_owned(),
            },
            max_model_len: spec.prompt.max_model_len,
            unresolved: dns_error,
            unreachable: None,
        },
        sim,
    };
    if known {
        return Ok(target);
    }
    match (answer, spec.target.model.is_some()) {
        (Some(Ok(answer)), named) => read_models(&answer, named, &mut target.resolved)?,
        // A server that does not answer this question may still serve; its length is then unknown.
        (_, true) => {}
        (Some(Err(ProbeError::Connect(error))), false) => {
            target.resolved.unreachable = Some(format!("cannot reach {}: {error}", spec.target.base_url));
        }
        (Some(Err(_)), false) => return Err(RunError::Usage(models::no_list())),
        (None, false) => {
            target.resolved.unreachable = target.resolved.unresolved.clone();
            if target.resolved.unreachable.is_none() {
                return Err(RunError::Usage(models::no_list()));
            }
        }
    }
    Ok(target)
}

fn start_sim(spec: &mut RunSpec, cores: &[usize]) -> Result<Option<SimChild>, RunError> {
    let Some(settings) = spec.target.sim.as_ref() else { return Ok(None) };
    let arguments = child_arguments(settings).map_err(|e| UsageError::bad("--sim", e.to_string()))?;
    let child = SimChild::start(&arguments, cores)?;
    url::parse(&child.base_url, None, spec.target.endpoint)?.point(&mut spec.target);
    Ok(Some(child))
}

fn ask(spec: &RunSpec, addresses: &[SocketAddr]) -> Option<Result<Answer, ProbeError>> {
    let path = spec.target.models_path.as_deref()?;
    let host = url::host_header(&spec.target.host, spec.target.port);
    let fields = spec.target.fields();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.reveal())).collect();
    Some(probe::get(addresses, &host, path, &fields))
}

fn read_models(answer: &Answer, named: bool, resolved: &mut ResolvedTarget) -> Result<(), UsageError> {
    let list = if answer.status == 200 { ModelList::parse(&answer.body) } else { None };
    match list {
        None if named => Ok(()),
        None => Err(models::no_list()),
        Some(list) => {
            if !named {
                list.only_model()?.clone_into(&mut resolved.model);
            }
            if resolved.max_model_len.is_none() {
                resolved.max_model_len = list.max_model_len(&resolved.model);
            }
            Ok(())
        }
    }
}
