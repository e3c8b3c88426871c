//! A table of figures, ours beside a baseline.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Map, Value};

/// What a benchmark found.
pub(crate) struct Report {
    pub(crate) title: String,
    pub(crate) figures: Vec<Figure>,
    /// What the figures depend on, in a sentence each.
    pub(crate) notes: Vec<String>,
    /// What could not be measured, and why. The figures are those of the rest.
    pub(crate) missing: Vec<String>,
}

/// One row of the table and one key of the JSON object.
pub(crate) struct Figure {
    pub(crate) key: Cow<'static, str>,
    pub(crate) value: f64,
    /// The same of another, and whose it is.
    pub(crate) baseline: Option<(f64, &'static str)>,
    /// What was asked for.
    pub(crate) target: Option<f64>,
}

impl Figure {
    pub(crate) fn new(key: impl Into<Cow<'static, str>>, value: f64) -> Self {
        Self { key: key.into(), value, baseline: None, target: None }
    }

    pub(crate) fn against(self, value: f64, whose: &'static str) -> Self {
        Self { baseline: Some((value, whose)), ..self }
    }

    pub(crate) fn target(self, value: f64) -> Self {
        Self { target: Some(value), ..self }
    }
}

impl Report {
    /// Prints the table.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { title, figures, notes, missing } = self;
        writeln!(out, "{title}\n\n| figure | ours | target | baseline | whose |\n|---|---:|---:|---:|---|")?;
        for Figure { key, value, baseline, target } in figures {
            let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
            let (other, whose) = baseline.map_or((None, ""), |(value, whose)| (Some(value), whose));
            writeln!(out, "| {key} | {value:.2} | {} | {} | {whose} |", number(*target), number(other))?;
        }
        notes.iter().try_for_each(|note| writeln!(out, "\n{note}"))?;
        missing.iter().try_for_each(|what| writeln!(out, "\nNot measured: {what}"))
    }

    /// The figures as one flat JSON object.
    pub(crate) fn json(&self) -> String {
        let figures: Map<String, Value> =
            self.figures.iter().map(|figure| (figure.key.to_string(), figure.value.into())).collect();
        Value::Object(figures).to_string()
    }
}

/// The value below which that share of the samples lies; `share` from 0 to 1.
pub(crate) fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let place = ((samples.len() as f64 - 1.0) * share).round() as usize;
    samples.get(place).copied().unwrap_or(f64::NAN)
}
