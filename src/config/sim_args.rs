//! The flags of `hammerscale sim`: what was typed ([`SimArgs`]) becomes what will run ([`SimOptions`]), and the
//! settings of `run --sim=…` become the flags of a child process. The same names everywhere, declared once.
//!
//! Every refusal is one sentence that starts with the flag. Does not listen, pin or serve (see `sim`).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, Command, FromArgMatches};

use crate::config::input;
use crate::config::spec::SimSpec;
use crate::sim::{CountDistribution, DurationDistribution, Shape, SimOptions};
use crate::units::text::parse_duration;

/// Where the simulator listens unless told otherwise: not reachable from outside, on a free port.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:0";

/// The profile that holds where none is named.
pub const DEFAULT_PROFILE: &str = "default";

/// Longest trace file: about two million durations, more than any run draws.
const MAX_TRACE_BYTES: u64 = 32 * 1024 * 1024;

/// Highest core number: the size of the kernel's own set in the C library.
const MAX_CORE: usize = 1023;

/// A named set of settings; flags that are given win over it.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it stands for, for people.
    pub meaning: &'static str,
    ttft: &'static str,
    itl: &'static str,
    reasoning_tokens: &'static str,
    tokens_per_chunk: &'static str,
}

/// Every profile. None of them sets the number of tokens: that is what the request asks for.
pub const PROFILES: [Profile; 6] = [
    Profile {
        name: DEFAULT_PROFILE,
        meaning: "a lightly loaded engine: first token after about 80 ms, then one every 20 ms",
        ttft: "lognormal:80ms,20ms",
        itl: "20ms",
        reasoning_tokens: "0",
        tokens_per_chunk: "1",
    },
    Profile {
        name: "loaded",
        meaning: "an engine under load: first token after about 600 ms with a long tail, uneven gaps",
        ttft: "lognormal:600ms,400ms",
        itl: "lognormal:45ms,20ms",
        reasoning_tokens: "0",
        tokens_per_chunk: "1",
    },
    Profile {
        name: "reasoning",
        meaning: "a reasoning model: 32 to 256 tokens of reasoning before the answer",
        ttft: "lognormal:150ms,40ms",
        itl: "normal:15ms,2ms",
        reasoning_tokens: "uniform:32,256",
        tokens_per_chunk: "1",
    },
    Profile {
        name: "speculative",
        meaning: "speculative decoding: 1 to 4 tokens in an event",
        ttft: "lognormal:80ms,20ms",
        itl: "normal:25ms,3ms",
        reasoning_tokens: "0",
        tokens_per_chunk: "uniform:1,4",
    },
    Profile {
        name: "fast",
        meaning: "first token after 5 ms, then one every millisecond",
        ttft: "5ms",
        itl: "1ms",
        reasoning_tokens: "0",
        tokens_per_chunk: "1",
    },
    Profile {
        name: "instant",
        meaning: "everything at once, as fast as the simulator can send",
        ttft: "0ms",
        itl: "0ms",
        reasoning_tokens: "0",
        tokens_per_chunk: "1",
    },
];

/// Flags of `hammerscale sim`, as typed.
///
/// DIST is one of: 50ms, normal:50ms,5ms, lognormal:MEAN,SD, exp:MEAN, uniform:A,B, trace:FILE (one value per line). Counts
/// take plain numbers in the same forms.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SimArgs {
    /// Address and port to listen on; port 0 picks a free one. The first line on stdout says which
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: String,

    /// Named settings that hold where a flag is not given: default, loaded, reasoning, speculative, fast, instant
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PROFILE)]
    pub profile: String,

    /// From the complete request to the first output event (50ms, normal:50ms,5ms, lognormal:MEAN,SD, exp:MEAN,
    /// uniform:A,B, trace:FILE)
    #[arg(long, value_name = "DIST")]
    pub ttft: Option<String>,

    /// From one output event to the next
    #[arg(long, value_name = "DIST")]
    pub itl: Option<String>,

    /// Tokens of visible content [default: the number the request asks for]
    #[arg(long, value_name = "DIST")]
    pub tokens: Option<String>,

    /// Tokens of reasoning before the content; they count against the request's limit
    #[arg(long, value_name = "DIST")]
    pub reasoning_tokens: Option<String>,

    /// Tokens in one output event
    #[arg(long, value_name = "DIST")]
    pub tokens_per_chunk: Option<String>,

    /// Answers under way at once; later requests wait for their turn, in the order they came [default: no limit]
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<String>,

    /// Write what was really sent, and when, to this file; an existing ledger is replaced
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,

    /// Cores to run on (0,2-3): the first for sending, the others for writing the ledger
    #[arg(long, value_name = "LIST")]
    pub cores: Option<String>,

    /// Fixes every draw: the n-th completion always has the same schedule and text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// End when standard input ends, so that a simulator does not outlive its parent
    #[arg(long)]
    pub exit_with_stdin: bool,

    /// Print a ledger as JSON lines and exit
    #[arg(long, value_name = "FILE")]
    pub dump_ledger: Option<PathBuf>,
}

