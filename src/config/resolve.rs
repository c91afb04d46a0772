//! From what was typed to what will run: defaults filled in, ranges checked, contradictions refused.
//!
//! The environment is an argument, so that a test can be its own; the file system is asked only whether results can
//! be written and for the key file. Nothing is sent and nothing is created.

use std::ffi::OsString;

use super::args::{Compat, RunArgs, Stamps};
use super::file::ConfigFile;
use super::sim_args::{self, SimArgsError};
use super::spec::{
    BodySpec, ConnectionMode, ConnectionSpec, Endpoint, InstrumentSpec, RunSpec, Secret, SimSpec, TargetSpec,
};
use super::usage::UsageError;
use super::{credentials, defaults, endpoint_flags, extra_body, load, outputs, prompts, url};
use crate::units::Nanos;
use crate::units::text::format_duration;

/// Looks up an environment variable; `&|name| std::env::var_os(name)` in the program.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reads the configuration file if one is named, lets the command line win, and resolves the result.
///
/// # Errors
/// [`UsageError`]: one sentence that names the flag, and the file and line when the value came from there.
pub fn run_spec(typed: RunArgs, env: Environment<'_>) -> Result<RunSpec, UsageError> {
    let Some(path) = typed.config.clone() else { return resolve(&typed, env) };
    let mut file = ConfigFile::read(&path)?;
    let args = file.fill(typed);
    resolve(&args, env).map_err(|error| file.locate(error))
}

/// Resolves flags, without reading a configuration file.
///
/// # Errors
/// [`UsageError`]: one sentence that names the flag.
pub fn resolve(args: &RunArgs, env: Environment<'_>) -> Result<RunSpec, UsageError> {
    let endpoint = endpoint_flags::endpoint(args)?;
    endpoint_flags::check_flags(args, endpoint)?;
    let compat_anvil = args.compat == Some(Compat::Anvil);
    let load = load::load(args)?;
    let prompt = prompts::prompt(args, &load, compat_anvil)?;
    let body = BodySpec {
        streamed: endpoint_flags::streamed(args, endpoint)?,
        extra: extra_body::extra_body(args, endpoint)?,
        ..prompts::body(args, compat_anvil)?
    };
    Ok(RunSpec {
        target: target(args, endpoint, env)?,
        load,
        prompt,
        body,
        connection: connection(args)?,
        instrument: instrument(args)?,
        output: outputs::output(args)?,
        labels: outputs::labels(args)?,
        dry_run: args.dry_run,
    })
}

/// `value`, or an error that says the range when it is outside.
pub(super) fn within(flag: &str, value: u64, low: u64, high: u64) -> Result<u64, UsageError> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(UsageError::range(flag, format!("between {low} and {high}")))
}

/// A text without control characters and of bounded length.
pub(super) fn plain_text(flag: &str, text: Option<&String>) -> Result<Option<String>, UsageError> {
    let Some(text) = text else { return Ok(None) };
    if text.chars().count() > defaults::MAX_LABEL_CHARS {
        return Err(UsageError::range(flag, format!("at most {} characters", defaults::MAX_LABEL_CHARS)));
    }
    if text.chars().any(char::is_control) {
        return Err(UsageError::bad(flag, "must not have control characters"));
    }
    Ok(Some(text.clone()))
}

fn target(args: &RunArgs, endpoint: Endpoint, env: Environment<'_>) -> Result<TargetSpec, UsageError> {
    let model = plain_text("--model", args.model.as_ref())?;
    if model.as_ref().is_some_and(|name| name.trim().is_empty()) {
        return Err(UsageError::bad("--model", "must not be blank"));
    }
    let mut target = TargetSpec {
        endpoint,
        plain: endpoint_flags::plain(args, endpoint)?,
        base_url: String::new(),
        host: String::new(),
        port: 0,
        path: String::new(),
        models_path: None,
        sim: None,
        model,
        api_key: credentials::api_key(args, endpoint, env)?,
        headers: credentials::headers(args, endpoint)?,
        request_id_header: !args.no_request_id,
    };
    match (&args.sim, &args.base_url) {
        (Some(_), Some(_)) => {
            return Err(UsageError::clash("--sim", "--base-url", "a run has one target"));
        }
        (Some(settings), None) => {
            if args.endpoint_path.is_some() {
                let reason = "the simulator has its own paths";
                return Err(UsageError::clash("--endpoint-path", "--sim", reason));
            }
            target.sim = Some(simulator(settings.as_deref().unwrap_or_default())?);
            let (path, models_path) = url::simulated_paths(endpoint);
            (target.path, target.models_path) = (path, Some(models_path));
        }
        (None, typed) => {
            let base = match typed {
                Some(base) => base.clone(),
                None => base_from(env)?,
            };
            url::parse(base.reveal(), args.endpoint_path.as_deref(), endpoint)?.point(&mut target);
        }
    }
    Ok(target)
}

