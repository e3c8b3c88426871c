//! Which part of the product is walked by itself, and from where on: a whole one takes hours, and may have to be begun again.

use std::env;

use anyhow::{Context, Result, bail, ensure};
use testkit::differential::{Case, Verb};

use super::whole::WALKED;

/// The variables that say it.
const PRODUCT: &str = "ISTHMUS_PRODUCT";
const FROM: &str = "ISTHMUS_PRODUCT_FROM";

/// The verbs, as a part is named by them.
const VERBS: [(&str, Verb); 2] = [("lists", Verb::List), ("watches", Verb::Watch)];

/// One verb of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) resource: &'static str,
    pub(super) verb: Verb,
    /// How many requests come before the first.
    pub(super) from: usize,
}

impl Part {
    /// The part that is to be walked, and nothing else; all of it, and of everything else what there is, if there is none.
    pub(super) fn chosen() -> Result<Option<Self>> {
        let said = |name: &str| env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        Self::named(said(PRODUCT).as_deref(), said(FROM).as_deref())
    }

    fn named(product: Option<&str>, from: Option<&str>) -> Result<Option<Self>> {
        let Some(product) = product else {
            ensure!(from.is_none(), "{FROM} is of one part, which {PRODUCT} names: {}", names());
            return Ok(None);
        };
        let mut words = product.split_whitespace();
        let (resource, verb, more) = (words.next(), words.next(), words.next());
        let resource = WALKED.into_iter().find(|walked| Some(*walked) == resource);
        let verb = VERBS.into_iter().find(|(name, _)| Some(*name) == verb);
        let (Some(resource), Some((_, verb)), None) = (resource, verb, more) else {
            bail!("{PRODUCT} is {product:?}; there are: {}", names());
        };
        let whole = Case::product(verb == Verb::Watch, 0).len();
        let are = || format!("{product} are {whole}, from 0 to {}", whole - 1);
        let from = match from {
            None => 0,
            Some(text) => {
                text.trim().parse::<usize>().with_context(|| format!("{FROM} is {text:?}; {}", are()))?
            }
        };
        ensure!(from < whole, "{FROM} is {from}; {}", are());
        Ok(Some(Self { resource, verb, from }))
    }
}

/// The name of the part that is a verb of a resource.
pub(super) fn name(resource: &str, verb: Verb) -> String {
    let of_verb = VERBS.into_iter().find(|(_, known)| *known == verb);
    format!("{resource} {}", of_verb.map_or("", |(name, _)| name))
}

fn names() -> String {
    let of = |resource: &'static str| VERBS.map(|(_, verb)| format!("{:?}", name(resource, verb)));
    WALKED.map(|resource| of(resource).join(", ")).join(", ")
}

#[test]
fn a_part_is_named_by_its_resource_and_verb() {
    let part = |resource, verb, from| Some(Part { resource, verb, from });
    for (product, from, expected) in [
        (None, None, None),
        (Some("pods watches"), None, part("pods", Verb::Watch, 0)),
        (Some("pods lists"), Some("1200"), part("pods", Verb::List, 1200)),
        (Some("  widgets  lists "), Some("0"), part("widgets", Verb::List, 0)),
        (Some("widgets watches"), Some("293999"), part("widgets", Verb::Watch, 293_999)),
    ] {
        assert_eq!(Part::named(product, from).ok(), Some(expected), "{product:?} {from:?}");
    }
}

#[test]
fn what_is_no_part_is_told_what_there_is() {
    let all = r#""pods lists", "pods watches", "widgets lists", "widgets watches""#;
    for product in ["", "pods", "watches", "pods gets", "services lists", "pods lists watches"] {
        let why = Part::named(Some(product), None).map_err(|error| format!("{error:#}"));
        assert_eq!(why, Err(format!("ISTHMUS_PRODUCT is {product:?}; there are: {all}")));
    }
    for (product, from) in [
        (None, "1"),
        (Some("pods watches"), "294000"),
        (Some("pods watches"), "-1"),
        (Some("pods watches"), ""),
    ] {
        let why = Part::named(product, Some(from)).map_err(|error| format!("{error:#}")).err();
        let known = if product.is_none() { all } else { "pods watches are 294000, from 0 to 293999" };
        assert!(why.is_some_and(|why| why.contains(known)), "{product:?} {from:?}");
    }
}