/// Why the flags cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimArgsError {
    /// A flag's value is no good.
    #[error("--{flag}: {reason}")]
    Value {
        /// Which flag, without dashes.
        flag: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The settings of `run --sim` are no good.
    #[error("--sim: {0}")]
    Setting(String),
}

impl SimArgsError {
    /// What is wrong, to be said after the name of the flag that brought the settings.
    #[must_use]
    pub fn as_setting(&self) -> String {
        match self {
            Self::Value { flag, reason } => format!("cannot be read: {flag}: {reason}"),
            Self::Setting(reason) => format!("cannot be read: {reason}"),
        }
    }
}

impl SimArgs {
    /// Checks everything and reads trace files.
    ///
    /// # Errors
    /// [`SimArgsError::Value`] for the first flag that cannot be used.
    pub fn resolve(self) -> Result<SimOptions, SimArgsError> {
        let profile = PROFILES.iter().find(|p| p.name == self.profile).ok_or_else(|| {
            let names: Vec<_> = PROFILES.iter().map(|p| p.name).collect();
            value_error(
                "profile",
                format!("there is no profile '{}' (there are {})", self.profile, names.join(", ")),
            )
        })?;
        let listen: SocketAddr = self.listen.parse().map_err(|_| {
            value_error(
                "listen",
                format!("'{}' is not an address and a port such as 127.0.0.1:8000", self.listen),
            )
        })?;
        let or = |given: &Option<String>, preset: &str| given.clone().unwrap_or_else(|| preset.to_owned());
        Ok(SimOptions {
            listen,
            ttft: duration_distribution("ttft", &or(&self.ttft, profile.ttft))?,
            itl: duration_distribution("itl", &or(&self.itl, profile.itl))?,
            tokens: self.tokens.as_deref().map(|text| count_distribution("tokens", text)).transpose()?,
            reasoning_tokens: count_distribution(
                "reasoning-tokens",
                &or(&self.reasoning_tokens, profile.reasoning_tokens),
            )?,
            tokens_per_chunk: count_distribution(
                "tokens-per-chunk",
                &or(&self.tokens_per_chunk, profile.tokens_per_chunk),
            )?,
            max_in_flight: self.max_in_flight.as_deref().map(parse_in_flight).transpose()?,
            ledger: self.ledger,
            cores: self.cores.as_deref().map(parse_cores).transpose()?.unwrap_or_default(),
            seed: self.seed,
            exit_with_stdin: self.exit_with_stdin,
        })
    }
}

/// Reads the value of `run --sim=…`: a profile's name, or `KEY=VALUE` pairs separated by semicolons. An empty text is
/// the default profile.
///
/// # Errors
/// [`SimArgsError::Setting`] for a piece without a key or a value; keys are checked by [`child_arguments`].
pub fn parse_settings(text: &str) -> Result<SimSpec, SimArgsError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(SimSpec::default());
    }
    if !text.contains('=') {
        return Ok(SimSpec { settings: vec![("profile".to_owned(), text.to_owned())] });
    }
    let pieces = text.split(';').map(str::trim).filter(|piece| !piece.is_empty());
    let settings = pieces.map(|piece| match piece.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(SimArgsError::Setting(format!("'{piece}' is not KEY=VALUE"))),
    });
    Ok(SimSpec { settings: settings.collect::<Result<_, _>>()? })
}

