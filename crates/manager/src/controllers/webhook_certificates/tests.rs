//! The controller against an API server that lives in memory: first start, drift, rotation, failures, two writers.

mod fake;

use serde_json::json;
use tls::{
    certificate::{Certificate, bundle},
    resolver::ServingCertificate,
    rotation::Strangers,
};

use self::fake::{Fake, Fault, MUTATING, VALIDATING};
use super::*;

const DAY: Duration = Duration::from_hours(24);

fn config() -> Arc<Config> {
    Arc::new(Config {
        namespace: "isthmus-system".to_owned(),
        ca_secret: "ca".to_owned(),
        serving_secret: "serving".to_owned(),
        dns_names: vec!["webhook.isthmus-system.svc".to_owned()],
        mutating_configurations: vec![MUTATING.to_owned()],
        validating_configurations: vec![VALIDATING.to_owned(), "absent".to_owned()],
        api_services: Vec::new(),
        leaf_validity: 30 * DAY,
        // Readers of the fake are never late; the simulation in `tls` is about those who are.
        settle: Duration::ZERO,
    })
}

fn controller(fake: &Fake) -> Controller<impl Fn() -> bool + use<>> {
    let client = fake.client();
    let reporter = Reporter { controller: "test".to_owned(), instance: None };
    Controller {
        events: ToldEvents::new(client.clone(), reporter),
        client,
        config: config(),
        metrics: CertificateMetrics::default(),
        leading: || true,
        began: Instant::now(),
        seen: Sightings::default(),
    }
}

/// Turns until there is nothing to do.
async fn settle(controller: &mut Controller<impl Fn() -> bool>) {
    for _ in 0..50 {
        match controller.turn().await {
            Ok(Turn::Rest(rest)) if rest > Duration::from_secs(1) => return,
            // Settling is for longer than no time at all.
            Ok(Turn::Rest(_) | Turn::Wrote) => tokio::time::sleep(Duration::from_millis(2)).await,
            Ok(Turn::NotLeading) => panic!("it leads"),
            Err(error) => panic!("{}", chain(&error)),
        }
    }
    panic!("it never comes to rest");
}

/// What an API server and a replica that read now would make of each other.
fn handshake(fake: &Fake) -> Result<Certificate, String> {
    let (certificate, key) = (fake.secret_text("serving", "tls.crt"), fake.secret_text("serving", "tls.key"));
    let leaf = ServingCertificate::default().install(&certificate, &key).map_err(|error| chain(&error))?;
    for place in fake.bundles() {
        let trusted = bundle(&place).map_err(|error| chain(&error))?;
        if !trusted.iter().any(|authority| leaf.is_issued_by(authority)) {
            return Err(format!("not trusted by {} authorities", trusted.len()));
        }
    }
    Ok(leaf)
}

#[tokio::test]
async fn from_nothing_to_a_certificate() {
    let fake = Fake::new();
    let mut controller = controller(&fake);
    settle(&mut controller).await;
    let leaf = handshake(&fake).unwrap();
    assert_eq!(leaf.dns_names(), ["webhook.isthmus-system.svc"]);
    assert_eq!(fake.secret_text("serving", "ca.crt"), fake.secret_text("ca", "ca.crt"));
    let key = fake.secret_text("ca", "ca.key");
    let body = key.lines().nth(1).unwrap();
    assert!(!fake.secret("serving").to_string().contains(body), "the authority's key left its Secret");
    assert_eq!(fake.secret_keys("ca"), ["ca.crt", "ca.key"]);
    assert_eq!(fake.secret_keys("serving"), ["ca.crt", "tls.crt", "tls.key"]);
}

