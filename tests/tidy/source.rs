//! A Rust file as tokens: enough of the lexical grammar to tell code from comments and literals, and product code
//! from test code.
//!
//! Why not a text search: a comment may name what code must not, and a rule that cannot tell the two apart gets
//! switched off. What this is not: a parser. It knows no types, expands no macros, and takes an item to end at its
//! `;` or at its closing brace.

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word, keywords included; raw identifiers without their `r#`.
    Word(String),
    /// One character of punctuation.
    Mark(char),
    /// Contents of a string literal as written, prefix and quotes removed; byte and C strings too.
    Text(String),
    /// A number, a character literal or a lifetime.
    Other,
}

/// One token of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Line it begins on, from 1.
    pub(crate) line: usize,
    /// Whether it stands in an item that only tests compile.
    pub(crate) test: bool,
}

/// A comment's text and the line it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    /// Text with its markers.
    pub(crate) text: String,
    /// Line, from 1.
    pub(crate) line: usize,
}

/// One Rust file.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Path from the root of the repository, with forward slashes.
    pub(crate) path: String,
    /// Whole text.
    pub(crate) text: String,
    /// Code, in order.
    pub(crate) tokens: Vec<Token>,
    /// Comments, in order.
    pub(crate) comments: Vec<Comment>,
    /// Lines, from 1 and inclusive, of the items that only tests compile.
    pub(crate) test_spans: Vec<(usize, usize)>,
}

impl Token {
    /// Whether this is the given word.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    /// Whether this is the given punctuation.
    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

impl Source {
    /// Reads a file's text.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (mut tokens, comments) = Lexer::new(text).run();
        let test_spans = mark_test_items(&mut tokens);
        Self { path: path.to_owned(), text: text.to_owned(), tokens, comments, test_spans }
    }

    /// Marks whole files that are declared by a `mod` only tests compile (`#[cfg(test)] mod tests;`).
    pub(crate) fn mark_test_files(mut sources: Vec<Self>) -> Vec<Self> {
        let test_files: Vec<String> = sources.iter().flat_map(Self::test_modules).collect();
        for source in sources.iter_mut().filter(|s| test_files.contains(&s.path)) {
            source.tokens.iter_mut().for_each(|t| t.test = true);
            source.test_spans = vec![(1, source.text.lines().count())];
        }
        sources
    }

    /// Tokens that are compiled into the product.
    pub(crate) fn product_tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().filter(|t| !t.test)
    }

    /// Number of lines outside the items that only tests compile, blank lines and comments included.
    pub(crate) fn product_lines(&self) -> usize {
        let test_lines: usize = self.test_spans.iter().map(|(first, last)| last - first + 1).sum();
        self.text.lines().count() - test_lines
    }

    /// Whether the tokens from `index` on are these words and marks (`::` is two marks).
    pub(crate) fn has_at(&self, index: usize, expected: &[&str]) -> bool {
        expected.iter().enumerate().all(|(k, want)| match self.tokens.get(index + k).map(|t| &t.kind) {
            Some(Kind::Word(word)) => word == want,
            Some(Kind::Mark(mark)) => want.len() == mark.len_utf8() && want.starts_with(*mark),
            _ => false,
        })
    }

    /// Paths of the files that this file's test-only `mod NAME;` items declare.
    fn test_modules(&self) -> Vec<String> {
        let directory = match self.path.rsplit_once('/') {
            Some((parent, "mod.rs" | "lib.rs" | "main.rs")) => parent.to_owned(),
            _ => self.path.trim_end_matches(".rs").to_owned(),
        };
        let declared = |i: usize| match self.tokens.get(i + 1).map(|t| &t.kind) {
            Some(Kind::Word(name)) if self.tokens[i].test && self.has_at(i, &["mod", name, ";"]) => {
                Some(name)
            }
            _ => None,
        };
        (0..self.tokens.len())
            .filter_map(declared)
            .flat_map(|name| [format!("{directory}/{name}.rs"), format!("{directory}/{name}/mod.rs")])
            .collect()
    }
}

/// Marks the tokens of every item under `#[cfg(test)]`, `#[cfg(all(test, …))]` or `#[test]`; returns their lines.
fn mark_test_items(tokens: &mut [Token]) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let Some(after) = test_attribute(&tokens[i..]) else {
            i += 1;
            continue;
        };
        let end = item_end(tokens, i + after);
        spans.push((tokens[i].line, tokens[end].line));
        tokens[i..=end].iter_mut().for_each(|t| t.test = true);
        i = end + 1;
    }
    spans
}

