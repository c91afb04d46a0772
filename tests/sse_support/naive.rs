//! A second reader of event streams, written from the text of WHATWG HTML 9.2.5 and 9.2.6 step by step.
//!
//! It decodes first, then splits the characters into lines, then applies the field rules: the order of the standard,
//! and the opposite of the parser's. It needs the whole stream and is slow on purpose.

/// The standard's state after a whole stream; texts are decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Naive {
    /// (type, data, last event ID string), the type buffer as it is.
    pub(crate) events: Vec<(String, String, String)>,
    pub(crate) comments: usize,
    pub(crate) retry: Vec<u64>,
    pub(crate) data_buffer: String,
    pub(crate) type_buffer: String,
    pub(crate) id_buffer: String,
    /// Characters after the last line end.
    pub(crate) rest: String,
}

pub(crate) fn read(stream: &[u8]) -> Naive {
    let mut state = Naive::default();
    // "UTF-8 decode" of the Encoding standard: one byte order mark goes, what is malformed becomes U+FFFD.
    let text = String::from_utf8_lossy(stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream)).into_owned();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' | '\n' => {
                if character == '\r' && characters.peek() == Some(&'\n') {
                    characters.next();
                }
                let line = std::mem::take(&mut state.rest);
                state.process_line(&line);
            }
            other => state.rest.push(other),
        }
    }
    state
}

impl Naive {
    fn process_line(&mut self, line: &str) {
        if line.is_empty() {
            self.dispatch();
        } else if line.starts_with(':') {
            self.comments += 1;
        } else if let Some((name, value)) = line.split_once(':') {
            self.process_field(name, value.strip_prefix(' ').unwrap_or(value));
        } else {
            self.process_field(line, "");
        }
    }

    fn process_field(&mut self, name: &str, value: &str) {
        match name {
            "event" => self.type_buffer = value.to_owned(),
            "data" => {
                self.data_buffer.push_str(value);
                self.data_buffer.push('\n');
            }
            "id" if !value.contains('\0') => self.id_buffer = value.to_owned(),
            // A number that no u64 holds is ignored: the one choice the text leaves to the reader.
            "retry" if !value.is_empty() && value.chars().all(|digit| digit.is_ascii_digit()) => {
                self.retry.extend(value.parse::<u64>().ok());
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let mut data = std::mem::take(&mut self.data_buffer);
        let kind = std::mem::take(&mut self.type_buffer);
        if data.is_empty() {
            return;
        }
        assert_eq!(data.pop(), Some('\n'));
        self.events.push((kind, data, self.id_buffer.clone()));
    }
}
