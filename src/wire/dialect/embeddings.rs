//! Answers of `/embeddings`: one JSON body with vectors in `data` and token counts in `usage`; never a stream.
//!
//! A body can hold millions of numbers that nobody reads here, so a walk over its bytes finds the two members that
//! matter; the full parse is for what the walk is not certain of.

use serde_json::Value;

use super::chat::usage_of;
use super::cursor::Cursor;
use super::event::facts_of;
use super::keys::{Seen, keys};
use super::walk::Walk;
use super::{Facts, ServerError, full};

keys!(BodyKey {
    Data = "data", Usage = "usage", Object = "object", Error = "error", Detail = "detail", Message = "message",
} skipped { "model", "id", "created", });

/// What a body says: whether there is a vector (`None`: it is no answer of this endpoint at all), and the facts.
///
/// # Errors
/// When the body is not JSON.
pub(super) fn read_whole(body: &[u8]) -> Result<(Option<bool>, Facts), full::NotJson> {
    if let Some((vectors, usage)) = walk(body.trim_ascii()) {
        let usage = full::parse(usage).ok().and_then(|usage| usage_of(Some(&usage.value)));
        return Ok((Some(vectors), Facts { recognised: true, usage, ..Facts::default() }));
    }
    let parsed = full::parse(body)?;
    let mut facts = facts_of(&parsed);
    let Some(top) = parsed.value.as_object() else { return Ok((None, facts)) };
    let data = top.get("data").and_then(Value::as_array);
    facts.error = ServerError::in_object(top, data.is_some()).map(Box::new);
    facts.usage = usage_of(top.get("usage"));
    facts.recognised = data.is_some() || facts.error.is_some();
    Ok((data.map(|data| !data.is_empty()), facts))
}

/// Whether `data` has an element, and the text of `usage`. `None`: not certain.
fn walk(body: &[u8]) -> Option<(bool, &[u8])> {
    let mut cursor = Cursor::new(body);
    let mut seen = Seen::default();
    let (mut vectors, mut usage): (_, &[u8]) = (None, b"null");
    cursor.object(|cursor| {
        let key = BodyKey::read(cursor)?;
        if key == BodyKey::Other {
            return cursor.skip_value();
        }
        seen.once(key as u32)?;
        match key {
            BodyKey::Data => vectors = Some(cursor.array(|cursor, _| cursor.skip_value())? > 0),
            BodyKey::Usage => usage = cursor.value()?,
            BodyKey::Object => (cursor.plain_string()? != b"error").then_some(())?,
            BodyKey::Error => cursor.only_null()?,
            // Beside vectors these words mean something else.
            BodyKey::Detail | BodyKey::Message => cursor.skip_value()?,
            BodyKey::Other => {}
        }
        Some(())
    })?;
    cursor.finish()?;
    // What is not quite JSON is left to the parse that says what is wrong with it.
    (!cursor.not_a_number()).then_some((vectors?, usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by the full parse alone.
    fn plainly(body: &str) -> Option<(Option<bool>, Option<u64>, bool)> {
        let value: Value = serde_json::from_str(body).ok()?;
        let data = value.get("data").and_then(Value::as_array);
        let tokens = value.get("usage").and_then(|usage| usage.get("prompt_tokens")).and_then(Value::as_u64);
        Some((
            data.map(|data| !data.is_empty()),
            tokens,
            value.get("error").is_some_and(|error| !error.is_null()),
        ))
    }

    #[test]
    fn the_walk_says_what_a_parse_says() {
        let vector = r#"{"object":"embedding","index":0,"embedding":[0.1,-2.5e-3,1]}"#;
        let usage = r#""usage":{"prompt_tokens":9,"total_tokens":9,"completion_tokens":0,"prompt_tokens_details":null}"#;
        for body in [
            format!(
                r#"{{"id":"e","object":"list","created":1,"model":"m","data":[{vector},{vector}],{usage}}}"#
            ),
            format!("\n{{ \"data\" : [ {vector} ] , {usage} }} \r\n"),
            format!(r#"{{"object":"list","data":[{vector}]}}"#),
            format!(r#"{{"object":"list","data":[],{usage}}}"#),
            format!(r#"{{"data":[{{"embedding":"AACAPw=="}}],"error":null,{usage}}}"#),
            format!(r#"{{"data":[{vector}],"error":{{"message":"half of it failed"}}}}"#),
            format!(r#"{{"data":[{vector}],"detail":"low","message":"ok"}}"#),
            r#"{"error":{"message":"too long","code":400}}"#.to_owned(),
            r#"{"object":"list","embeddings":[[1]]}"#.to_owned(),
            r#"{"data":{"embedding":[1]}}"#.to_owned(),
            r#"{"data":null}"#.to_owned(),
            "[]".to_owned(),
        ] {
            let (vectors, facts) = read_whole(body.as_bytes()).unwrap();
            let tokens = facts.usage.and_then(|usage| usage.prompt_tokens);
            assert_eq!(Some((vectors, tokens, facts.error.is_some())), plainly(&body), "{body}");
        }
        for broken in ["", "{", r#"{"data":[1,]}"#, "<html>", r#"{"data":[1]}{"#] {
            assert!(read_whole(broken.as_bytes()).is_err() && plainly(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_body_of_usual_form_needs_no_tree() {
        let body = format!(
            r#"{{"object":"list","data":[{{"embedding":[{}1]}}],"model":"m"}}"#,
            "0.25,".repeat(100_000)
        );
        assert_eq!(walk(body.as_bytes()), Some((true, &b"null"[..])));
        // A number that is none is tolerated and said.
        let (vectors, facts) = read_whole(br#"{"data":[{"embedding":[NaN]}]}"#).unwrap();
        assert!(vectors == Some(true) && facts.not_a_number);
    }
}