/// Length of the test attribute at the start of `tokens`, if there is one.
fn test_attribute(tokens: &[Token]) -> Option<usize> {
    if !(tokens.first()?.is_mark('#') && tokens.get(1)?.is_mark('[')) {
        return None;
    }
    let cfg = tokens.get(2)?.is_word("cfg") && tokens.get(3)?.is_mark('(');
    let all = cfg && tokens.get(4)?.is_word("all") && tokens.get(5)?.is_mark('(');
    let test = if all { 6 } else { 2 + 2 * usize::from(cfg) };
    if !tokens.get(test)?.is_word("test") {
        return None;
    }
    Some(closing(tokens, 1) + 1)
}

/// Index of the last token of the item that begins at `start`, further attributes skipped.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut i = start;
    while i < tokens.len() {
        match tokens[i].kind {
            Kind::Mark(';') => return i,
            Kind::Mark('{') => return closing(tokens, i),
            Kind::Mark('(' | '[') => i = closing(tokens, i),
            Kind::Mark('}') => return i - 1,
            _ => {}
        }
        i += 1;
    }
    tokens.len() - 1
}

/// Index of the mark that closes the bracket at `open`; the last token when nothing does.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Mark('(' | '[' | '{') => depth += 1,
            Kind::Mark(')' | ']' | '}') => {
                depth -= 1;
                if depth == 0 {
                    return i;
                }
            }
            _ => {}
        }
    }
    tokens.len() - 1
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl Lexer {
    fn new(text: &str) -> Self {
        Self { chars: text.chars().collect(), at: 0, line: 1, tokens: Vec::new(), comments: Vec::new() }
    }

    fn run(mut self) -> (Vec<Token>, Vec<Comment>) {
        while let Some(c) = self.peek(0) {
            match c {
                '/' if matches!(self.peek(1), Some('/' | '*')) => self.comment(),
                '"' => self.string(),
                '\'' => self.quote(),
                _ if c.is_alphabetic() || c == '_' => self.word(),
                _ if c.is_ascii_digit() => self.number(),
                _ if c.is_whitespace() => self.skip(1),
                _ => {
                    self.push(Kind::Mark(c), self.line);
                    self.skip(1);
                }
            }
        }
        (self.tokens, self.comments)
    }

    fn comment(&mut self) {
        let (start, line) = (self.at, self.line);
        if self.peek(1) == Some('/') {
            while self.peek(0).is_some_and(|c| c != '\n') {
                self.skip(1);
            }
        } else {
            let mut depth = 0_usize;
            loop {
                match (self.peek(0), self.peek(1)) {
                    (Some('/'), Some('*')) => depth += 1,
                    (Some('*'), Some('/')) => depth -= 1,
                    (None, _) => break,
                    _ => {
                        self.skip(1);
                        continue;
                    }
                }
                self.skip(2);
                if depth == 0 {
                    break;
                }
            }
        }
        let text = self.chars[start..self.at].iter().collect();
        self.comments.push(Comment { text, line });
    }

    /// A string without prefix, from its opening quote.
    fn string(&mut self) {
        let line = self.line;
        self.skip(1);
        let start = self.at;
        while let Some(c) = self.peek(0) {
            match c {
                '"' => break,
                '\\' => self.skip(2),
                _ => self.skip(1),
            }
        }
        self.text(start, line);
        self.skip(1);
    }

    /// A raw string, from its first `#` or its opening quote.
    fn raw_string(&mut self) {
        let line = self.line;
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.skip(1);
        }
        self.skip(1);
        let start = self.at;
        let ends =
            |lexer: &Self| lexer.peek(0) == Some('"') && (1..=hashes).all(|k| lexer.peek(k) == Some('#'));
        while self.peek(0).is_some() && !ends(self) {
            self.skip(1);
        }
        self.text(start, line);
        self.skip(1 + hashes);
    }

    /// A character literal, or a lifetime.
    fn quote(&mut self) {
        self.push(Kind::Other, self.line);
        if self.peek(1) == Some('\\') {
            self.skip(3);
            while self.peek(0).is_some_and(|c| c != '\'') {
                self.skip(1);
            }
            self.skip(1);
        } else if self.peek(2) == Some('\'') {
            self.skip(3);
        } else {
            self.skip(1);
        }
    }

    /// A word, or a literal with a letter before its quote.
    fn word(&mut self) {
        let (start, line) = (self.at, self.line);
        while self.peek(0).is_some_and(|c| c.is_alphanumeric() || c == '_') {
            self.skip(1);
        }
        let word: String = self.chars[start..self.at].iter().collect();
        let hashes = (0..).take_while(|k| self.peek(*k) == Some('#')).count();
        match (word.as_str(), self.peek(hashes)) {
            ("r" | "br" | "cr", Some('"')) => self.raw_string(),
            ("b" | "c", Some('"')) if hashes == 0 => self.string(),
            ("b", Some('\'')) if hashes == 0 => self.quote(),
            ("r", _) if hashes == 1 => self.skip(1),
            _ => self.push(Kind::Word(word), line),
        }
    }

    fn number(&mut self) {
        self.push(Kind::Other, self.line);
        loop {
            let fraction = self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit());
            if !fraction && !self.peek(0).is_some_and(|c| c.is_alphanumeric() || c == '_') {
                return;
            }
            self.skip(1);
        }
    }

    fn text(&mut self, start: usize, line: usize) {
        let end = self.at.min(self.chars.len());
        let text = self.chars[start.min(end)..end].iter().collect();
        self.push(Kind::Text(text), line);
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.tokens.push(Token { kind, line, test: false });
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == Some('\n') {
                self.line += 1;
            }
            self.at += 1;
        }
    }
}

