//! The configuration file: the flags of `hammerscale run` in TOML, with underscores instead of hyphens. The command
//! line wins.
//!
//! There is no second table of flags: every key is looked up among the declarations of [`args`], its
//! value is written as the command line would have it, and the same parser reads it. TOML types must fit: a text is
//! not a number, and a switch is `true` or `false`.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::error::ContextKind;
use clap::{Arg, ArgAction, FromArgMatches as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::args::{self, CoreList, RunArgs};
use super::defaults::MAX_CONFIG_BYTES;
use super::input;
use super::request_args::RequestArgs;
use super::usage::UsageError;
use crate::units::{Nanos, PerSecond};

/// A configuration file, read.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// What stands in it.
    pub args: RunArgs,
    path: PathBuf,
    /// Line of each flag, by the flag's name with its dashes.
    lines: BTreeMap<String, usize>,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`UsageError::File`] with the path, and the line where there is one.
    pub fn read(path: &Path) -> Result<Self, UsageError> {
        let fail = |reason: String| UsageError::File { path: path.to_owned(), line: None, reason };
        // One byte more than allowed tells a file that is too large from one that fits exactly.
        let bytes = input::read(path, MAX_CONFIG_BYTES + 1).map_err(|error| fail(error.to_string()))?;
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return Err(fail(format!("is larger than {MAX_CONFIG_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| fail("is not UTF-8 text".to_owned()))?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// [`UsageError::File`] with the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, UsageError> {
        let line_of = |at: usize| text.bytes().take(at).filter(|b| *b == b'\n').count() + 1;
        let fail = |line, reason| UsageError::File { path: path.to_owned(), line, reason };
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| line_of(span.start));
            let reason = line.and_then(|line| without_value(text, line));
            fail(line, reason.unwrap_or_else(|| error.message().replace('\n', ", ")))
        })?;
        let mut entries: Vec<_> = table.into_inner().into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let command = args::command();
        let (mut typed, mut lines) = (Vec::new(), BTreeMap::new());
        for (key, value) in entries {
            let line = line_of(key.span().start);
            let key = key.into_inner();
            let Some(arg) = find(&command, &key) else {
                let near =
                    nearest(&command, &key).map_or_else(String::new, |near| format!(" (there is {near})"));
                return Err(fail(Some(line), format!("there is no setting {:?}{near}", shortened(&key))));
            };
            let flag = format!("--{}", arg.get_long().unwrap_or_default());
            if lines.insert(flag.clone(), line).is_some() {
                return Err(fail(Some(line), format!("{key} is set twice under two names")));
            }
            let words = words(arg, &value).map_err(|reason| fail(Some(line), format!("{key} {reason}")))?;
            let words: Vec<String> = words.into_iter().map(|word| format!("{flag}{word}")).collect();
            // Read alone first, so that an error has its line.
            command
                .clone()
                .try_get_matches_from(&words)
                .map_err(|error| fail(Some(line), args::sentence(&error).to_string()))?;
            typed.extend(words);
        }
        let args = command
            .try_get_matches_from(typed)
            .and_then(|matches| RunArgs::from_arg_matches(&matches))
            .map_err(|error| fail(None, args::sentence(&error).to_string()))?;
        Ok(Self { args, path: path.to_owned(), lines })
    }

    /// An error about a flag that the command line does not give, with the place in the file it comes from.
    #[must_use]
    pub fn locate(&self, error: UsageError) -> UsageError {
        match error.flag().and_then(|flag| self.lines.get(flag)) {
            Some(line) if !matches!(error, UsageError::File { .. }) => {
                UsageError::File { path: self.path.clone(), line: Some(*line), reason: error.to_string() }
            }
            _ => error,
        }
    }

    /// Fills what the command line left open, and forgets the lines of what it did not. Flags that are several
    /// spellings of one setting give way together.
    pub fn fill(&mut self, typed: RunArgs) -> RunArgs {
        let mut file = std::mem::take(&mut self.args);
        give_way(&typed, &mut file);
        let mut given = Vec::new();
        let args = merged(typed, file, &mut given);
        self.lines
            .retain(|flag, _| !given.iter().any(|name| *flag == format!("--{}", name.replace('_', "-"))));
        args
    }
}

/// The declaration of a key; hyphens are not how a file spells it, and a file names no further file.
fn find<'c>(command: &'c clap::Command, key: &str) -> Option<&'c Arg> {
    let flag = key.replace('_', "-");
    let named = |arg: &Arg| {
        arg.get_long() == Some(&flag) || arg.get_all_aliases().is_some_and(|all| all.contains(&flag.as_str()))
    };
    command
        .get_arguments()
        .filter(|arg| !key.contains('-') && arg.get_id() != "config")
        .find(|arg| named(arg))
}

/// The setting that a wrong key comes near to: the same with underscores, or what the command line would suggest.
fn nearest(command: &clap::Command, key: &str) -> Option<String> {
    let spelled = key.replace('-', "_");
    if let Some(arg) = find(command, &spelled) {
        return arg.get_long().map(|long| long.replace('-', "_"));
    }
    let flag = format!("--{}", key.replace('_', "-"));
    let error = command.clone().try_get_matches_from([flag]).err()?;
    let near = error.get(ContextKind::SuggestedArg)?.to_string().trim_start_matches('-').replace('-', "_");
    find(command, &near).map(|_| near)
}

/// The sentence for a line that is a key and an equals sign; `None` for any other.
fn without_value(text: &str, line: usize) -> Option<String> {
    let (key, value) = text.lines().nth(line.checked_sub(1)?)?.split_once('=')?;
    let empty = value.split('#').next().is_none_or(|value| value.trim().is_empty());
    empty.then(|| format!("{} has no value", shortened(key.trim())))
}

