//! The grammar of label selectors: requirements, separated by commas.

use super::{
    Operator, Requirement,
    lexer::{Kind, Token, tokens},
    syntax,
};

/// Parses all requirements of `text`.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        let next = parser.peek_value();
        match next.kind {
            Kind::Identifier | Kind::Not => {
                let requirement =
                    parser.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
                requirements.push(requirement);
                let end = parser.next_value();
                match end.kind {
                    Kind::End => return Ok(requirements),
                    Kind::Comma => {
                        let after = parser.peek_value();
                        if !matches!(after.kind, Kind::Identifier | Kind::Not) {
                            return Err(format!("found '{}', expected: identifier after ','", after.text));
                        }
                    }
                    _ => return Err(format!("found '{}', expected: ',' or 'end of string'", end.text)),
                }
            }
            Kind::End => return Ok(requirements),
            _ => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", next.text)),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token { kind: Kind::End, text: "" })
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    /// The next token where `in` and `notin` are names like any other.
    fn peek_value(&self) -> Token<'a> {
        let token = self.peek();
        match token.kind {
            Kind::In | Kind::NotIn => Token { kind: Kind::Identifier, ..token },
            _ => token,
        }
    }

    fn next_value(&mut self) -> Token<'a> {
        let token = self.peek_value();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next_value();
        let negated = token.kind == Kind::Not;
        if negated {
            token = self.next_value();
        }
        if token.kind != Kind::Identifier {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        let key = token.text;
        syntax::check_key(key)?;
        if negated {
            return new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek_value().kind, Kind::End | Kind::Comma) {
            return new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.next();
        Ok(match token.kind {
            Kind::In => Operator::In,
            Kind::NotIn => Operator::NotIn,
            Kind::Equals | Kind::DoubleEquals => Operator::Equals,
            Kind::NotEquals => Operator::NotEquals,
            Kind::Greater => Operator::GreaterThan,
            Kind::Less => Operator::LessThan,
            _ => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", token.text)),
        })
    }

    /// The values in parentheses after `in`; any of them may be empty.
    fn values(&mut self) -> Result<Vec<&'a str>, String> {
        let open = self.next_value();
        if open.kind != Kind::Open {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let first = self.peek_value();
        match first.kind {
            Kind::Identifier | Kind::Comma => {
                let values = self.identifiers()?;
                if self.next_value().kind != Kind::Close {
                    return Err(format!("found '{}', expected: ')'", first.text));
                }
                Ok(values)
            }
            Kind::Close => {
                self.next();
                Ok(vec![""])
            }
            _ => Err(format!("found '{}', expected: ',', ')' or identifier", first.text)),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<&'a str>, String> {
        let mut values = Vec::new();
        loop {
            let token = self.next_value();
            match token.kind {
                Kind::Identifier => {
                    values.push(token.text);
                    let after = self.peek_value();
                    match after.kind {
                        Kind::Comma => {}
                        Kind::Close => return Ok(values),
                        _ => return Err(format!("found '{}', expected: ',' or ')'", after.text)),
                    }
                }
                Kind::Comma => {
                    if values.is_empty() {
                        values.push("");
                    }
                    match self.peek_value().kind {
                        Kind::Close => {
                            values.push("");
                            return Ok(values);
                        }
                        Kind::Comma => values.push(""),
                        _ => {}
                    }
                }
                _ => return Err(format!("found '{}', expected: ',', or identifier", token.text)),
            }
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek_value().kind, Kind::End | Kind::Comma) {
            return Ok("");
        }
        let token = self.next_value();
        match token.kind {
            Kind::Identifier => Ok(token.text),
            _ => Err(format!("found '{}', expected: identifier", token.text)),
        }
    }
}

/// A requirement whose values keep the rules of label values.
fn new(key: &str, operator: Operator, mut values: Vec<&str>) -> Result<Requirement, String> {
    values.sort_unstable();
    values.dedup();
    let mut errors = Vec::new();
    if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
            let quoted = crate::quoting::quoted(value);
            errors.push(format!(
                "values[{index}]: Invalid value: {quoted}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
    }
    for (index, value) in values.iter().enumerate() {
        errors.extend(syntax::value_error(value).map(|error| format!("values[{index}][{key}]: {error}")));
    }
    match &errors[..] {
        [] => Ok(Requirement {
            key: key.into(),
            operator,
            values: values.into_iter().map(Into::into).collect(),
        }),
        [error] => Err(error.clone()),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}