#[test]
fn code_comments_and_literals_are_told_apart() {
    let source = Source::new(
        "src/x.rs",
        concat!(
            "//! crate::a\n",
            "/* crate::b /* nested */ still */ use crate::c;\n",
            "fn f<'a>(s: &'a str) -> char { g(\"crate::d \\\" \\\\\", r#\"say \"hi\"\"#, b\"bytes\", br\"\\\"); 'x'; '\\''; b'\"'; 0..1.5e3; r#type }\n",
        ),
    );
    let texts: Vec<&str> = source
        .tokens
        .iter()
        .filter_map(|t| match &t.kind {
            Kind::Text(s) => Some(s.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["crate::d \\\" \\\\", "say \"hi\"", "bytes", "\\"]);
    let words: Vec<&str> = source
        .tokens
        .iter()
        .filter_map(|t| match &t.kind {
            Kind::Word(s) => Some(s.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(words, ["use", "crate", "c", "fn", "f", "a", "s", "a", "str", "char", "g", "type"]);
    assert_eq!(source.comments.iter().map(|c| c.line).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(source.tokens.last().map(|t| t.line), Some(3));
}

#[test]
fn test_items_are_marked_and_not_counted() {
    let source = Source::new(
        "src/x.rs",
        "fn a() {}\n#[cfg(test)]\nuse t::T;\nfn b() {}\n#[cfg(all(test, unix))]\n#[allow(x)]\nmod tests {\n    fn c() { {} }\n}\nfn d() {}\n",
    );
    assert_eq!(source.test_spans, [(2, 3), (5, 9)]);
    assert_eq!(source.product_lines(), 3);
    let product: Vec<&Token> =
        source.product_tokens().filter(|t| matches!(&t.kind, Kind::Word(w) if w.len() == 1)).collect();
    assert!(product.iter().zip(["a", "b", "d"]).all(|(t, w)| t.is_word(w)), "{product:?}");
    assert_eq!(product.len(), 3);
    let other = Source::new("src/x.rs", "#[cfg(not(test))]\nfn a() {}\n");
    assert_eq!(other.test_spans, []);
}

#[test]
fn a_file_declared_by_a_test_module_is_a_test_file() {
    let sources = Source::mark_test_files(vec![
        Source::new("src/a/mod.rs", "mod b;\n#[cfg(test)]\nmod tests;\n"),
        Source::new("src/a/tests.rs", "fn t() {}\n"),
        Source::new("src/a/b.rs", "#[cfg(test)]\nmod more;\nfn p() {}\n"),
        Source::new("src/a/b/more.rs", "fn t() {}\n"),
    ]);
    assert_eq!(sources.iter().map(Source::product_lines).collect::<Vec<_>>(), [1, 0, 1, 0]);
}