#[tokio::test]
async fn needs_no_more_than_it_says() {
    let fake = Fake::new();
    settle(&mut controller(&fake)).await;
    let namespace = "/api/v1/namespaces/isthmus-system/secrets";
    let admission = "/apis/admissionregistration.k8s.io/v1";
    for (method, path) in fake.requests() {
        let allowed = match method.as_str() {
            "GET" => {
                path == format!("{namespace}/ca")
                    || path == format!("{namespace}/serving")
                    || path.starts_with(&format!("{admission}/mutatingwebhookconfigurations/"))
                    || path.starts_with(&format!("{admission}/validatingwebhookconfigurations/"))
            }
            "PATCH" => {
                path == format!("{namespace}/ca")
                    || path == format!("{namespace}/serving")
                    || path == format!("{admission}/mutatingwebhookconfigurations/{MUTATING}")
                    || path == format!("{admission}/validatingwebhookconfigurations/{VALIDATING}")
            }
            "POST" => path == "/apis/events.k8s.io/v1/namespaces/isthmus-system/events",
            _ => false,
        };
        assert!(allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn repairs_what_others_change_and_nothing_else() {
    let fake = Fake::new();
    let mut controller = controller(&fake);
    settle(&mut controller).await;
    let leaf = handshake(&fake).unwrap();
    let before = fake.configuration(MUTATING);
    fake.change(MUTATING, |object| {
        object["webhooks"][1]["clientConfig"].as_object_mut().unwrap().remove("caBundle");
        object["webhooks"][1]["fieldOfTheFuture"] = json!({"kept": true});
    });
    fake.change(VALIDATING, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = json!("Cg=="));
    assert!(handshake(&fake).is_err());
    settle(&mut controller).await;
    assert_eq!(handshake(&fake).unwrap(), leaf, "the certificate was good");
    let mut after = fake.configuration(MUTATING);
    assert_eq!(after["webhooks"][1]["fieldOfTheFuture"], json!({"kept": true}));
    after["webhooks"][1].as_object_mut().unwrap().remove("fieldOfTheFuture");
    assert_eq!(after["webhooks"], before["webhooks"]);
    let writes = fake.writes();
    settle(&mut controller).await;
    assert_eq!(fake.writes(), writes, "it writes though nothing is to be done");
}

#[tokio::test]
async fn rotates_once_for_each_request() {
    let fake = Fake::new();
    let mut controller = controller(&fake);
    settle(&mut controller).await;
    let (old, first) = (fake.secret_text("ca", "ca.crt"), handshake(&fake).unwrap());
    fake.change("ca", |object| object["metadata"]["annotations"] = json!({ROTATE: "please"}));
    settle(&mut controller).await;
    let (new, second) = (fake.secret_text("ca", "ca.crt"), handshake(&fake).unwrap());
    assert_ne!(old, new);
    assert_ne!(first, second);
    assert_eq!(fake.secret("ca")["metadata"]["annotations"][ROTATED], "please");
    assert_eq!(fake.secret_keys("ca"), ["ca.crt", "ca.key"], "something is left of the rotation");
    assert!(fake.bundles().iter().all(|place| *place == new), "the old authority is still trusted");
    settle(&mut self::controller(&fake)).await;
    assert_eq!(handshake(&fake).unwrap(), second, "another leader rotated again");
}

/// Nodes and replicas trust what the serving Secret says, and read it late: the old and the new authority are there before the certificate
/// changes, and until nobody serves the old one; then only the new one is.
#[tokio::test]
async fn who_reads_the_serving_secret_late_trusts_what_is_served() {
    let fake = Fake::new();
    let mut controller = controller(&fake);
    settle(&mut controller).await;
    fake.change("ca", |object| object["metadata"]["annotations"] = json!({ROTATE: "please"}));
    let trust = || bundle(&fake.secret_text("serving", "ca.crt")).unwrap();
    let (mut trusted, mut leaf, mut changes) = (trust(), handshake(&fake).unwrap(), 0);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let is_done =
            matches!(controller.turn().await.unwrap(), Turn::Rest(rest) if rest > Duration::from_secs(1));
        let (now_trusted, now_served) = (trust(), handshake(&fake).unwrap());
        for (leaf, authorities, who) in
            [(&now_served, &trusted, "a node"), (&leaf, &now_trusted, "a replica")]
        {
            assert!(
                authorities.iter().any(|one| leaf.is_issued_by(one)),
                "{who} is late, after {changes} changes"
            );
        }
        changes += usize::from(leaf != now_served);
        (trusted, leaf) = (now_trusted, now_served);
        if is_done {
            break;
        }
    }
    assert_eq!(changes, 1);
    assert_eq!(
        fake.secret_text("serving", "ca.crt"),
        fake.secret_text("ca", "ca.crt"),
        "the old one is forgotten"
    );
    fake.change("serving", |object| object["data"]["ca.crt"] = json!(""));
    settle(&mut controller).await;
    assert_eq!(
        fake.secret_text("serving", "ca.crt"),
        fake.secret_text("ca", "ca.crt"),
        "and what is lost comes back"
    );
}

#[tokio::test]
async fn every_step_of_a_rotation_may_fail_and_no_handshake_does() {
    for fault in [Fault::Refused, Fault::AnswerLost, Fault::Raced] {
        let fake = Fake::new();
        settle(&mut controller(&fake)).await;
        let old = fake.secret_text("ca", "ca.crt");
        fake.change("ca", |object| object["metadata"]["annotations"] = json!({ROTATE: "please"}));
        let mut done = false;
        for turn in 0..200 {
            // Every second write fails, and with it its process: the next turn is another leader's.
            fake.fail_next_write((turn % 2 == 0).then_some(fault));
            let mut controller = controller(&fake);
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let result = controller.turn().await;
                handshake(&fake).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
                match result {
                    Err(error) => {
                        assert_eq!(error.is_race(), fault == Fault::Raced, "{}", chain(&error));
                        break;
                    }
                    Ok(Turn::Rest(rest)) if rest > Duration::from_secs(1) => {
                        done = fake.secret_text("ca", "ca.crt") != old
                            && fake.bundles().iter().all(|place| *place != old);
                        break;
                    }
                    Ok(_) => {}
                }
            }
            if done && fake.secret_keys("ca") == ["ca.crt", "ca.key"] {
                break;
            }
        }
        assert!(done, "{fault:?}: the rotation never ends");
    }
}

#[tokio::test]
async fn garbage_is_replaced() {
    let fake = Fake::new();
    let mut controller = controller(&fake);
    settle(&mut controller).await;
    for (secret, key) in [
        ("serving", "tls.key"),
        ("serving", "tls.crt"),
        ("ca", "ca.key"),
        ("ca", "ca.crt"),
        ("ca", "retired.crt"),
    ] {
        fake.change(secret, |object| object["data"][key] = json!("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCng="));
        settle(&mut controller).await;
        handshake(&fake).unwrap_or_else(|error| panic!("{secret} {key}: {error}"));
    }
}

#[tokio::test]
async fn a_write_on_top_of_another_is_a_race() {
    let fake = Fake::new();
    let mut controller = controller(&fake);
    settle(&mut controller).await;
    let observed = observe::observe(&controller.client, &controller.config).await.unwrap();
    let state = plan::interpret(&observed, &controller.config.dns_names);
    fake.change("ca", |_| ());
    fake.change("serving", |_| ());
    fake.change(MUTATING, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = json!(""));
    for action in [Action::IssueLeaf, Action::CreateCurrent, Action::Retire] {
        let applied = apply::apply(
            &controller.client,
            &controller.config,
            &observed,
            &state,
            &action,
            Timestamp::now(),
        );
        assert!(applied.await.unwrap_err().is_race(), "{action:?}");
    }
    // Only what differs is patched, so the earlier view must differ.
    let mut earlier = observed;
    earlier.configurations[0].webhooks[0].ca_bundle.clear();
    let publish = Action::PublishBundle { strangers: Strangers::Drop };
    let applied =
        apply::apply(&controller.client, &controller.config, &earlier, &state, &publish, Timestamp::now());
    assert!(applied.await.unwrap_err().is_race());
}

#[tokio::test]
async fn writes_nothing_without_leadership() {
    let fake = Fake::new();
    let Controller { client, config, metrics, events, began, seen, leading: _ } = controller(&fake);
    let mut follower = Controller { client, config, metrics, events, began, seen, leading: || false };
    assert!(matches!(follower.turn().await, Ok(Turn::NotLeading)));
    assert_eq!(fake.writes(), 0);
}

#[tokio::test]
async fn runs_until_it_is_told_to_stop_and_shows_that_it_lives() {
    let fake = Fake::new();
    let shutdown = CancellationToken::new();
    let beats = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = beats.clone();
    let heartbeat = move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let mut tasks = tokio::task::JoinSet::new();
    let metrics = CertificateMetrics::default();
    tasks.spawn(run(fake.client(), config(), metrics, || true, heartbeat, shutdown.clone()));
    let served = async {
        while handshake(&fake).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), served).await.expect("no certificate");
    assert!(beats.load(std::sync::atomic::Ordering::Relaxed) >= 3, "a beat for each turn");
    shutdown.cancel();
    timeout(Duration::from_secs(30), tasks.join_all()).await.expect("it does not stop");
}

