//! What the API server said, and what the hub says to the same requests without a link, before and after it is killed. It was asked nothing
//! of it but for the whole list, as an informer asks, the whole table, as `kubectl get` does, and custom resources by a field: what is drawn has selectors that nobody had asked for.
//! Besides what clients ask there are the requests that are compared with a link, most of which are errors: without one the hub has to word them.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube_wire::status::Status;
use testkit::{
    client::connection::{ConnectionError, Endpoint},
    differential::{Case, Landmarks, Said, Subject, Verb, is_same, pages, token, told, wording},
};

use super::{super::site::get, CORNERS, DRAWN, begun, written};

/// How many are asked at once: of more the hub does not look at once whose they are, and says 429.
const AT_ONCE: usize = 16;

/// The least share of the requests that are to be answered with objects, in percent.
const ANSWERED: usize = 60;

/// The least share of the others that are to be refused, in percent.
const REFUSED: usize = 50;

/// How long what a table showed takes to be on the disk.
const KEPT: Duration = Duration::from_secs(3);

/// A request, and what the API server said to it.
struct Told {
    subject: Subject,
    landmarks: Landmarks,
    case: Case,
    said: Vec<Said>,
}

impl Told {
    async fn ask(server: &Endpoint, case: Case, subject: &Subject, landmarks: &Landmarks) -> Self {
        let said = told(server, &case, subject, landmarks, token_of).await.unwrap();
        Self { subject: subject.clone(), landmarks: landmarks.clone(), case, said }
    }

    /// Whether the API server answered with objects.
    fn is_good(&self) -> bool {
        self.said.iter().all(|said| said.reply.is_good())
    }

    /// Whether it answered with objects, and the hub is to do so as well.
    fn is_good_offline(&self) -> bool {
        let may_refuse = |said: &Said| self.case.refused_offline(&self.subject, &said.reply).is_some();
        self.is_good() && !self.said.first().is_some_and(may_refuse)
    }

    /// Whether it did not begin to answer at all.
    fn is_refused(&self) -> bool {
        self.said.first().is_some_and(|said| said.reply.status != 200)
    }

    /// What the hub says otherwise, where it may not.
    async fn difference(&self, hub: &Endpoint) -> Option<String> {
        let Self { subject, landmarks, case, said: told } = self;
        let hub = said(hub, case, subject, landmarks).await;
        if let ([first, ..], [refusal]) = (&**told, &*hub)
            && case.refused_offline(subject, &first.reply) == Some(refusal.reply.status)
        {
            return None;
        }
        let is_same = is_same(told, &hub) && told.iter().map(error).eq(hub.iter().map(error));
        (!is_same).then(|| {
            let (path, accept) = case.request(subject, landmarks);
            format!("{path} ({accept})\n  {}\n  {}", brief(told), brief(&hub))
        })
    }
}

/// All pages.
async fn said(endpoint: &Endpoint, case: &Case, subject: &Subject, landmarks: &Landmarks) -> Vec<Said> {
    pages(endpoint, case, subject, landmarks, token_of).await.unwrap()
}

#[allow(clippy::unnecessary_wraps, reason = "it is asked for so")]
fn token_of(said: &Said) -> Result<Option<String>, ConnectionError> {
    Ok(token(said))
}

/// An error in protobuf, which is not looked into elsewhere.
fn error(said: &Said) -> Option<Status> {
    let status = Status::from_protobuf(&said.body).filter(|_| said.reply.status != 200)?;
    Some(Status { message: wording(&status.message), ..status })
}

fn brief(said: &[Said]) -> String {
    let page = |said: &Said| format!("{} {}", said.reply.status, String::from_utf8_lossy(&said.body));
    said.iter().map(page).collect::<Vec<_>>().join("\n    ")
}

/// What is compared with a link, most of it errors. To wait for a version that never comes takes seconds each.
fn mostly_refused() -> Vec<Case> {
    let mut cases: Vec<Case> = CORNERS.iter().flat_map(|(watch, free)| Case::corners(*watch, free)).collect();
    cases.extend([false, true].into_iter().flat_map(|watch| Case::pairs(watch, 1)));
    cases.retain(|case| !case.waits());
    cases
}

#[tokio::test]
async fn without_a_link_the_hub_says_what_the_api_server_said() {
    let (mut site, subjects) = begun().await;
    let (hub, server) = (site.plain(), site.direct());
    let (mut told, mut others) = (Vec::new(), Vec::new());
    for subject in &subjects {
        let landmarks = written(&site, &subject.0).await;
        let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
        let mut answer = hub.get(&subject.0.path(false), table).await.unwrap();
        answer.bytes().await.unwrap();
        // By which fields custom resources are selected it learns of a request that names one.
        if !subject.1 {
            let path = format!("{}?fieldSelector=spec.n%3D7", subject.0.path(false));
            assert_eq!(get(&hub, &path).await.unwrap().0, 200, "{path}");
        }
        for verb in [Verb::List, Verb::Watch, Verb::Get] {
            let drawn = Case::plausible(verb, DRAWN, 1, subject.1);
            let asked = drawn.into_iter().map(|case| Told::ask(&server, case, &subject.0, &landmarks));
            told.extend(stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await);
        }
        let asked = mostly_refused().into_iter().map(|case| Told::ask(&server, case, &subject.0, &landmarks));
        others.extend(stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await);
    }
    let good = told.iter().filter(|told| told.is_good_offline());
    assert!(good.count() * 100 >= told.len() * ANSWERED, "too few say anything");
    let refused = others.iter().filter(|told| told.is_refused());
    assert!(refused.count() * 100 >= others.len() * REFUSED, "too few are errors");
    told.extend(others);
    // What is kept of tables is on its way to the disk.
    tokio::time::sleep(KEPT).await;
    site.server.cut();
    site.offline().await;
    for when in ["after the cut", "after a restart"] {
        if when == "after a restart" {
            site.restart().await;
        }
        let asked = told.iter().map(|told| told.difference(&hub));
        let found: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let found: Vec<String> = found.into_iter().flatten().collect();
        assert!(found.is_empty(), "{when}, {} of {}:\n{}", found.len(), told.len(), found.join("\n"));
    }
}
