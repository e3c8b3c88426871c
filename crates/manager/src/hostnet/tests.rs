//! The command as a whole, against a fake API server.

use std::convert::Infallible;
use std::sync::Arc;

use clap::Parser;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: HostnetArgs,
}

/// An API server with some objects in it.
#[derive(Clone, Default)]
struct Fake {
    /// By URL.
    objects: Arc<Mutex<Vec<(String, Value)>>>,
    /// How many patches others get in before.
    disturbances: Arc<Mutex<u32>>,
    /// What refuses every patch.
    refusal: Option<u16>,
    /// What refuses to list all `DaemonSets`.
    hidden: Option<u16>,
    /// None when there is no such kind.
    pools: Value,
    patches: Arc<Mutex<Vec<Value>>>,
}

impl Fake {
    fn with(self, url: &str, labels: &Value, affinity: &Value) -> Self {
        let mut parts = url.split('/');
        let (namespace, name) = (parts.next().unwrap(), parts.next_back().unwrap());
        let object = json!({
            "metadata": { "namespace": namespace, "name": name, "labels": labels, "resourceVersion": "1", "generation": 1 },
            "spec": { "template": { "spec": { "affinity": affinity } } },
            "status": { "observedGeneration": 1 },
        });
        self.objects.lock().push((url.to_owned(), object));
        self
    }

    fn object(&self, url: &str) -> Value {
        self.objects.lock().iter().find(|(at, _)| at == url).unwrap().1.clone()
    }

    fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (code, answer) = fake.answer(&head.method, head.uri.path(), &body);
                let answer = serde_json::to_vec(&answer).unwrap();
                Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(answer)).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, url: &str, body: &[u8]) -> (u16, Value) {
        let status = |code: u16| {
            (code, json!({ "kind": "Status", "status": "Failure", "code": code, "message": "no" }))
        };
        let mut objects = self.objects.lock();
        if url == "/apis/apps.openyurt.io/v1beta2/nodepools" {
            return if self.pools.is_null() { status(404) } else { (200, json!({ "items": self.pools })) };
        }
        if url == "/apis/apps/v1/daemonsets" {
            let daemon_sets = objects.iter().filter(|(url, _)| url.contains("/daemonsets/")).map(|(_, o)| o);
            return match self.hidden {
                Some(code) => status(code),
                None => (200, json!({ "items": daemon_sets.collect::<Vec<_>>() })),
            };
        }
        let path = url.strip_prefix("/apis/apps/v1/namespaces/").unwrap();
        if path.split('/').count() == 2 {
            let prefix = format!("{path}/");
            let items: Vec<_> =
                objects.iter().filter(|(url, _)| url.starts_with(&prefix)).map(|(_, o)| o).collect();
            return (200, json!({ "items": items }));
        }
        let Some((_, object)) = objects.iter_mut().find(|(url, _)| url == path) else { return status(404) };
        if method == Method::PATCH {
            if let Some(code) = self.refusal {
                return status(code);
            }
            let mut disturbances = self.disturbances.lock();
            if *disturbances > 0 {
                *disturbances -= 1;
                object["metadata"]["resourceVersion"] = json!(format!("other-{disturbances}"));
                object["spec"]["template"]["spec"]["affinity"] =
                    json!({ "podAffinity": { "n": *disturbances } });
            }
            let operations: json_patch::Patch = serde_json::from_slice(body).unwrap();
            if json_patch::patch(object, &operations).is_err() {
                return status(422);
            }
            object["metadata"]["resourceVersion"] = json!("patched");
            self.patches.lock().push(serde_json::to_value(operations).unwrap());
        }
        (200, object.clone())
    }

    async fn run(&self, line: &str) -> (Result<Outcome, Error>, String) {
        let action = Line::try_parse_from(format!("hostnet {line}").split(' ')).unwrap().args.action;
        let mut output = Output { to: Vec::new(), colour: false };
        let result = carry_out_action(&self.client(), &action, &mut output).await;
        (result, String::from_utf8(output.to).unwrap())
    }
}

const KUBE_PROXY: &str = "kube-system/daemonsets/kube-proxy";
const CORE_DNS: &str = "kube-system/deployments/coredns";
const LOGS: &str = "logs/daemonsets/agent";

fn cluster() -> Fake {
    let right = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": api::labels::HOST_NETWORK, "operator": "NotIn", "values": ["true"] }] },
    ] } } });
    Fake::default()
        .with(KUBE_PROXY, &json!({ "k8s-app": "kube-proxy" }), &json!({ "podAffinity": {} }))
        .with(CORE_DNS, &json!({ "k8s-app": "kube-dns" }), &right)
        .with("kube-system/deployments/metrics-server", &json!({}), &json!({}))
        .with(LOGS, &json!({}), &json!({}))
}

