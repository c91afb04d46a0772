//! Where keys come from, and that nothing shows them.

use std::path::Path;

use hammerscale::config::file::ConfigFile;

use super::{run_in, typed};

#[test]
fn the_key_comes_from_where_it_was_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key.txt");
    std::fs::write(&path, "FILE-KEY\r\n").unwrap();
    let file = format!("--api-key-file={}", path.display());
    let base = "--base-url=http://h/v1";
    let env = [("OPENAI_API_KEY", "ENV-KEY\n"), ("MINE", "MY-KEY")];
    let key = |argv: &[&str], env: &[(&str, &str)]| {
        run_in(argv, env).unwrap().target.api_key.map(|key| key.reveal().to_owned())
    };
    assert_eq!(key(&[base], &env).as_deref(), Some("ENV-KEY"));
    assert_eq!(key(&[base, "--api-key-env=MINE"], &env).as_deref(), Some("MY-KEY"));
    assert_eq!(key(&[base, &file], &env).as_deref(), Some("FILE-KEY"));
    assert_eq!(key(&[base], &[]), None);
    assert_eq!(key(&[base], &[("OPENAI_API_KEY", "  ")]), None);
    // A field given by hand wins over a variable that happens to be set.
    assert_eq!(key(&[base, "--header=authorization: Basic x"], &env), None);
    let broken = run_in(&[base], &[("OPENAI_API_KEY", "two words")]).unwrap_err().to_string();
    let want = "--api-key-env OPENAI_API_KEY holds a key with spaces, line ends or other unusual characters";
    assert_eq!(broken, want);
    std::fs::write(&path, vec![b'k'; 9_000]).unwrap();
    let long = run_in(&[base, &file], &[]).unwrap_err().to_string();
    assert_eq!(long, "--api-key-file holds a key of more than 8192 bytes");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(
        run_in(&[base, &file], &[]).unwrap_err().to_string(),
        "--api-key-file holds a key that is not UTF-8"
    );
}

#[test]
fn no_secret_is_shown_by_anything() {
    const SECRETS: [&str; 4] = ["TESTKEY-0123456789", "TEAMSECRET-42", "URLPASS-77", "PASTED-KEY"];
    let clean = |text: String| {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{text}");
        }
    };
    let env = [("OPENAI_API_KEY", SECRETS[0])];
    let header = format!("--header=X-Team-Token: {}", SECRETS[1]);
    let good = ["--base-url=http://h/v1", header.as_str()];
    clean(format!("{:?}", typed(&good).unwrap()));
    let spec = run_in(&good, &env).unwrap();
    clean(format!("{spec:?}{:#?}", spec.target));
    assert_eq!(spec.target.headers[0].1.reveal(), SECRETS[1]);
    let userinfo = format!("--base-url=http://user:{}@h/v1", SECRETS[2]);
    clean(format!("{:?}", typed(&[&userinfo]).unwrap()));
    for argv in [
        vec![userinfo.as_str()],
        vec!["--base-url=http://h", "--api-key-env=PASTED-KEY"],
        vec!["--base-url=http://h", "--api-key=PASTED-KEY"],
        vec!["--base-url=http://h", "--api-key", "PASTED-KEY"],
        vec!["--base-url=http://h", "PASTED-KEY"],
        vec!["--base-url=http://h", "--header=TEAMSECRET-42"],
        vec!["--base-url=http://h", "--header=X: TEAMSECRET-42\u{1}"],
        vec!["--base-url=http://h", "--header=X", "TEAMSECRET-42"],
        vec!["--base-url=http://h", "--header=Host: TEAMSECRET-42"],
        vec!["--base-url=http://h", "--header=Authorization: TEAMSECRET-42", "--api-key-file=/dev/null"],
    ] {
        let error = run_in(&argv, &env).unwrap_err();
        clean(format!("{error} {error:?} {error:#?}"));
    }
    let toml = "header = [\"X: TEAMSECRET-42\"]\nbase_url = \"http://u:URLPASS-77@h\"\n";
    let read = ConfigFile::parse(toml, Path::new("c.toml")).unwrap();
    clean(format!("{read:?}"));
    for toml in ["header = [\"X: TEAMSECRET-42\", 5]", "header = \"TEAMSECRET-42", "api_key = \"PASTED-KEY\""]
    {
        let error = ConfigFile::parse(toml, Path::new("c.toml")).unwrap_err();
        clean(format!("{error} {error:?}"));
    }
}
