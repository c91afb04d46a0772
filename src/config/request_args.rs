//! The flags of `hammerscale run` that decide what kind of request is sent: as a stream or not, with which further
//! members in its body, or a plain one with its own method and body. A part of [`RunArgs`](super::args::RunArgs).

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;

use super::args::choice;
use super::spec::MaxTokensField;
use crate::wire::http1::Method;

/// What is sent beyond prompts and sampling.
#[derive(Debug, Clone, Default, Args)]
pub struct RequestArgs {
    /// Method of plain requests
    #[arg(long, value_name = "METHOD", value_parser = method(), help_heading = "Target")]
    pub method: Option<Method>,
    /// File to send as the body of every plain request
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    pub body: Option<PathBuf>,

    /// Ask for an event stream; this is the default
    #[arg(long, help_heading = "Body")]
    pub stream: bool,
    /// Ask for one JSON body instead of an event stream
    #[arg(long, help_heading = "Body")]
    pub no_stream: bool,
    /// Ask for usage with every event
    #[arg(long, help_heading = "Body")]
    pub continuous_usage: bool,
    /// Name of the output limit
    #[arg(long, value_name = "NAME", value_parser = max_tokens_field(), help_heading = "Body")]
    pub max_tokens_field: Option<MaxTokensField>,
    /// Ask for output up to the limit whatever the model says
    #[arg(long, help_heading = "Body")]
    pub ignore_eos: bool,
    /// JSON object whose members are added to every body, or replace ours
    #[arg(long, value_name = "JSON", help_heading = "Body")]
    pub extra_body: Option<String>,
}

fn method() -> impl TypedValueParser<Value = Method> {
    choice(&[
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("PATCH", Method::Patch),
        ("OPTIONS", Method::Options),
    ])
}

fn max_tokens_field() -> impl TypedValueParser<Value = MaxTokensField> {
    choice(&[
        ("max_tokens", MaxTokensField::MaxTokens),
        ("max_completion_tokens", MaxTokensField::MaxCompletionTokens),
    ])
}