/// The arguments of a child process that is the simulator with these settings and ends with its parent. Keys may be
/// written with underscores. Everything is checked here, so that the child does not fail for a typing error.
///
/// # Errors
/// [`SimArgsError`] naming the setting.
pub fn child_arguments(spec: &SimSpec) -> Result<Vec<String>, SimArgsError> {
    let command = SimArgs::augment_args(Command::new("sim").disable_help_flag(true));
    let known: BTreeSet<String> = command
        .get_arguments()
        .filter(|a| a.get_action().takes_values())
        .filter_map(|a| a.get_long().map(str::to_owned))
        // One prints instead of serving, and where a child listens is its parent's to say.
        .filter(|name| !["dump-ledger", "listen"].contains(&name.as_str()))
        .collect();
    let mut arguments = vec!["sim".to_owned()];
    let mut seen = BTreeSet::new();
    for (key, value) in &spec.settings {
        let name = key.replace('_', "-");
        if !known.contains(&name) {
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            return Err(SimArgsError::Setting(format!(
                "there is no setting '{key}' (there are {})",
                known.join(", ")
            )));
        }
        if !seen.insert(name.clone()) {
            return Err(SimArgsError::Setting(format!("'{key}' is given twice")));
        }
        arguments.push(format!("--{name}={value}"));
    }
    arguments.push("--exit-with-stdin".to_owned());
    let matches = command.try_get_matches_from(&arguments).map_err(|e| setting_error(&e))?;
    SimArgs::from_arg_matches(&matches)
        .map_err(|e| setting_error(&e))?
        .resolve()
        .map_err(|e| SimArgsError::Setting(e.to_string().trim_start_matches("--").to_owned()))?;
    Ok(arguments)
}

/// The first line of the parser's message, without its own prefix.
fn setting_error(error: &clap::Error) -> SimArgsError {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    SimArgsError::Setting(line.trim_start_matches("error: ").to_owned())
}

const fn value_error(flag: &'static str, reason: String) -> SimArgsError {
    SimArgsError::Value { flag, reason }
}

fn duration_distribution(flag: &'static str, text: &str) -> Result<DurationDistribution, SimArgsError> {
    parse_shape(text, parse_nanos)
        .and_then(|shape| DurationDistribution::from_nanos(shape).map_err(|e| e.to_string()))
        .map_err(|reason| value_error(flag, format!("'{text}': {reason}")))
}

fn count_distribution(flag: &'static str, text: &str) -> Result<CountDistribution, SimArgsError> {
    parse_shape(text, parse_count)
        .and_then(|shape| CountDistribution::new(shape).map_err(|e| e.to_string()))
        .map_err(|reason| value_error(flag, format!("'{text}': {reason}")))
}

type Number = fn(&str) -> Result<f64, String>;

fn parse_shape(text: &str, number: Number) -> Result<Shape, String> {
    let Some((name, parameters)) = text.split_once(':') else {
        return Shape::constant(number(text)?).map_err(|e| e.to_string());
    };
    let one = || number(parameters);
    let two = || -> Result<(f64, f64), String> {
        let (a, b) =
            parameters.split_once(',').ok_or_else(|| format!("{name} takes two values, as in {name}:A,B"))?;
        Ok((number(a)?, number(b)?))
    };
    let shape = match name {
        "normal" => two().map(|(mean, deviation)| Shape::normal(mean, deviation))?,
        "lognormal" => two().map(|(mean, deviation)| Shape::log_normal(mean, deviation))?,
        "uniform" => two().map(|(low, high)| Shape::uniform(low, high))?,
        "exp" => one().map(Shape::exponential)?,
        "trace" => Shape::trace(&read_trace(parameters, number)?),
        _ => {
            return Err(format!(
                "there is no distribution '{name}' (there are normal, lognormal, exp, uniform, trace)"
            ));
        }
    };
    shape.map_err(|e| e.to_string())
}