#[tokio::test]
async fn plan_says_what_would_be_changed_and_changes_nothing() {
    let fake = cluster();
    let (result, output) = fake.run("plan").await;
    assert_eq!(result.unwrap(), Outcome::Changes);
    let (diff, words) = output.split_once("\n\n").unwrap();
    assert!(
        diff.contains("+          - key: nodepool") || diff.contains("+              - key: nodepool"),
        "{diff}"
    );
    assert_eq!(
        words,
        "kube-proxy: DaemonSet kube-system/kube-proxy will get the anti-affinity\n\
         CoreDNS: Deployment kube-system/coredns is right already\n\
         flannel: not found\n\
         DaemonSet logs/agent would land on host-network nodes: pass --include logs/agent or --all-daemonsets\n"
    );
    assert_eq!(*fake.patches.lock(), Vec::<Value>::new());
}

#[tokio::test]
async fn apply_is_idempotent_and_undone() {
    let fake = cluster();
    let before = (fake.object(KUBE_PROXY), fake.object(CORE_DNS), fake.object(LOGS));
    let line = "apply --daemonset logs/agent --daemonset kube-system/kube-proxy";
    let (result, output) = fake.run(line).await;
    assert_eq!(result.unwrap(), Outcome::Changes);
    assert!(output.contains("\nDaemonSet logs/agent got the anti-affinity\n"), "{output}");
    assert_eq!(output.matches("kube-proxy got the anti-affinity").count(), 1, "{output}");
    assert_eq!(fake.patches.lock().len(), 2);

    assert_eq!(fake.run(line).await.0.unwrap(), Outcome::Nothing);
    assert_eq!(fake.run("plan").await.0.unwrap(), Outcome::Nothing);
    assert_eq!(fake.patches.lock().len(), 2);

    assert_eq!(fake.run("apply --undo --daemonset logs/agent").await.0.unwrap(), Outcome::Changes);
    let mut after = (fake.object(KUBE_PROXY), fake.object(CORE_DNS), fake.object(LOGS));
    for object in [&mut after.0, &mut after.2] {
        object["metadata"]["resourceVersion"] = json!("1");
    }
    assert_eq!(after, before);
}

