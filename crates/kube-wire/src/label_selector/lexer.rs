//! Cuts the text of a label selector into tokens.

/// A token, with the text that errors quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

/// The tokens of `text`; the last is [`Kind::End`]. A NUL ends the text, as it does for apimachinery.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let text = text.split_once('\0').map_or(text, |(before, _)| before);
    let mut rest = text.trim_start_matches(blank);
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let (kind, length) = symbol(rest).unwrap_or_else(|| word(rest));
        tokens.push(Token { kind, text: &rest[..length] });
        rest = rest[length..].trim_start_matches(blank);
    }
    tokens.push(Token { kind: Kind::End, text: "" });
    tokens
}

fn blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

/// The longest symbol that `rest` begins with.
fn symbol(rest: &str) -> Option<(Kind, usize)> {
    const SYMBOLS: [(&str, Kind); 9] = [
        ("!=", Kind::NotEquals),
        ("==", Kind::DoubleEquals),
        ("=", Kind::Equals),
        ("!", Kind::Not),
        ("(", Kind::Open),
        (")", Kind::Close),
        (",", Kind::Comma),
        (">", Kind::Greater),
        ("<", Kind::Less),
    ];
    SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)).map(|(symbol, kind)| (*kind, symbol.len()))
}

fn word(rest: &str) -> (Kind, usize) {
    let length = rest.find(|c| blank(c) || "=!(),><".contains(c)).unwrap_or(rest.len());
    let kind = match &rest[..length] {
        "in" => Kind::In,
        "notin" => Kind::NotIn,
        _ => Kind::Identifier,
    };
    (kind, length)
}