fn read_trace(path: &str, number: Number) -> Result<Vec<f64>, String> {
    let bytes = input::read(Path::new(path), MAX_TRACE_BYTES + 1).map_err(|e| format!("{path}: {e}"))?;
    if bytes.len() as u64 > MAX_TRACE_BYTES {
        return Err(format!("{path}: the file is longer than {MAX_TRACE_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{path}: not UTF-8 text"))?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let values = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    values.map(|(i, line)| number(line).map_err(|e| format!("{path} line {i}: {e}"))).collect()
}

fn parse_count(text: &str) -> Result<f64, String> {
    parse_plain(text).ok_or_else(|| format!("'{text}' is not a number of tokens"))
}

#[expect(clippy::cast_precision_loss, reason = "a duration beyond 104 days rounds by a nanosecond")]
fn parse_nanos(text: &str) -> Result<f64, String> {
    let text = text.trim();
    match parse_duration(text) {
        Ok(span) => Ok(span.0 as f64),
        Err(_) => Err(format!("'{text}' is not a duration such as 20ms")),
    }
}

/// Digits with at most one decimal point: no sign, no exponent, no infinity.
fn parse_plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain =
        text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn parse_in_flight(text: &str) -> Result<NonZeroUsize, SimArgsError> {
    let wrong = || value_error("max-in-flight", format!("'{text}' is not a number of answers from 1 up"));
    text.trim().parse().map_err(|_| wrong())
}

fn parse_cores(text: &str) -> Result<Vec<usize>, SimArgsError> {
    let wrong = || value_error("cores", format!("'{text}' is not a list of cores such as 0,2-3"));
    let mut cores = Vec::new();
    for piece in text.split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let core = |text: &str| text.trim().parse::<usize>().ok().filter(|&core| core <= MAX_CORE);
        match (core(first), core(last)) {
            (Some(first), Some(last)) if first <= last => cores.extend(first..=last),
            _ => return Err(wrong()),
        }
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn parse(arguments: &[&str]) -> SimArgs {
        let command = SimArgs::augment_args(Command::new("sim"));
        let matches = command.try_get_matches_from([&["sim"], arguments].concat()).unwrap();
        SimArgs::from_arg_matches(&matches).unwrap()
    }

    fn refusal(arguments: &[&str]) -> String {
        parse(arguments).resolve().unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_the_documented_profile() {
        let options = parse(&[]).resolve().unwrap();
        let explicit = parse(&[
            "--ttft=lognormal:80ms,20ms",
            "--itl=20ms",
            "--reasoning-tokens=0",
            "--tokens-per-chunk=1",
        ]);
        assert_eq!(options, explicit.resolve().unwrap());
        assert_eq!(options.listen, "127.0.0.1:0".parse().unwrap());
        assert_eq!((options.tokens, options.seed, options.exit_with_stdin), (None, 0, false));
    }

    #[test]
    fn every_profile_resolves_and_is_in_the_help() {
        let mut command = SimArgs::augment_args(Command::new("sim"));
        let help = command.render_long_help().to_string();
        for profile in PROFILES {
            let base = parse(&["--profile", profile.name]).resolve().unwrap();
            let changed = parse(&["--profile", profile.name, "--itl", "7ms"]).resolve().unwrap();
            assert_eq!(base.ttft, changed.ttft);
            assert_eq!(changed.itl, DurationDistribution::from_nanos(Shape::constant(7e6).unwrap()).unwrap());
            assert!(help.contains(profile.name) && !profile.meaning.is_empty());
        }
    }

    #[test]
    fn distributions_are_read() {
        let nanos = |text| parse_shape(text, parse_nanos);
        assert_eq!(nanos("50ms"), Ok(Shape::constant(5e7).unwrap()));
        assert_eq!(nanos("normal:50ms,5ms"), Ok(Shape::normal(5e7, 5e6).unwrap()));
        assert_eq!(nanos("lognormal:1s,250us"), Ok(Shape::log_normal(1e9, 2.5e5).unwrap()));
        assert_eq!(nanos("exp:1.5m"), Ok(Shape::exponential(9e10).unwrap()));
        assert_eq!(nanos("uniform:0,2"), Ok(Shape::uniform(0.0, 2e9).unwrap()));
        assert_eq!(parse_shape("uniform:1,4", parse_count), Ok(Shape::uniform(1.0, 4.0).unwrap()));
    }

    #[test]
    fn a_trace_is_read_and_its_faults_have_a_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "# gaps\n10ms\n\n 20us \n").unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        assert_eq!(
            parse_shape(&format!("trace:{path}"), parse_nanos),
            Ok(Shape::trace(&[1e7, 2e4]).unwrap())
        );
        writeln!(file, "soon").unwrap();
        let message = refusal(&[&format!("--itl=trace:{path}")]);
        assert!(
            message.starts_with("--itl: ") && message.contains("line 5: 'soon' is not a duration"),
            "{message}"
        );
        assert!(refusal(&["--ttft=trace:/nowhere/at/all"]).starts_with("--ttft: "));
        assert!(refusal(&["--ttft=trace:src"]).contains("it is a directory"));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(refusal(&[&format!("--ttft=trace:{}", empty.path().display())]).contains("no value"));
    }

    #[test]
    fn bad_values_name_their_flag() {
        for (arguments, start, part) in [
            (["--ttft=50"].as_slice(), "", ""),
            (&["--ttft=50 parsecs"], "--ttft: ", "not a duration"),
            (&["--ttft=-5ms"], "--ttft: ", "not a duration"),
            (&["--itl=normal:5ms"], "--itl: ", "two values"),
            (&["--itl=gauss:5ms,1ms"], "--itl: ", "there is no distribution 'gauss'"),
            (&["--itl=uniform:5ms,1ms"], "--itl: ", "below the lower"),
            (&["--itl=lognormal:0ms,1ms"], "--itl: ", "mean must be above zero"),
            (&["--ttft=90000s"], "--ttft: ", "too large"),
            (&["--tokens=5ms"], "--tokens: ", "not a number of tokens"),
            (&["--tokens=1.5"], "--tokens: ", "whole"),
            (&["--tokens=1e3"], "--tokens: ", "not a number"),
            (&["--reasoning-tokens=inf"], "--reasoning-tokens: ", "not a number"),
            (&["--tokens-per-chunk=x"], "--tokens-per-chunk: ", "not a number"),
            (&["--listen=localhost"], "--listen: ", "127.0.0.1:8000"),
            (&["--profile=turbo"], "--profile: ", "there is no profile 'turbo'"),
            (&["--max-in-flight=0"], "--max-in-flight: ", "from 1 up"),
            (&["--max-in-flight=all"], "--max-in-flight: ", "from 1 up"),
            (&["--cores=1-0"], "--cores: ", "list of cores"),
            (&["--cores=a"], "--cores: ", "list of cores"),
            (&["--cores=99999"], "--cores: ", "list of cores"),
        ] {
            match parse(arguments).resolve() {
                Ok(_) => assert!(start.is_empty(), "{arguments:?} was accepted"),
                Err(e) => {
                    let message = e.to_string();
                    assert!(!start.is_empty() && message.starts_with(start), "{arguments:?}: {message}");
                    assert!(message.contains(part) && !message.contains('\n'), "{arguments:?}: {message}");
                }
            }
        }
    }

    #[test]
    fn answers_under_way_have_no_limit_unless_one_is_given() {
        assert_eq!(parse(&[]).resolve().unwrap().max_in_flight, None);
        assert_eq!(parse(&["--max-in-flight=3"]).resolve().unwrap().max_in_flight, NonZeroUsize::new(3));
    }

    #[test]
    fn cores_are_lists_and_ranges() {
        assert_eq!(parse_cores("1"), Ok(vec![1]));
        assert_eq!(parse_cores("0,2-4"), Ok(vec![0, 2, 3, 4]));
    }

    #[test]
    fn settings_become_a_childs_arguments() {
        let spec = parse_settings("ttft=lognormal:80ms,20ms; itl=20ms;tokens_per_chunk=2;").unwrap();
        assert_eq!(
            child_arguments(&spec).unwrap(),
            ["sim", "--ttft=lognormal:80ms,20ms", "--itl=20ms", "--tokens-per-chunk=2", "--exit-with-stdin"]
        );
        assert_eq!(
            child_arguments(&parse_settings("fast").unwrap()).unwrap(),
            ["sim", "--profile=fast", "--exit-with-stdin"]
        );
        assert_eq!(child_arguments(&parse_settings(" ").unwrap()).unwrap(), ["sim", "--exit-with-stdin"]);
    }

    #[test]
    fn bad_settings_name_themselves() {
        assert_eq!(parse_settings("ttft=1ms;itl").unwrap_err().to_string(), "--sim: 'itl' is not KEY=VALUE");
        let refusal = |text: &str| child_arguments(&parse_settings(text).unwrap()).unwrap_err().to_string();
        assert!(refusal("tft=1ms").starts_with("--sim: there is no setting 'tft' (there are cores, itl,"));
        assert!(!refusal("tft=1ms").contains("listen"));
        assert!(refusal("exit_with_stdin=1").contains("no setting"));
        assert!(refusal("dump-ledger=x").contains("no setting"));
        assert_eq!(refusal("itl=1ms;itl=2ms"), "--sim: 'itl' is given twice");
        assert_eq!(refusal("itl=soon"), "--sim: itl: 'soon': 'soon' is not a duration such as 20ms");
        assert_eq!(
            refusal("slow"),
            "--sim: profile: there is no profile 'slow' (there are default, loaded, reasoning, speculative, fast, instant)"
        );
        assert!(refusal("seed=-1").starts_with("--sim: invalid value '-1' for '--seed"));
    }
}