/// What follows the flag's name on a command line, once per occurrence.
fn words(arg: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let value = value.get_ref();
    let parser = arg.get_value_parser().type_id();
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(on)) => Ok(if *on { vec![String::new()] } else { Vec::new() }),
        (ArgAction::SetTrue, _) => Err("must be true or false".to_owned()),
        (ArgAction::Append, DeValue::Array(items)) => {
            let texts: Option<Vec<String>> = items.iter().map(|item| text(item.get_ref())).collect();
            texts.ok_or_else(|| "must be a list of texts".to_owned())
        }
        (ArgAction::Append, one) => {
            text(one).map(|word| vec![word]).ok_or_else(|| "must be a list of texts".to_owned())
        }
        // A flag whose value is optional.
        (_, DeValue::Boolean(true)) if arg.get_num_args().is_some_and(|n| n.min_values() == 0) => {
            Ok(vec![String::new()])
        }
        (_, DeValue::Array(items)) if parser == TypeId::of::<CoreList>() => {
            let cores: Option<Vec<String>> = items.iter().map(|item| number(item.get_ref())).collect();
            cores
                .map(|c| vec![format!("={}", c.join(","))])
                .ok_or_else(|| "must be a list of cores".to_owned())
        }
        _ => {
            let is = |id: TypeId| parser == id;
            let numeric = [
                TypeId::of::<u64>(),
                TypeId::of::<i64>(),
                TypeId::of::<f64>(),
                TypeId::of::<Nanos>(),
                TypeId::of::<PerSecond>(),
            ];
            let takes_numbers = numeric.into_iter().any(is) || is(TypeId::of::<CoreList>());
            let word =
                text(value).or_else(|| number(value).filter(|_| takes_numbers).map(|n| format!("={n}")));
            let want =
                if takes_numbers { "must be a number, or a text with a unit" } else { "must be a text" };
            word.map(|word| vec![word]).ok_or_else(|| want.to_owned())
        }
    }
}

fn text(value: &DeValue<'_>) -> Option<String> {
    value.as_str().map(|text| format!("={text}"))
}

/// A number in decimal, as the command line's parsers read it.
fn number(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(n) => i128::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n.to_string()),
        DeValue::Float(x) => Some(x.as_str().to_owned()),
        _ => None,
    }
}

fn shortened(key: &str) -> String {
    /// Longer than every setting's name.
    const MAX_CHARS: usize = 40;
    key.chars().take(MAX_CHARS).collect()
}

/// Drops from the file what the command line says in other words.
fn give_way(typed: &RunArgs, file: &mut RunArgs) {
    if typed.base_url.is_some() || typed.sim.is_some() {
        (file.base_url, file.sim) = (None, None);
    }
    if typed.api_key_env.is_some() || typed.api_key_file.is_some() {
        (file.api_key_env, file.api_key_file) = (None, None);
    }
    if typed.prompts.is_some() || typed.prompt_cache_mode.is_some() {
        (file.prompts, file.prompt_cache_mode) = (None, None);
    }
    if typed.no_thinking || typed.thinking_mode.is_some() || typed.reasoning_effort.is_some() {
        (file.no_thinking, file.thinking_mode, file.reasoning_effort) = (false, None, None);
    }
    if typed.request.stream || typed.request.no_stream {
        (file.request.stream, file.request.no_stream) = (false, false);
    }
    if typed.burst.is_some_and(|n| n > 0) {
        (file.requests, file.concurrency) = (None, None);
    } else if typed.requests.is_some() || typed.concurrency.is_some() {
        file.burst = None;
    }
    if typed.rate.is_some() {
        (file.concurrency, file.burst, file.prewarm) = (None, None, false);
    } else if typed.concurrency.is_some() || typed.burst.is_some_and(|n| n > 0) {
        (file.rate, file.arrival) = (None, None);
    }
}

/// The flags of a struct, each from the command line if it is there, else from the file; and the names of those that the
/// command line gave. Structs are written out in full, so that a new flag cannot be forgotten here; `$part`s were
/// merged before.
macro_rules! merge {
    ($args:ident, $typed:ident, $file:ident, $given:ident; $($option:ident)*; $($switch:ident)*; $($list:ident)*; $($part:ident)*) => {{
        $(if $typed.$option.is_some() { $given.push(stringify!($option)); })*
        $(if $typed.$switch { $given.push(stringify!($switch)); })*
        $(if !$typed.$list.is_empty() { $given.push(stringify!($list)); })*
        $args {
            $($option: $typed.$option.or($file.$option),)*
            $($switch: $typed.$switch || $file.$switch,)*
            $($list: if $typed.$list.is_empty() { $file.$list } else { $typed.$list },)*
            $($part,)*
        }
    }};
}

fn merged(typed: RunArgs, file: RunArgs, given: &mut Vec<&'static str>) -> RunArgs {
    let (on_line, in_file) = (typed.request, file.request);
    let request = merge! {
        RequestArgs, on_line, in_file, given;
        method body max_tokens_field extra_body;
        stream no_stream continuous_usage ignore_eos;;
    };
    merge! {
        RunArgs, typed, file, given;
        base_url endpoint_path sim endpoint model api_key_env api_key_file requests concurrency rate arrival burst connection
        timeout idle_timeout connect_timeout compat ctx_tokens seed max_tokens response_words prompt_cache_mode
        prompts source_ip shared_prefix_tokens controlled_output_policy max_model_len margin capture_limit temperature top_p
        thinking_mode reasoning_effort workers cores stamps max_client_error out json_out progress format engine gpu tier manifest
        source_recipe clock_domain_id configuration_fingerprint config;
        no_request_id prewarm request_canaries no_thinking strict_instrument overwrite quiet dry_run;
        header label;
        request
    }
}
