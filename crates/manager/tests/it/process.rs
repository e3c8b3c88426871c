//! A whole manager, as `isthmus-manager run` makes it, for a fake API server.

use clap::Parser as _;
use manager::app::App;
use manager::args::{Args, Command};
use manager::config::Config;
use serde_json::json;
use testkit::api_server::{FakeApiServer, Kind};

/// An API server with the kinds that a manager asks for.
pub(crate) async fn server() -> FakeApiServer {
    tls::install_provider();
    let server = FakeApiServer::start().await.unwrap();
    for crd in api::crds() {
        server.cluster().create("customresourcedefinitions.apiextensions.k8s.io", json!(crd)).unwrap();
    }
    let admission = "admissionregistration.k8s.io";
    for (group, resource, kind) in [
        (admission, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        (admission, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ] {
        server.cluster().define(Kind::built_in(group, "v1", resource, kind, false));
    }
    let (group, kind) = ("certificates.k8s.io", "CertificateSigningRequest");
    let requests = Kind::built_in(group, "v1", "certificatesigningrequests", kind, false);
    server.cluster().define(requests.selectable(&["spec.signerName"]));
    server.cluster().define(Kind::built_in("events.k8s.io", "v1", "events", "Event", true));
    server
}

/// A manager of that server, bound to any free ports.
pub(crate) async fn app(server: &FakeApiServer) -> App {
    replica(server, "isthmus-manager").await
}

/// The same by a name of its own.
pub(crate) async fn replica(server: &FakeApiServer, identity: &str) -> App {
    let addresses = ["--webhook-address", "--health-address", "--metrics-address"];
    let words = addresses.into_iter().flat_map(|flag| [flag, "127.0.0.1:0"]);
    let words = words.chain(["--identity", identity]);
    let args = Args::try_parse_from(["isthmus-manager", "run"].into_iter().chain(words));
    let Command::Run(run) = args.unwrap().command else { panic!("run") };
    let config = Config::try_from(*run).unwrap();
    App::build_for(config, kube::Config::new(server.url().parse().unwrap())).await.unwrap()
}
