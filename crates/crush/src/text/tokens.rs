//! Splitting a text into words and brackets.

use super::{CompileError, Place};

/// A word or a bracket, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    pub place: Place,
}

/// The tokens of a text, taken one by one. Comments go from `#` to the end of the line.
pub(super) struct Tokens<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    end: Place,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        let mut end = Place { line: 1, col: 1 };
        for (number, line) in text.lines().enumerate() {
            let code = line.split('#').next().unwrap_or_default();
            let mut rest = code;
            loop {
                rest = rest.trim_start();
                let Some(first) = rest.chars().next() else {
                    break;
                };
                let bracket = |c: char| matches!(c, '{' | '}' | '[' | ']');
                let len = if bracket(first) {
                    1
                } else {
                    let stop = |c: char| c.is_whitespace() || bracket(c);
                    rest.find(stop).unwrap_or(rest.len())
                };
                let (text, after) = rest.split_at(len);
                let before = code.len() - rest.len();
                let col = code[..before].chars().count() + 1;
                let place = Place { line: number + 1, col };
                tokens.push(Token { text, place });
                rest = after;
            }
            end = Place { line: number + 1, col: line.chars().count() + 1 };
        }
        Tokens { tokens, next: 0, end }
    }

    /// Where the next token stands, or the end of the text.
    pub fn place(&self) -> Place {
        self.tokens.get(self.next).map_or(self.end, |t| t.place)
    }

    /// The next token's text, not taken.
    pub fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|t| t.text)
    }

    /// Takes the next token.
    pub fn take(&mut self, wanted: &str) -> Result<Token<'a>, CompileError> {
        match self.tokens.get(self.next) {
            Some(&token) => {
                self.next += 1;
                Ok(token)
            }
            None => Err(CompileError::at(
                self.end,
                format!("parse error: {wanted} expected, not the end"),
            )),
        }
    }

    /// Takes the next token if it is this word.
    pub fn accept(&mut self, word: &str) -> bool {
        let hit = self.peek() == Some(word);
        self.next += usize::from(hit);
        hit
    }

    /// Takes this word.
    pub fn expect(&mut self, word: &str) -> Result<Place, CompileError> {
        let token = self.take(&format!("'{word}'"))?;
        if token.text == word {
            Ok(token.place)
        } else {
            Err(unexpected(token, &format!("'{word}'")))
        }
    }

    /// Takes a name.
    pub fn name(&mut self, what: &str) -> Result<Token<'a>, CompileError> {
        let token = self.take(what)?;
        if crate::is_valid_name(token.text) { Ok(token) } else { Err(unexpected(token, what)) }
    }

    /// Takes a whole number. As Ceph reads it: the nearest 64-bit number, of which the low half.
    pub fn int(&mut self, what: &str) -> Result<i32, CompileError> {
        let token = self.take(what)?;
        let digits = token.text.strip_prefix('-').unwrap_or(token.text);
        if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
            return Err(unexpected(token, what));
        }
        let limit = if digits.len() < token.text.len() { i64::MIN } else { i64::MAX };
        Ok(token.text.parse::<i64>().unwrap_or(limit) as i32)
    }

    /// Takes a weight and makes it 16.16.
    pub fn weight(&mut self) -> Result<u32, CompileError> {
        let token = self.take("a weight")?;
        let number = |c: u8| c.is_ascii_digit() || matches!(c, b'.' | b'-' | b'+' | b'e' | b'E');
        let value: Option<f32> = token.text.parse().ok();
        match value.filter(|_| token.text.bytes().all(number)) {
            Some(value) if value >= 0.0 => Ok((value * crate::WEIGHT_ONE as f32) as u32),
            _ => Err(unexpected(token, "a weight")),
        }
    }
}

pub(super) fn unexpected(token: Token<'_>, wanted: &str) -> CompileError {
    let message = format!("parse error at '{}': {wanted} expected", token.text);
    CompileError::at(token.place, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_brackets_and_comments() {
        let mut t = Tokens::new("host ä{ # x\n\tid -2}\n");
        assert_eq!(t.take("").unwrap().text, "host");
        assert!(t.name("a name").is_err());
        assert_eq!(t.place(), Place { line: 1, col: 7 });
        assert!(t.accept("{") && t.accept("id"));
        assert_eq!(t.int("").unwrap(), -2);
        assert!(t.accept("}"));
        assert_eq!(t.take("more").unwrap_err().line, 2);
    }

    #[test]
    fn numbers_are_read_as_ceph_reads_them() {
        let int = |s| Tokens::new(s).int("");
        assert_eq!(int("18446744073709551615"), Ok(-1));
        assert_eq!(int("4294967297"), Ok(1));
        assert!(int("1x").is_err() && int("-").is_err());
        let weight = |s| Tokens::new(s).weight();
        assert_eq!(weight("0.5"), Ok(0x8000));
        assert_eq!(weight("1e1"), Ok(10 * 0x1_0000));
        assert!(weight("-1").is_err() && weight("inf").is_err() && weight("nan").is_err());
    }
}
