//! Type declarations of a Go package, as far as the published Kubernetes types need them: structs with tags, aliases,
//! imports, and the comments that generators read. It knows nothing of what the types mean.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, bail};

/// The declarations of a package.
#[derive(Debug, Default)]
pub(super) struct Package {
    pub(super) declarations: BTreeMap<String, Declaration>,
    /// Types with a JSON form of their own.
    pub(super) json_marshalers: BTreeSet<String>,
    /// `const GroupName`.
    pub(super) group: Option<String>,
    /// The version in `var SchemeGroupVersion`.
    pub(super) version: Option<String>,
    /// Types that are registered as kinds, in their order.
    pub(super) registered: Vec<String>,
}

/// `type X …`.
#[derive(Debug)]
pub(super) struct Declaration {
    /// The comments since the declaration before, without slashes.
    pub(super) comments: Vec<String>,
    pub(super) body: Body,
    /// Names of imported packages in the file, and their paths.
    pub(super) imports: Rc<BTreeMap<String, String>>,
}

#[derive(Debug)]
pub(super) enum Body {
    Struct(Vec<Field>),
    /// `type X Y` or `type X = Y`.
    Alias(String),
}

/// A field of a struct.
#[derive(Debug)]
pub(super) struct Field {
    /// Of an embedded field the type's name.
    pub(super) name: String,
    pub(super) of: String,
    pub(super) embedded: bool,
    pub(super) json: Option<String>,
    pub(super) protobuf: Option<String>,
}

/// Reads the package in a folder.
pub(super) fn read(folder: &Path) -> anyhow::Result<Package> {
    let mut package = Package::default();
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "go"))
        .collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let generated = name.contains("generated") || name.starts_with("zz_");
        if !generated && !name.ends_with("_test.go") {
            let text = fs::read_to_string(&file)?;
            package.add(&text).with_context(|| format!("in {}", file.display()))?;
        }
    }
    Ok(package)
}

impl Package {
    fn add(&mut self, text: &str) -> anyhow::Result<()> {
        let imports = Rc::new(imports(text));
        let mut comments = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(comment) = line.strip_prefix("//") {
                comments.push(comment.trim().to_owned());
                continue;
            }
            if line.trim().is_empty() {
                continue;
            }
            self.note_registration(line);
            if let Some(declared) = line.strip_prefix("type ") {
                let (name, rest) = declared.split_once(' ').context("a type without a name")?;
                let body = if rest == "struct {" {
                    Body::Struct(fields(&mut lines).with_context(|| format!("in type {name}"))?)
                } else if ["struct{}", "struct {}"].contains(&rest) {
                    Body::Struct(Vec::new())
                } else {
                    let aliased = rest.split("//").next().unwrap_or_default();
                    Body::Alias(aliased.trim_start_matches('=').trim().to_owned())
                };
                let declaration =
                    Declaration { comments: std::mem::take(&mut comments), body, imports: imports.clone() };
                self.declarations.insert(name.to_owned(), declaration);
            }
            comments.clear();
        }
        Ok(())
    }

    fn note_registration(&mut self, line: &str) {
        if let Some(group) = line.strip_prefix("const GroupName = ") {
            self.group = Some(group.trim_matches('"').to_owned());
        }
        if let Some((_, version)) =
            line.split_once("SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: \"")
        {
            self.version = version.split('"').next().map(str::to_owned);
        }
        if let Some(kind) = line.trim().strip_prefix('&').and_then(|rest| rest.strip_suffix("{},")) {
            self.registered.push(kind.to_owned());
        }
        // func (f FieldsV1) MarshalJSON() ([]byte, error) {
        if let Some((receiver, _)) =
            line.strip_prefix("func (").and_then(|rest| rest.split_once(") MarshalJSON("))
        {
            self.json_marshalers
                .extend(receiver.split(' ').next_back().map(|name| name.trim_start_matches('*').to_owned()));
        }
    }
}

