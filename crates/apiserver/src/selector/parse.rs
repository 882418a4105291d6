//! The grammar of label selectors: text in, requirements out. Errors are the real server's, word for word.

use std::collections::BTreeSet;

use super::labels::{Operator, Requirement, joined, label_key_errors};

/// A token, with the text that it stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    /// `in` and `notin` are words too: only an operator's place makes them operators.
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_symbol = |c: char| "=!(),><".contains(c);
    let is_space = |c: char| " \t\r\n".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text.split('\0').next().unwrap_or_default().trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let symbol = is_symbol(first);
        let length = if !symbol {
            rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len())
        } else if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else {
            1
        };
        let (token, after) = rest.split_at(length);
        tokens.push(if symbol { Token::Symbol(token) } else { Token::Word(token) });
        rest = after.trim_start_matches(is_space);
    }
    tokens
}

struct Parser<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
}

/// `requirement, requirement, …`, or nothing.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    match parser.peek() {
        Token::End => return Ok(requirements),
        Token::Word(_) | Token::Symbol("!") => {}
        other @ Token::Symbol(_) => {
            return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
        }
    }
    loop {
        let requirement = parser.requirement();
        requirements.push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {}
            other => {
                return Err(format!("found '{}', expected: ',' or 'end of string'", other.text()));
            }
        }
        let next = parser.peek();
        if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
            return Err(format!("found '{}', expected: identifier after ','", next.text()));
        }
    }
}

impl Parser<'_> {
    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.tokens.next_if_eq(&Token::Symbol("!")).is_some();
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(errors) = joined(&label_key_errors(key)) {
            return Err(format!("<nil>: Invalid value: {key:?}: {errors}"));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, BTreeSet::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, BTreeSet::new());
        }
        let operator = self.next();
        let (operator, values) = match operator.text() {
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            "=" | "==" => (Operator::In, self.value()?),
            "!=" => (Operator::NotIn, self.value()?),
            ">" => (Operator::GreaterThan, self.value()?),
            "<" => (Operator::LessThan, self.value()?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Requirement::new(key, operator, values)
    }

    /// One value; none at all is the empty one.
    fn value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next() {
            Token::Word(value) => Ok(BTreeSet::from([value.to_owned()])),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// `(a, b)`; a place left empty is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        if !matches!(self.peek(), Token::Word(_) | Token::Symbol("," | ")")) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.peek().text()));
        }
        let mut values = BTreeSet::new();
        loop {
            let word = match self.peek() {
                Token::Word(word) => word,
                _ => "",
            };
            if !word.is_empty() {
                self.next();
            }
            values.insert(word.to_owned());
            match self.next() {
                Token::Symbol(")") => return Ok(values),
                Token::Symbol(",") => {}
                other if word.is_empty() => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.text()));
                }
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Token<'a> {
        self.tokens.peek().copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        self.tokens.next().unwrap_or(Token::End)
    }
}
