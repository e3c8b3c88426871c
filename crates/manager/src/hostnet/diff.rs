//! How a change of affinity is shown: a unified diff of its YAML.
//!
//! Pure. Colours are for terminals only; the caller knows whether it writes to one.

use std::fmt::Write;

use serde_json::{Value, json};
use similar::TextDiff;

/// Lines around a change: the whole of an affinity, unless it is a long one.
const CONTEXT: usize = 10;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// The diff of the affinities `before` and `after` of the object that is called `title`; empty when they are alike.
pub(super) fn diff(
    title: &str,
    before: &Value,
    after: &Value,
    colour: bool,
) -> Result<String, serde_saphyr::ser::Error> {
    let (before, after) = (yaml(before)?, yaml(after)?);
    let text = TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(CONTEXT)
        .header(&format!("{title} (now)"), &format!("{title} (planned)"))
        .to_string();
    Ok(if colour { coloured(&text) } else { text })
}

/// The affinity with the fields it stands in; nothing when there is none.
fn yaml(affinity: &Value) -> Result<String, serde_saphyr::ser::Error> {
    if affinity.is_null() {
        return Ok(String::new());
    }
    serde_saphyr::to_string(&json!({ "spec": { "template": { "spec": { "affinity": affinity } } } }))
}

fn coloured(text: &str) -> String {
    let mut coloured = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        let colour = match line.as_bytes() {
            [b'-', b'-', b'-', ..] | [b'+', b'+', b'+', ..] => BOLD,
            [b'-', ..] => RED,
            [b'+', ..] => GREEN,
            [b'@', ..] => CYAN,
            _ => "",
        };
        let reset = if colour.is_empty() { "" } else { RESET };
        // Writing to a String does not fail.
        let _ = writeln!(coloured, "{colour}{line}{reset}");
    }
    coloured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_the_whole_path_and_colours_only_if_asked() {
        let after = json!({ "nodeAffinity": { "x": [{ "key": "k", "values": ["true"] }] } });
        let before = json!({ "nodeAffinity": { "x": [] } });
        let plain = diff("DaemonSet a/b", &before, &after, false).unwrap();
        let expected = "\
--- DaemonSet a/b (now)
+++ DaemonSet a/b (planned)
@@ -1,6 +1,9 @@
 spec:
   template:
     spec:
       affinity:
         nodeAffinity:
-          x: []
+          x:
+          - key: k
+            values:
+            - \"true\"
";
        assert_eq!(plain, expected);
        let coloured = diff("DaemonSet a/b", &before, &after, true).unwrap();
        assert!(coloured.contains("\x1b[31m-") && coloured.contains("\x1b[32m+"), "{coloured}");
        let mut bare = coloured;
        for code in [RED, GREEN, CYAN, BOLD, RESET] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, plain);
        assert_eq!(diff("x", &after, &after, false).unwrap(), "");
    }
}