/// The imported packages by the name that the file gives them.
fn imports(text: &str) -> BTreeMap<String, String> {
    let block = text
        .split_once("import (")
        .and_then(|(_, rest)| rest.split_once("\n)"))
        .map_or("", |(block, _)| block);
    let single = text.lines().filter_map(|line| line.strip_prefix("import "));
    let import = |line: &str| {
        let mut parts = line.trim().splitn(2, '"');
        let alias = parts.next()?.trim();
        let path = parts.next()?.split('"').next()?;
        let name = if alias.is_empty() { path.rsplit('/').next()? } else { alias };
        Some((name.to_owned(), path.to_owned()))
    };
    block.lines().chain(single).filter_map(import).collect()
}

/// The fields of a struct whose opening line was read.
fn fields<'a>(lines: &mut impl Iterator<Item = &'a str>) -> anyhow::Result<Vec<Field>> {
    let mut fields = Vec::new();
    let mut in_comment = false;
    for line in lines {
        if line == "}" {
            return Ok(fields);
        }
        let line = line.trim();
        if in_comment || line.starts_with("/*") {
            in_comment = !line.contains("*/");
            continue;
        }
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        let (declared, tags) = line.split_once('`').unwrap_or((line, ""));
        let declared = declared.split("//").next().unwrap_or_default();
        let mut words = declared.split_whitespace();
        let first = words.next().context("a field without a name")?;
        let (name, of, embedded) = match words.next() {
            Some(of) => (first, of, false),
            None => (first.rsplit(['.', '*']).next().unwrap_or(first), first, true),
        };
        fields.push(Field {
            name: name.to_owned(),
            of: of.to_owned(),
            embedded,
            json: tag(tags, "json"),
            protobuf: tag(tags, "protobuf"),
        });
    }
    bail!("the struct does not end")
}

/// The value of a key in a field's tags.
fn tag(tags: &str, key: &str) -> Option<String> {
    let (_, rest) = tags.split_once(&format!("{key}:\""))?;
    rest.split('"').next().map(str::to_owned)
}

#[test]
fn declarations_are_read_with_comments_and_tags() {
    let text = concat!(
        "package v1\n\nimport (\n\tv1 \"k8s.io/api/core/v1\"\n\t\"k8s.io/apimachinery/pkg/runtime\"\n)\n",
        "const GroupName = \"a.io\"\n",
        "var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: \"v1beta1\"}\n",
        "\t\t&A{},\n",
        "// +genclient\n\n// A is.\ntype A struct {\n\t// x\n\tmetav1.TypeMeta `json:\",inline\"`\n\t/* old\n\tB int\n\t*/\n",
        "\tC *v1.Pod `json:\"c,omitempty\" protobuf:\"bytes,1,opt,name=c\"` // why\n}\n",
        "type D []string // list\ntype E = v1.Pod\nfunc (d *D) MarshalJSON() ([]byte, error) {\n",
    );
    let mut package = Package::default();
    package.add(text).unwrap();
    assert_eq!(package.group.as_deref(), Some("a.io"));
    assert_eq!(package.version.as_deref(), Some("v1beta1"));
    assert_eq!(package.registered, ["A"]);
    assert!(package.json_marshalers.contains("D"));
    let a = &package.declarations["A"];
    assert_eq!(a.comments, ["+genclient", "A is."]);
    assert_eq!(a.imports["v1"], "k8s.io/api/core/v1");
    assert_eq!(a.imports["runtime"], "k8s.io/apimachinery/pkg/runtime");
    let Body::Struct(fields) = &a.body else { panic!("not a struct") };
    let read: Vec<_> = fields
        .iter()
        .map(|f| (f.name.as_str(), f.of.as_str(), f.embedded, f.json.as_deref(), f.protobuf.as_deref()))
        .collect();
    assert_eq!(
        read,
        [
            ("TypeMeta", "metav1.TypeMeta", true, Some(",inline"), None),
            ("C", "*v1.Pod", false, Some("c,omitempty"), Some("bytes,1,opt,name=c"))
        ]
    );
    for (name, aliased) in [("D", "[]string"), ("E", "v1.Pod")] {
        assert!(matches!(&package.declarations[name].body, Body::Alias(of) if of == aliased));
    }
}