#[tokio::test]
async fn other_daemon_sets_are_listed_and_changed_only_when_asked_for() {
    let listed = "DaemonSet logs/agent would land on host-network nodes: pass --include logs/agent or --all-daemonsets\n";
    let fake = cluster();
    fake.objects.lock()[3].1["spec"]["template"]["spec"]["nodeSelector"] =
        json!({ api::labels::NODE_POOL: "c" });
    let before = fake.object(LOGS);
    assert!(fake.run("apply").await.1.ends_with(listed));
    assert_eq!(fake.object(LOGS), before);

    // What is known of the pools counts.
    let pool = |name: &str| json!({ "metadata": { "name": name }, "spec": { "networkMode": "HostNetwork" } });
    for (pools, lands) in [(json!([pool("h")]), false), (json!([pool("h"), pool("c")]), true)] {
        let output = Fake { pools, ..fake.clone() }.run("plan").await.1;
        assert_eq!(output.ends_with(listed), lands, "{output}");
    }

    assert!(
        fake.run("plan --all-daemonsets")
            .await
            .1
            .contains("\nDaemonSet logs/agent will get the anti-affinity\n")
    );
    assert!(
        fake.run("apply --all-daemonsets").await.1.contains("\nDaemonSet logs/agent got the anti-affinity\n")
    );
    let (result, output) = fake.run("plan --all-daemonsets").await;
    assert_eq!((result.unwrap(), output.contains("logs/agent")), (Outcome::Nothing, false), "{output}");

    let added = "DaemonSet logs/agent has what apply added: pass --include logs/agent or --all-daemonsets\n";
    assert!(fake.run("plan --undo").await.1.ends_with(added));
    assert!(
        fake.run("apply --undo --all-daemonsets")
            .await
            .1
            .contains("DaemonSet logs/agent lost what apply added\n")
    );
    let mut after = fake.object(LOGS);
    after["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(after, before);

    fake.run("apply --include logs/agent").await.0.unwrap();
    assert_ne!(fake.object(LOGS)["spec"], before["spec"]);
}

#[tokio::test]
async fn who_may_not_see_all_daemon_sets_is_told() {
    let fake = Fake { hidden: Some(403), ..cluster() };
    let (result, output) = fake.run("apply").await;
    assert_eq!(result.unwrap(), Outcome::Changes);
    assert!(output.ends_with("other DaemonSets: not looked for: no\n"), "{output}");
    let error = fake.run("apply --all-daemonsets").await.0.unwrap_err().to_string();
    assert_eq!(error, "cannot list DaemonSets: no");
    let error = Fake { hidden: Some(500), ..cluster() }.run("plan").await.0.unwrap_err().to_string();
    assert_eq!(error, "cannot list DaemonSets: no");
}

#[tokio::test]
async fn what_others_change_meanwhile_is_kept() {
    let fake = cluster();
    *fake.disturbances.lock() = 2;
    let (result, output) = fake.run("apply").await;
    assert_eq!(result.unwrap(), Outcome::Changes);
    let affinity = fake.object(KUBE_PROXY)["spec"]["template"]["spec"]["affinity"].clone();
    assert_eq!(affinity["podAffinity"], json!({ "n": 0 }));
    assert!(affinity["nodeAffinity"].is_object(), "{affinity}");
    assert!(output.contains("was changed by others meanwhile"), "{output}");

    let fake = cluster();
    *fake.disturbances.lock() = 100;
    let error = fake.run("apply").await.0.unwrap_err().to_string();
    assert!(error.contains("DaemonSet kube-system/kube-proxy was changed by others"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_undone_is_told() {
    let fake = cluster();
    fake.run("apply").await.0.unwrap();
    fake.objects.lock()[0].1["spec"]["template"]["spec"]["affinity"] = json!({ "podAffinity": {} });
    for line in ["plan --undo", "apply --undo"] {
        let (result, output) = fake.run(line).await;
        assert_eq!(result.unwrap(), Outcome::Changes, "{line}");
        assert!(output.contains("kube-system/kube-proxy was edited since"), "{line}: {output}");
    }
    assert_eq!(fake.run("apply --undo").await.0.unwrap(), Outcome::Nothing);
}

#[tokio::test]
async fn a_refused_change_is_not_repeated() {
    let fake = Fake { refusal: Some(422), ..cluster() };
    let error = fake.run("apply").await.0.unwrap_err().to_string();
    assert_eq!(error, "cannot patch DaemonSet kube-system/kube-proxy: no");
}

#[tokio::test]
async fn a_flag_that_names_nothing_is_an_error_before_any_change() {
    let fake = cluster();
    for (line, expected) in [
        (
            "apply --daemonset kube-system/coredns",
            "--include kube-system/coredns: there is no such DaemonSet",
        ),
        ("plan --deployment a/b", "--deployment a/b: there is no such Deployment"),
    ] {
        assert_eq!(fake.run(line).await.0.unwrap_err().to_string(), expected);
    }
    assert_eq!(*fake.patches.lock(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_malformed_object_stops_everything_before_any_change() {
    let fake = cluster().with("kube-flannel/daemonsets/kube-flannel-ds", &json!({}), &json!("none"));
    let error = fake.run("apply").await.0.unwrap_err().to_string();
    assert_eq!(
        error,
        "DaemonSet kube-flannel/kube-flannel-ds: spec.template.spec.affinity is a string where the API has an object"
    );
    assert_eq!(*fake.patches.lock(), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rollout_is_awaited_as_long_as_asked() {
    let fake = cluster();
    fake.objects.lock()[0].1["status"] =
        json!({ "observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1 });
    let begun = Instant::now();
    let (result, output) = fake.run("apply --wait=10s").await;
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(
        result.unwrap_err().to_string(),
        "DaemonSet kube-system/kube-proxy has its affinity, but after 10 s not all its pods are replaced: 1 of 3 pods are new"
    );
    assert_eq!(output.matches("is rolling out: 1 of 3 pods are new").count(), 1, "{output}");
    fake.objects.lock()[0].1["status"]["updatedNumberScheduled"] = json!(3);
    fake.objects.lock()[0].1["status"]["numberAvailable"] = json!(3);
    fake.objects.lock()[1].1["spec"]["replicas"] = json!(0);
    let (result, output) = fake.run("apply --wait").await;
    assert_eq!(result.unwrap(), Outcome::Nothing);
    assert_eq!(output.matches("is rolled out").count(), 2, "{output}");
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Line::command().debug_assert();
    assert!(Line::command().render_help().to_string().contains("An annotation remembers"));
    let wait = |line: &str| match Line::try_parse_from(line.split(' ')).ok()?.args.action {
        Action::Apply(ApplyArgs { wait, .. }) => wait,
        Action::Plan(_) => None,
    };
    assert_eq!(wait("hostnet apply"), None);
    assert_eq!(wait("hostnet apply --wait"), Some(Duration::from_mins(5)));
    assert_eq!(wait("hostnet apply --wait=90s --context c"), Some(Duration::from_secs(90)));
    for wrong in ["hostnet apply --wait=-1s", "hostnet apply --wait=soon", "hostnet plan --wait", "hostnet"] {
        assert!(Line::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
    }
}