#[tokio::test]
async fn a_replica_serves_what_is_stored_and_keeps_it_when_that_is_spoilt() {
    let fake = Fake::new();
    settle(&mut controller(&fake)).await;
    let readiness = daemon::ready::Readiness::new();
    let serving = ServingCertificate::new();
    let watch = ServingSecretWatch::new(
        serving.clone(),
        readiness.register("certificate"),
        CertificateMetrics::default(),
    );
    let shutdown = CancellationToken::new();
    assert!(!readiness.is_ready());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(watch.run(fake.client(), config(), shutdown.clone()));
    let installed = async {
        while !readiness.is_ready() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), installed).await.expect("never ready");
    let leaf = handshake(&fake).unwrap();
    assert_eq!(serving.certificate(), Some(leaf.clone()));
    fake.change("serving", |object| object["data"]["tls.key"] = json!("eA=="));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(serving.certificate(), Some(leaf));
    assert!(readiness.is_ready());
    shutdown.cancel();
    tasks.join_all().await;
}

#[test]
fn a_configuration_is_checked() {
    let with = |change: fn(&mut Config)| {
        let mut config = Config::clone(&config());
        change(&mut config);
        config.check()
    };
    assert!(with(|_| ()).is_ok());
    assert!(matches!(with(|config| config.dns_names.clear()), Err(ConfigError::NoName)));
    assert!(matches!(with(|config| config.leaf_validity = 91 * DAY), Err(ConfigError::LeafValidity(_))));
    assert!(matches!(with(|config| config.leaf_validity = DAY / 48), Err(ConfigError::LeafValidity(_))));
}