fn base_from(env: Environment<'_>) -> Result<Secret, UsageError> {
    let variable = defaults::BASE_URL_VARIABLE;
    match env(variable).map(OsString::into_string) {
        Some(Ok(base)) if !base.trim().is_empty() => Ok(Secret::new(base)),
        Some(Err(_)) => {
            Err(UsageError::bad("--base-url", format!("comes from {variable}, which is not UTF-8")))
        }
        _ => Err(UsageError::missing("--base-url", format!("name the server, set {variable}, or use --sim"))),
    }
}

/// Reads a profile's name or `KEY=VALUE;KEY=VALUE`, with the simulator's own rules; where it listens is the run's.
fn simulator(text: &str) -> Result<SimSpec, UsageError> {
    const FLAG: &str = "--sim";
    let refuse = |error: SimArgsError| UsageError::bad(FLAG, error.as_setting());
    let spec = sim_args::parse_settings(text).map_err(refuse)?;
    if spec.settings.iter().any(|(key, _)| key == "listen") {
        return Err(UsageError::bad(FLAG, "cannot set listen: the run decides it"));
    }
    sim_args::child_arguments(&spec).map_err(refuse)?;
    Ok(spec)
}

/// A time limit, or an error that says the range.
fn time_limit(flag: &str, limit: Nanos) -> Result<Nanos, UsageError> {
    if limit > Nanos(0) && limit <= defaults::MAX_TIME_LIMIT {
        return Ok(limit);
    }
    let most = format_duration(defaults::MAX_TIME_LIMIT);
    Err(UsageError::range(flag, format!("more than 0s and at most {most}")))
}

fn connection(args: &RunArgs) -> Result<ConnectionSpec, UsageError> {
    let limit = |flag, value: Option<Nanos>, default| time_limit(flag, value.unwrap_or(default));
    let mode = args.connection.unwrap_or(ConnectionMode::Keep);
    if args.prewarm && mode == ConnectionMode::Fresh {
        let reason = "a connection made before the first request is not a fresh one";
        return Err(UsageError::clash("--prewarm", "--connection fresh", reason));
    }
    Ok(ConnectionSpec {
        mode,
        prewarm: args.prewarm,
        source_ips: args.source_ip.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
        timeout: limit("--timeout", args.timeout, defaults::TIMEOUT)?,
        idle_timeout: limit("--idle-timeout", args.idle_timeout, defaults::IDLE_TIMEOUT)?,
        connect_timeout: limit("--connect-timeout", args.connect_timeout, defaults::CONNECT_TIMEOUT)?,
    })
}

fn instrument(args: &RunArgs) -> Result<InstrumentSpec, UsageError> {
    let cores = args.cores.as_ref().map(|list| list.0.clone()).unwrap_or_default();
    let most = u64::from(defaults::MAX_CORES);
    let workers = args.workers.map(|n| within("--workers", n, 1, most)).transpose()?;
    let named = (!cores.is_empty()).then_some(cores.len() as u64);
    if let (Some(workers), Some(named)) = (workers, named)
        && workers > named
    {
        let reason = format!("{workers} workers need as many cores, and {named} are named");
        return Err(UsageError::clash("--workers", "--cores", reason));
    }
    let kernel_stamps = args.stamps != Some(Stamps::User);
    let max_client_error =
        args.max_client_error.map(|limit| time_limit("--max-client-error", limit)).transpose()?;
    if max_client_error.is_some() && !kernel_stamps {
        let reason = "without kernel stamps nobody knows how late reading was";
        return Err(UsageError::clash("--max-client-error", "--stamps user", reason));
    }
    Ok(InstrumentSpec {
        workers: workers.or(named).and_then(|n| u32::try_from(n).ok()),
        cores,
        kernel_stamps,
        strict: args.strict_instrument,
        max_client_error,
    })
}
