//! The flags of `hammerscale inspect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::usage::UsageError;
use crate::wire::http1::Method;

/// What was typed.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Captured bytes; `-` reads standard input.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// What the bytes are: an event stream, an HTTP response, or the answer of an endpoint (a bare body, or a response
    /// that begins with `HTTP/1.`, which ends with the file). `curl -i` needs `--raw`: it takes the chunks out.
    #[arg(long = "as", visible_alias = "endpoint", value_name = "FORM", value_enum, default_value = "chat")]
    pub form: CapturedForm,
    /// The answer of an endpoint was asked for as one JSON body, not as an event stream.
    #[arg(long)]
    pub no_stream: bool,
    /// Print one JSON object instead of a listing.
    #[arg(long)]
    pub json: bool,
    /// Feed the bytes in pieces of K; 0 feeds them whole. The result never depends on it.
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub cut: usize,
    /// Method of the request that was answered: an answer to HEAD has no body.
    #[arg(long, value_name = "METHOD", default_value = "POST", value_parser = method)]
    pub method: Method,
    /// The peer closed behind the bytes (`--as http`).
    #[arg(long)]
    pub eof: bool,
}

/// What captured bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CapturedForm {
    /// An event stream.
    Sse,
    /// An HTTP response.
    Http,
    /// An answer of `/chat/completions`.
    Chat,
    /// An answer of `/completions`.
    Completions,
    /// An answer of `/responses`.
    Responses,
    /// An answer of `/messages`.
    Messages,
    /// An answer of `/embeddings`, which is one JSON body.
    Embeddings,
}

impl InspectArgs {
    /// Refuses flags that would do nothing.
    ///
    /// # Errors
    /// [`UsageError`] naming the flag.
    pub fn check(&self) -> Result<(), UsageError> {
        if self.no_stream && matches!(self.form, CapturedForm::Sse | CapturedForm::Http) {
            let reason = "it is about the answer of an endpoint, such as --as chat";
            return Err(UsageError::clash("--no-stream", &format!("--as {}", self.form.name()), reason));
        }
        Ok(())
    }
}

impl CapturedForm {
    /// As it is typed.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn method(name: &str) -> Result<Method, &'static str> {
    Method::from_name(name).ok_or("is not a method that this client sends")
}
