//! Where results go and what is recorded beside them: whether they can be written is found out before anything is
//! sent.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::args::RunArgs;
use super::resolve::plain_text;
use super::spec::{LabelSpec, OutputFormat, OutputSpec, ProgressMode};
use super::usage::UsageError;

pub(super) fn output(args: &RunArgs) -> Result<OutputSpec, UsageError> {
    let progress = args.progress.unwrap_or(ProgressMode::Auto);
    if args.quiet && progress == ProgressMode::Plain {
        return Err(UsageError::clash(
            "--quiet",
            "--progress plain",
            "the one forbids what the other asks for",
        ));
    }
    if args.quiet && args.format.is_some() {
        return Err(UsageError::clash("--quiet", "--format", "the one forbids what the other asks for"));
    }
    if let Some(dir) = &args.out {
        check_dir(dir, args.overwrite, args.dry_run)?;
    }
    if let Some(file) = &args.json_out {
        check_file(file, args.out.as_deref())?;
    }
    Ok(OutputSpec {
        dir: args.out.clone(),
        json_out: args.json_out.clone(),
        overwrite: args.overwrite,
        quiet: args.quiet,
        progress,
        format: args.format.unwrap_or(OutputFormat::Text),
    })
}

pub(super) fn labels(args: &RunArgs) -> Result<LabelSpec, UsageError> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for label in &args.label {
        let flag = "--label";
        let Some((key, value)) = label.split_once('=') else {
            return Err(UsageError::bad(flag, "must be KEY=VALUE"));
        };
        if !is_identifier(key) {
            let reason = "must have a key of at most 64 letters, digits, dots, underscores and hyphens";
            return Err(UsageError::bad(flag, reason));
        }
        if labels.iter().any(|(known, _)| known == key) {
            return Err(UsageError::bad(flag, format!("sets {key} twice")));
        }
        let value = plain_text(flag, Some(&value.to_owned()))?.unwrap_or_default();
        labels.push((key.to_owned(), value));
    }
    if args.clock_domain_id.as_deref().is_some_and(|id| !is_identifier(id)) {
        let allowed = "1 to 64 letters, digits, dots, underscores and hyphens";
        return Err(UsageError::range("--clock-domain-id", allowed));
    }
    if args.configuration_fingerprint.as_deref().is_some_and(|text| !is_fingerprint(text)) {
        let allowed = "sha256: and 64 lowercase hexadecimal digits";
        return Err(UsageError::range("--configuration-fingerprint", allowed));
    }
    Ok(LabelSpec {
        engine: plain_text("--engine", args.engine.as_ref())?,
        gpu: plain_text("--gpu", args.gpu.as_ref())?,
        tier: plain_text("--tier", args.tier.as_ref())?,
        manifest: plain_text("--manifest", args.manifest.as_ref())?,
        source_recipe: plain_text("--source-recipe", args.source_recipe.as_ref())?,
        clock_domain_id: args.clock_domain_id.clone(),
        configuration_fingerprint: args.configuration_fingerprint.clone(),
        labels,
    })
}

/// An existing directory is somebody's run, even an empty one that another run is about to fill.
fn check_dir(dir: &Path, overwrite: bool, dry_run: bool) -> Result<(), UsageError> {
    const FLAG: &str = "--out";
    if dir.as_os_str().is_empty() {
        return Err(UsageError::bad(FLAG, "must not be empty"));
    }
    let Ok(found) = std::fs::metadata(dir) else { return Ok(()) };
    if !found.is_dir() {
        return Err(UsageError::bad(FLAG, "names something that is not a directory"));
    }
    // A dry run writes nothing, so what is there is safe.
    if overwrite || dry_run {
        return Ok(());
    }
    Err(UsageError::bad(FLAG, "names a directory that exists already; --overwrite replaces the run in it"))
}

/// The reference's rule: the parent exists and can be written, the file is a regular one if it is there, no link.
fn check_file(file: &Path, out: Option<&Path>) -> Result<(), UsageError> {
    const FLAG: &str = "--json-out";
    let Some(name) = file.file_name() else {
        return Err(UsageError::bad(FLAG, "must name a file"));
    };
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    // The run's own directory is made by the run.
    if out.is_some_and(|out| out == parent) && !parent.exists() {
        return Ok(());
    }
    if !parent.is_dir() {
        return Err(UsageError::bad(FLAG, "is to lie in a directory that does not exist"));
    }
    if access(&parent, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        return Err(UsageError::bad(FLAG, "is to lie in a directory that cannot be written"));
    }
    match std::fs::symlink_metadata(parent.join(name)) {
        Ok(found) if found.is_symlink() => Err(UsageError::bad(FLAG, "names a symbolic link")),
        Ok(found) if !found.is_file() => Err(UsageError::bad(FLAG, "names something that is not a file")),
        _ => Ok(()),
    }
}

/// The reference's pattern `[A-Za-z0-9._-]{1,64}`.
fn is_identifier(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_fingerprint(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
