//! The Rust sources of the workspace, and their lines without comments and literals.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// A Rust source file.
pub(super) struct Source {
    /// Relative to the root of the workspace, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// Whether the module that declares it does so for tests only.
    declared_for_tests: bool,
}

/// A line in its three parts, numbered from 1.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Line {
    pub(super) number: usize,
    /// Code, with the content of literals left out.
    pub(super) code: String,
    /// The content of string literals.
    pub(super) literals: String,
    /// Comments, of all kinds.
    pub(super) comment: String,
}

impl Source {
    /// Whether the whole file is tests or an example: it stands in a folder of such, is declared for tests only, or has their name.
    pub(super) fn is_test(&self) -> bool {
        let folders = ["tests", "e2e", "benches", "examples"];
        let in_folder = self.path.split('/').any(|part| folders.contains(&part));
        in_folder || self.declared_for_tests || self.path.ends_with("/tests.rs")
    }

    /// The modules that this file declares for tests only, as paths without `.rs`.
    fn test_modules(&self) -> Vec<String> {
        let folder = match self.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
            _ => self.path.trim_end_matches(".rs"),
        };
        let lines = split(&self.text);
        let declared = lines.windows(2).filter(|pair| pair[0].code.trim() == "#[cfg(test)]");
        let name =
            |pair: &[Line]| Some(pair[1].code.trim().rsplit_once("mod ")?.1.strip_suffix(';')?.to_owned());
        declared.filter_map(name).map(|name| format!("{folder}/{name}")).collect()
    }

    /// The lines that are compiled into what runs: without the module of tests at the end of a file.
    pub(super) fn lines(&self) -> Vec<Line> {
        let lines = split(&self.text);
        let end = lines.iter().position(|line| line.code.trim() == "#[cfg(test)]").unwrap_or(lines.len());
        // The attribute also stands on single items; only a module ends the part that runs.
        let is_module = lines.get(end + 1).is_some_and(|line| line.code.trim().starts_with("mod tests"));
        let end = if is_module { end } else { lines.len() };
        lines.into_iter().take(end).collect()
    }
}

/// All Rust sources of the workspace, in the order of their paths.
pub(super) fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in ["crates", "e2e"] {
        collect(&workspace::root().join(folder), &mut sources);
    }
    let for_tests: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let within = |module: &String| {
            source.path.strip_prefix(module).is_some_and(|r| r == ".rs" || r.starts_with('/'))
        };
        source.declared_for_tests = for_tests.iter().any(within);
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 10, "the sources were not found");
    sources
}

/// The sources whose code runs: no tests, and not this tool, whose rules quote what they forbid.
pub(super) fn production() -> Vec<Source> {
    sources()
        .into_iter()
        .filter(|source| !source.is_test() && !source.path.starts_with("crates/xtask/"))
        .collect()
}

fn collect(folder: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            sources.push(Source { path: relative(&path), text, declared_for_tests: false });
        }
    }
}

fn relative(path: &Path) -> String {
    let parts: PathBuf = path.strip_prefix(workspace::root()).unwrap().into();
    parts.to_string_lossy().replace('\\', "/")
}

/// Splits a text into lines, and each line into code, literals and comments.
pub(super) fn split(text: &str) -> Vec<Line> {
    let mut lines = vec![Line { number: 1, ..Line::default() }];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (part, length) = token(rest, first);
        for (index, piece) in rest[..length].split('\n').enumerate() {
            if index > 0 {
                lines.push(Line { number: lines.len() + 1, ..Line::default() });
            }
            let line = lines.last_mut().unwrap();
            match part {
                Part::Code => line.code.push_str(piece),
                Part::Literal => line.literals.push_str(piece),
                Part::Comment => line.comment.push_str(piece),
            }
        }
        rest = &rest[length..];
    }
    lines
}

#[derive(Clone, Copy)]
enum Part {
    Code,
    Literal,
    Comment,
}

/// What `rest` begins with, and its length in bytes.
fn token(rest: &str, first: char) -> (Part, usize) {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at);
    if rest.starts_with("//") {
        return (Part::Comment, until("\n", 2));
    }
    if rest.starts_with("/*") {
        return (Part::Comment, (until("*/", 2) + 2).min(rest.len()));
    }
    if let Some(hashes) = raw_string(rest) {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = rest.find('"').unwrap_or(0) + 1;
        return (Part::Literal, (until(&end, start) + end.len()).min(rest.len()));
    }
    match first {
        '"' => (Part::Literal, quoted(rest, '"')),
        // A character, or a lifetime.
        '\'' if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') => {
            (Part::Literal, quoted(rest, '\''))
        }
        // A whole word, so that the `r` of `for"` begins no raw string.
        c if c.is_alphanumeric() || c == '_' => {
            (Part::Code, rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()))
        }
        c => (Part::Code, c.len_utf8()),
    }
}

/// The number of `#` of the raw string that `rest` begins with.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a literal that begins and ends with `quote`.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn lines_are_split_into_code_literals_and_comments() {
    let text = concat!(
        "let a = \"x // \\\" y\"; // why\n",
        "let b = r#\"one\n\"two\"#; /* three\nfour */ let c: &'static str = 'd'.into();\n",
        "let e = '\\'';",
    );
    let lines: Vec<_> = split(text).into_iter().map(|l| (l.number, l.code, l.literals, l.comment)).collect();
    let expected = [
        (1, "let a = ; ", "\"x // \\\" y\"", "// why"),
        (2, "let b = ", "r#\"one", ""),
        (3, "; ", "\"two\"#", "/* three"),
        (4, " let c: &'static str = .into();", "'d'", "four */"),
        (5, "let e = ;", "'\\''", ""),
    ];
    let expected = expected.map(|(n, a, b, c)| (n, a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(lines, expected);
}

#[test]
fn the_tests_at_the_end_of_a_file_are_no_part_of_what_runs() {
    let source = |text: &str| Source {
        path: "crates/a/src/b.rs".to_owned(),
        text: text.to_owned(),
        declared_for_tests: false,
    };
    assert_eq!(source("#[cfg(test)]\nmod c;\nmod d;").test_modules(), ["crates/a/src/b/c"]);
    assert_eq!(source("fn a() {}\n#[cfg(test)]\nmod tests {\n}\n").lines().len(), 1);
    assert_eq!(source("#[cfg(test)]\nfn a() {}\nfn b() {}").lines().len(), 3);
}
