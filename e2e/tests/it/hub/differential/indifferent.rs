//! What is not multiplied in the product of parameters ([`Case::product`]) makes no difference to the API server: shown with a request of each pair
//! of values of the others, and with some that are answered with objects.

use anyhow::Result;
use futures::future::try_join_all;
use testkit::client::connection::Endpoint;
use testkit::differential::{Case, Common, Subject, Verb, ask, populate};

use super::decoded::decoded;
use super::{AT_ONCE, own};

/// How many are drawn as clients make them.
const DRAWN: usize = 20;

/// Asks the API server each request in all ways that are to be of no consequence; and says where they are of any.
#[allow(clippy::print_stdout, reason = "how many were asked is what the run is read for")]
pub(super) async fn indifferent(
    real: &Endpoint,
    subject: &Subject,
    seed: usize,
    typed: bool,
) -> Result<Vec<String>> {
    let landmarks = populate(real, subject).await?;
    let mut report = Vec::new();
    for watch in [false, true] {
        let verb = if watch { Verb::Watch } else { Verb::List };
        let mut cases = Case::pairs(watch, seed as u64);
        cases.extend(Case::plausible(verb, DRAWN, seed as u64, typed));
        // To wait for what never comes takes seconds each.
        cases.retain(|case| !case.waits());
        let all: Vec<Case> = cases.iter().flat_map(Case::indifferent).collect();
        let mut said = Vec::new();
        for some in all.chunks(AT_ONCE) {
            let asked = some.iter().map(|case| ask(real, case, subject, &landmarks, Common::Cluster));
            said.extend(try_join_all(asked).await?);
        }
        let each = all.len() / cases.len();
        for (cases, said) in all.chunks(each).zip(said.chunks(each)) {
            let first = (own(&said[0].reply), decoded(&cases[0], &said[0], &landmarks)?);
            for (case, said) in cases.iter().zip(said).skip(1) {
                if first != (own(&said.reply), decoded(case, said, &landmarks)?) {
                    report.push(format!(
                        "of consequence: {:?} {:?}",
                        case.request(subject, &landmarks),
                        said.reply
                    ));
                }
            }
        }
        println!(
            "{}, {verb:?}: {} requests, each in {each} ways that are of no consequence; {} differ",
            subject.resource,
            cases.len(),
            report.len()
        );
    }
    Ok(report)
}
