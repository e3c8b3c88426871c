//! Requests for certificates within a whole manager that leads, against a fake API server: what is asked for with the group of hubs is decided
//! on however it is written, and what others ask for is left alone.

use std::time::Duration;

use api::names::{GATEWAY_SERVER_NAME, GATEWAY_SIGNER, HUB_GROUP, HUB_SIGNER, NODE_GROUP};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use testkit::api_server::{Cluster, FakeApiServer};
use tls::request::{Subject, generate_key, make, make_serving};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

const AS_CLIENT: [&str; 2] = ["digital signature", "client auth"];
const AS_SERVER: [&str; 2] = ["digital signature", "server auth"];

/// `/O=isthmus:edge-hubs/CN=system:node:a/CN=system:node:b`, as OpenSSL makes it; so are those that follow.
const TWO_NAMES: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBBzCBrgIBADBMMRowGAYDVQQKDBFpc3RobXVzOmVkZ2UtaHViczEWMBQGA1UE
AwwNc3lzdGVtOm5vZGU6YTEWMBQGA1UEAwwNc3lzdGVtOm5vZGU6YjBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABLWxMZkUQrFjhDhGG42/OuYccccxQbD+rMcgbQSC
/il1BM0kunA2S7wLjxGOVyP2Ql6xihsKE9C/mSGxGK+zS0SgADAKBggqhkjOPQQD
AgNIADBFAiEAzs52ZER6Wc/oiBURFW+T4TuWQw7BL1S3FIhQ9jvXdWQCIE5s9yPs
HogOR2zHlkM4rxbS+nANm4BS3zp2C1RNI1mS
-----END CERTIFICATE REQUEST-----
";

/// `/O=system:nodes/O=isthmus:edge-hubs+CN=system:node:a`
const SEVERAL_IN_ONE_PART: &str = include_str!("../../../tls/tests/requests/several-in-one-part.pem");

/// `/O=developers/CN=isthmus:edge-hubs/CN=alice`
const TWO_NAMES_OF_ANOTHER: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIH7MIGjAgEAMEExEzARBgNVBAoMCmRldmVsb3BlcnMxGjAYBgNVBAMMEWlzdGht
dXM6ZWRnZS1odWJzMQ4wDAYDVQQDDAVhbGljZTBZMBMGByqGSM49AgEGCCqGSM49
AwEHA0IABONqXyzU16KWsi4UWnKivlWJ02pC+naYv+sS5qetEgB2bhGJ4La5oElB
6DPFOov+HuvT/h6NExO7yJLg83F9xwCgADAKBggqhkjOPQQDAgNHADBEAiB8zzw3
EgXMDehNn42bOLXXoKrTDUQfQzZfoUaPogU1wwIgUAibA5/3K6F0tfuQcTJpD5Aw
GbyetkuUA0iOdCyr4gA=
-----END CERTIFICATE REQUEST-----
";

/// `/O=isthmus:edge-hubs2+CN=alice`
const SEVERAL_IN_ONE_PART_OF_ANOTHER: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIHlMIGNAgEAMCsxKTAMBgNVBAMMBWFsaWNlMBkGA1UECgwSaXN0aG11czplZGdl
LWh1YnMyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAErF6gbG+0keK+Aq6FetdG
41yhtXzXKuIep0y2FyXxKNZOTWUwEDA4W/dNbYmB6DZtcx96pelfo2XYtYPyQ/tb
gKAAMAoGCCqGSM49BAMCA0cAMEQCIE5RoRjPB4hIJc5MgRl5ovh6SQU7m88UPjDb
jGBkQNBnAiACSB+9zZgGJ2ge5aCX8WqujBzHR3HV0zqNPp/p6Co9mA==
-----END CERTIFICATE REQUEST-----
";

fn subject(common_name: &str, organizations: &[&str]) -> Subject {
    let organizations = organizations.iter().map(|&group| group.to_owned()).collect();
    Subject { common_name: common_name.to_owned(), organizations }
}

fn for_client(common_name: &str, organizations: &[&str]) -> String {
    make(&subject(common_name, organizations), &generate_key().unwrap()).unwrap()
}

