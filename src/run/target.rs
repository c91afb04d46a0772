//! Who is measured: starts the simulator when it is the target, resolves the host, asks for the model.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::client::probe::{self, Answer, Limits, PROBE_TIMEOUT, ProbeError};
use crate::client::resolve;
use crate::client::route::{self, Route};
use crate::config::masking;
use crate::config::sim_args::child_arguments;
use crate::config::spec::{ProgressMode, ResolvedTarget, RunSpec};
use crate::config::url;
use crate::config::usage::UsageError;
use crate::plan::models::{self, ModelList};
use crate::run::error::RunError;
use crate::run::sim_child::SimChild;

/// Stands for the model in the documents of a run whose server could not be asked for it.
const UNKNOWN_MODEL: &str = "unknown";

/// A server that answers sooner needs no word about it.
const SILENT: Duration = Duration::from_secs(1);

const SOURCE_IP: &str = "--source-ip";

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
    let sources = &spec.connection.source_ips;
    let (addresses, dns_error) = match resolve::resolve(&spec.target.host, spec.target.port) {
        Ok(addresses) => {
            check_families(sources, &addresses)?;
            (resolve::answering(&route::routes(sources, &addresses)), None)
        }
        Err(error) => {
            (Vec::new(), Some(format!("cannot resolve {}: {error}", masking::shown(spec).target.host)))
        }
    };
    let plain = !spec.target.endpoint.takes_prompts();
    let known = plain || (spec.target.model.is_some() && spec.prompt.max_model_len.is_some());
    let routes = route::routes(sources, &addresses);
    let answer = if known || routes.is_empty() { None } else { ask(spec, &routes) };
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
        (Some(Ok(answer)), named) => read_models(spec, &answer, named, &mut target.resolved)?,
        // A server that does not answer this question may still serve; its length is then unknown.
        (_, true) => {}
        (Some(Err(ProbeError::Connect(error))), false) => {
            target.resolved.unreachable =
                Some(format!("cannot reach {}: {error}", masking::shown(spec).target.base_url));
        }
        (Some(Err(error)), false) => return Err(no_list(spec, &came(&error)).into()),
        (None, false) => {
            target.resolved.unreachable = target.resolved.unresolved.clone();
            if target.resolved.unreachable.is_none() {
                let reason = "this --endpoint-path does not tell where the server lists its models";
                return Err(UsageError::missing("--model", reason).into());
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

/// Before the first packet: this machine has every local address to connect from.
///
/// # Errors
/// Names the first that it does not have.
pub fn check_sources(sources: &[IpAddr]) -> Result<(), UsageError> {
    let refused = sources.iter().find_map(|source| Some((source, route::try_source(*source).err()?)));
    refused.map_or(Ok(()), |(source, error)| {
        Err(UsageError::bad(SOURCE_IP, format!("{source} cannot be connected from: {error}")))
    })
}

/// Every local address must have an address of the target that it can connect to.
fn check_families(sources: &[IpAddr], addresses: &[SocketAddr]) -> Result<(), UsageError> {
    route::stranded(sources, addresses).next().map_or(Ok(()), |source| {
        let family = if source.is_ipv4() { "IPv4" } else { "IPv6" };
        Err(UsageError::bad(SOURCE_IP, format!("{source} is of no use: the target has no {family} address")))
    })
}

fn ask(spec: &RunSpec, routes: &[Route]) -> Option<Result<Answer, ProbeError>> {
    let path = spec.target.models_path.as_deref()?;
    let host = url::host_header(&spec.target.host, spec.target.port);
    let fields = spec.target.fields();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.reveal())).collect();
    let limits = Limits {
        total: PROBE_TIMEOUT.min(spec.connection.timeout),
        connect: PROBE_TIMEOUT.min(spec.connection.connect_timeout),
        idle: PROBE_TIMEOUT.min(spec.connection.idle_timeout),
    };
    let shown = !spec.output.quiet && spec.output.progress != ProgressMode::None;
    Some(std::thread::scope(|scope| {
        let (answered, waiting) = mpsc::channel::<()>();
        // Without a thread the wait is silent, and nothing else is different.
        let _ = std::thread::Builder::new().name("patience".to_owned()).spawn_scoped(scope, move || {
            if shown && waiting.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout) {
                let line = format!("hammerscale: asking {} for its models", models_url(spec));
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        });
        let answer = probe::get(routes, &host, path, &fields, limits);
        drop(answered);
        answer
    }))
}

/// Where the target's models are asked for, as it may be shown.
fn models_url(spec: &RunSpec) -> String {
    let target = masking::shown(spec).target;
    let host = url::host_header(&target.host, target.port);
    format!("http://{host}{}", target.models_path.unwrap_or_default())
}

fn no_list(spec: &RunSpec, came: &str) -> UsageError {
    models::no_list(&models_url(spec), came)
}

/// What came instead of an answer.
fn came(error: &ProbeError) -> String {
    match error {
        ProbeError::Late => error.to_string(),
        ProbeError::Connect(_) | ProbeError::Io(_) => format!("a connection that broke ({error})"),
        ProbeError::Request(_) | ProbeError::Http(_) => format!("no HTTP answer ({error})"),
        ProbeError::TooLarge => "an answer longer than any list".to_owned(),
    }
}

fn read_models(
    spec: &RunSpec,
    answer: &Answer,
    named: bool,
    resolved: &mut ResolvedTarget,
) -> Result<(), UsageError> {
    let list = if answer.status == 200 { ModelList::parse(&answer.body) } else { None };
    match list {
        None if named => Ok(()),
        None if answer.status != 200 => Err(no_list(spec, &format!("status {}", answer.status))),
        None => Err(no_list(spec, "an answer that is no JSON list of models")),
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
