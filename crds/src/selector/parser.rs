//! Text to tree, by recursive descent.

use std::collections::BTreeSet;

use super::expression::{Comparison, Expression};

/// Longest label name.
const LONGEST_LABEL: usize = 512;
/// Deepest nesting of parentheses.
const DEEPEST: usize = 64;

/// Why a text is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("position {position}: {message}")]
pub struct SelectorError {
    /// Where it went wrong, counted in characters of the text as written, from 1.
    pub position: usize,
    /// What is wrong there.
    pub message: String,
}

pub(super) fn parse(text: &str) -> Result<Expression, SelectorError> {
    let trimmed = text.trim();
    let leading = text.len() - text.trim_start().len();
    let mut parser = Parser {
        text,
        at: leading,
        end: leading + trimmed.len(),
        depth: 0,
    };
    if trimmed.is_empty() {
        return Ok(Expression::All);
    }
    let expression = parser.or()?;
    parser.skip_space();
    if parser.rest().is_empty() {
        Ok(expression)
    } else {
        Err(parser.error("expected && or || or the end"))
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of the next character.
    at: usize,
    /// Byte offset behind the last character.
    end: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    fn error(&self, message: &str) -> SelectorError {
        let position = self.text[..self.at].chars().count() + 1;
        let message = match self.rest().chars().next() {
            None => format!("{message}, found the end"),
            Some('\n' | '\r') => format!("{message}, found a line break"),
            Some(_) => {
                let found: String = self.rest().chars().take(12).collect();
                format!("{message}, found {found:?}")
            }
        };
        SelectorError { position, message }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), SelectorError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.error(&format!("expected {token}")))
        }
    }

    fn or(&mut self) -> Result<Expression, SelectorError> {
        self.chain("||", Parser::and, Expression::Or)
    }

    fn and(&mut self) -> Result<Expression, SelectorError> {
        self.chain("&&", Parser::operation, Expression::And)
    }

    /// One or more parts joined by an operator.
    fn chain(
        &mut self,
        operator: &str,
        part: fn(&mut Self) -> Result<Expression, SelectorError>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, SelectorError> {
        let first = part(self)?;
        let mut others = Vec::new();
        loop {
            self.skip_space();
            if !self.take(operator) {
                break;
            }
            others.push(part(self)?);
        }
        if others.is_empty() {
            return Ok(first);
        }
        others.insert(0, first);
        Ok(join(others))
    }

    fn operation(&mut self) -> Result<Expression, SelectorError> {
        let mut negated = false;
        loop {
            self.skip_space();
            if !self.take("!") {
                break;
            }
            negated = !negated;
        }
        let primary = self.primary()?;
        Ok(if negated { primary.negated() } else { primary })
    }

    fn primary(&mut self) -> Result<Expression, SelectorError> {
        self.skip_space();
        if self.rest().starts_with('(') {
            return self.group();
        }
        if self.take("all(") {
            self.close()?;
            return Ok(Expression::All);
        }
        if self.take("global(") {
            self.close()?;
            return Ok(Expression::Global);
        }
        if self.take("has(") {
            self.skip_space();
            let label = self.label()?;
            self.close()?;
            return Ok(Expression::Has(label));
        }
        self.comparison()
    }

    fn close(&mut self) -> Result<(), SelectorError> {
        self.skip_space();
        self.expect(")")
    }

    fn group(&mut self) -> Result<Expression, SelectorError> {
        if self.depth == DEEPEST {
            return Err(self.error(&format!("parentheses are nested more than {DEEPEST} deep")));
        }
        self.expect("(")?;
        self.depth += 1;
        let inner = self.or()?;
        self.close()?;
        self.depth -= 1;
        Ok(inner)
    }

    fn comparison(&mut self) -> Result<Expression, SelectorError> {
        let label = self.label()?;
        self.skip_space();
        if self.take_words(&["not", "in"]) {
            return Ok(Expression::NotIn {
                label,
                values: self.set()?,
            });
        }
        if self.take_words(&["in"]) {
            return Ok(Expression::In {
                label,
                values: self.set()?,
            });
        }
        let operator = if self.take("==") {
            Comparison::Equal
        } else if self.take("!=") {
            Comparison::NotEqual
        } else if self.take_words(&["contains"]) {
            Comparison::Contains
        } else if self.take_words(&["starts", "with"]) {
            Comparison::StartsWith
        } else if self.take_words(&["ends", "with"]) {
            Comparison::EndsWith
        } else {
            return Err(
                self.error("expected ==, !=, in, not in, contains, starts with or ends with")
            );
        };
        self.skip_space();
        Ok(Expression::Compare {
            label,
            operator,
            value: self.string()?,
        })
    }

    /// Takes the words of an operator, with any space between them, if no label character follows the last.
    fn take_words(&mut self, words: &[&str]) -> bool {
        let start = self.at;
        let mut found = true;
        for word in words {
            self.skip_space();
            found = found && self.take(word);
        }
        found = found && !self.rest().starts_with(is_label_character);
        if !found {
            self.at = start;
        }
        found
    }

    fn label(&mut self) -> Result<String, SelectorError> {
        let rest = self.rest();
        let length = rest.find(|c| !is_label_character(c)).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.error("expected a label, has(...), all(), global() or a parenthesis"));
        }
        if length > LONGEST_LABEL {
            return Err(self.error(&format!(
                "the label has more than {LONGEST_LABEL} characters"
            )));
        }
        self.at += length;
        Ok(rest[..length].to_owned())
    }

    fn string(&mut self) -> Result<String, SelectorError> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(self.error("expected a text in quotes"));
        };
        let Some(length) = rest[1..].find(quote) else {
            return Err(self.error("the text has no closing quote"));
        };
        self.at += length + 2;
        Ok(rest[1..=length].to_owned())
    }

    fn set(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        self.skip_space();
        self.expect("{")?;
        let mut values = BTreeSet::new();
        loop {
            self.skip_space();
            if self.take("}") {
                return Ok(values);
            }
            values.insert(self.string()?);
            self.skip_space();
            if !self.take(",") {
                self.expect("}")?;
                return Ok(values);
            }
        }
    }
}

fn is_label_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}