fn for_server(common_name: &str, dns_name: &str) -> String {
    let subject = subject(common_name, &[NODE_GROUP]);
    make_serving(&subject, &[dns_name.to_owned()], &generate_key().unwrap()).unwrap()
}

/// The kubelet of `shop-1` asks.
fn ask(cluster: &Cluster, name: &str, signer: &str, text: &str) {
    let usages = if signer == HUB_SIGNER { AS_CLIENT } else { AS_SERVER };
    let request = json!({
        "metadata": { "name": name },
        "spec": {
            "request": ByteString(text.as_bytes().to_vec()),
            "signerName": signer,
            "usages": usages,
            "expirationSeconds": 86_400,
            "username": "system:node:shop-1",
            "groups": [NODE_GROUP, "system:authenticated"],
        },
    });
    cluster.create(REQUESTS, request).unwrap();
}

/// The conditions of a request once it has some: type, reason and message of each.
async fn decided(server: &FakeApiServer, name: &str) -> Vec<[String; 3]> {
    for _ in 0..300 {
        let request = server.cluster().get(REQUESTS, name).unwrap();
        if let Some(conditions) = request["status"]["conditions"].as_array() {
            let words = |condition: &Value| {
                ["type", "reason", "message"].map(|key| condition[key].as_str().unwrap().to_owned())
            };
            return conditions.iter().map(words).collect();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no decision on {name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_no_hub_makes_is_denied_and_says_why() {
    let server = process::server().await;
    let cluster = server.cluster();
    cluster.create("nodes", json!({ "metadata": { "name": "shop-1" } })).unwrap();
    let others = [
        ("other-client", HUB_SIGNER, for_client("system:node:Cloud-1", &[NODE_GROUP])),
        ("other-names", HUB_SIGNER, TWO_NAMES_OF_ANOTHER.to_owned()),
        ("other-part", HUB_SIGNER, SEVERAL_IN_ONE_PART_OF_ANOTHER.to_owned()),
        ("other-kubelet", GATEWAY_SIGNER, for_server("system:node:Cloud-1", "cloud-1")),
    ];
    for (name, signer, text) in &others {
        ask(cluster, name, signer, text);
    }
    let hub = for_client("system:node:shop-1", &[NODE_GROUP, HUB_GROUP]);
    let (of_hub, of_gateway) = ("SubjectNotOfAHub", "SubjectNotOfAGateway");
    let ours = [
        ("capital", HUB_SIGNER, for_client("system:node:Cloud-1", &[NODE_GROUP, HUB_GROUP]), of_hub),
        ("foo", HUB_SIGNER, for_client("foo", &[HUB_GROUP]), of_hub),
        ("two-names", HUB_SIGNER, TWO_NAMES.to_owned(), of_hub),
        ("one-part", HUB_SIGNER, SEVERAL_IN_ONE_PART.to_owned(), of_hub),
        ("lines", HUB_SIGNER, hub.replace('\n', "\r\n"), "FormNotAllowed"),
        ("gateway", GATEWAY_SIGNER, for_server("system:node:Cloud-1", GATEWAY_SERVER_NAME), of_gateway),
    ];
    for (name, signer, text, _) in &ours {
        ask(cluster, name, signer, text);
    }
    ask(cluster, "hub", HUB_SIGNER, &hub);

    let app = process::app(&server).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { app.run(CancellationToken::new()).await.unwrap() });
    for (name, _, _, expected) in &ours {
        let conditions = decided(&server, name).await;
        let [[type_, reason, message]] = conditions.as_slice() else { panic!("{name}: {conditions:?}") };
        assert_eq!((type_.as_str(), reason.as_str()), ("Denied", *expected), "{name}");
        assert!(message.contains(" of a hub") || message.contains(" of a gateway"), "{name}: {message}");
    }
    assert_eq!(decided(&server, "hub").await[0][0], "Approved");
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (name, _, _) in &others {
        assert_eq!(cluster.get(REQUESTS, name).unwrap()["status"], Value::Null, "{name}");
    }
}
