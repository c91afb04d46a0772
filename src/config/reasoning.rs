//! Which reasoning controls a family of models has. Only published incompatibilities are refused; an unknown family
//! is the operator's own affair.
//!
//! The rules are the reference's (its guard of reasoning controls), by substring of the model's name, upper and lower
//! case alike. The same check runs when the name was typed and when it was asked from the server.

use super::spec::ThinkingMode;
use super::usage::UsageError;

/// Every effort that can be asked for.
pub const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "max", "xhigh"];

/// Refuses a control that the model's family is known not to have.
///
/// # Errors
/// [`UsageError`] that names the flag and what the family takes instead.
pub fn check(model: &str, mode: ThinkingMode, effort: Option<&str>) -> Result<(), UsageError> {
    let name = model.to_lowercase();
    let named = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let templated = matches!(mode, ThinkingMode::Enabled | ThinkingMode::Disabled);
    if named(&["gpt-oss"]) && templated {
        let reason = "is a chat template control that gpt-oss models do not have; use --reasoning-effort";
        return Err(UsageError::bad("--thinking-mode", reason));
    }
    let Some(effort) = effort else { return Ok(()) };
    let families: [(&[&str], &str, &[&str]); 3] = [
        (&["gpt-oss"], "gpt-oss", &["low", "medium", "high"]),
        (&["deepseek-v4", "deepseek_v4"], "DeepSeek V4", &["low", "high", "max"]),
        (&["qwen3.8", "qwen38"], "Qwen3.8", &["low", "medium", "xhigh"]),
    ];
    let mut known = false;
    for (parts, family, efforts) in families {
        if named(parts) {
            known = true;
            if !efforts.contains(&effort) {
                let allowed = format!("one of {} for {family} models", efforts.join(", "));
                return Err(UsageError::range("--reasoning-effort", allowed));
            }
        }
    }
    if !known && named(&["qwen"]) {
        let reason = "is not what Qwen models take; use --thinking-mode enabled or disabled";
        return Err(UsageError::bad("--reasoning-effort", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_takes_its_own_efforts() {
        for (model, takes) in [
            ("openai/gpt-oss-120b", &["low", "medium", "high"] as &[_]),
            ("DeepSeek-V4-Flash", &["low", "high", "max"]),
            ("deepseek_v4", &["low", "high", "max"]),
            ("Qwen3.8-27B", &["low", "medium", "xhigh"]),
            ("qwen38", &["low", "medium", "xhigh"]),
            ("Qwen/Qwen3-8B", &[]),
            ("glm-5.3", &EFFORTS),
            ("", &EFFORTS),
        ] {
            for effort in EFFORTS {
                let result = check(model, ThinkingMode::Default, Some(effort));
                assert_eq!(result.is_ok(), takes.contains(&effort), "{model} {effort}: {result:?}");
                if let Err(error) = result {
                    assert!(error.to_string().starts_with("--reasoning-effort "), "{error}");
                }
            }
            assert_eq!(check(model, ThinkingMode::Unsupported, None), Ok(()));
        }
    }

    #[test]
    fn gpt_oss_has_no_template_control() {
        for mode in [ThinkingMode::Enabled, ThinkingMode::Disabled] {
            assert!(
                check("GPT-OSS-20b", mode, None).unwrap_err().to_string().starts_with("--thinking-mode ")
            );
            assert_eq!(check("Qwen3-8B", mode, None), Ok(()));
        }
    }
}
