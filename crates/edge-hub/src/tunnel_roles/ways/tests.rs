use std::fs;

use rustls::{ClientConfig, RootCertStore};
use testkit::api_server::{
    access::User,
    pki::{Authority, Identity},
};
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;

use super::{super::shown_files, *};

/// Root's program asks for a stream from the loopback proxy; gives the status.
async fn asked(users: &[LocalUser], process: CallerProcess) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (client, peer) = listener.accept().await.unwrap();
    program.write_all(b"CONNECT n:1 HTTP/1.1\r\nHost: n:1\r\n\r\n").await.unwrap();
    let (state, ending) = (State::new("n", Handle::current()), Ending::at(CancellationToken::new()));
    let (users, owner) = (Arc::new(users.iter().copied().collect()), (Some(0), process));
    let mut tasks = JoinSet::new();
    tasks.spawn(local(state, users, owner, ending, client, peer.to_string(), Arrival::uncounted()));
    let mut answer = [0; 12];
    program.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

#[tokio::test]
async fn who_forwards_a_port_of_a_pod_is_no_program_of_the_node() {
    let root = [LocalUser::Uid(0)];
    let all = [LocalUser::Uid(0), LocalUser::Any];
    // Nothing is known of the cluster here, so there is no way to any node.
    for (users, origin, expected) in [
        (&root[..], Some(Origin::Node), "503"),
        (&root, Some(Origin::Pod), "503"),
        (&root, Some(Origin::Runtime), "403"),
        (&root, None, "403"),
        (&[LocalUser::Uid(1)], Some(Origin::Node), "403"),
        (&all, Some(Origin::Runtime), "503"),
        (&all, None, "503"),
    ] {
        let process = origin.map_or_else(CallerProcess::unknown, CallerProcess::of);
        assert_eq!(asked(users, process).await, expected, "{users:?} {origin:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_come_in_is_what_the_file_says_now_for_each_connection() {
    tls::install_provider();
    let folder = tempfile::tempdir().unwrap();
    let [gateways, before, after] =
        ["gateways", "before", "after"].map(|name| Authority::generate(name).unwrap());
    let own = gateways.server(&["gateway"]).unwrap();
    let shown = shown_files::shown(folder.path(), gateways.pem(), &own);
    let authority = folder.path().join("clients.crt");
    let known = |text: &str| fs::write(&authority, text).unwrap();
    known(before.pem());
    let address = "127.0.0.1:0".parse().unwrap();
    let clients = Mutual { address, authority: authority.clone(), names: BTreeSet::new() };
    let (state, config) = (State::new("n", Handle::current()), Arc::new(ArcSwapOption::empty()));
    let (_keep, shown) = watch::channel(Some(shown));
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(state.clone(), clients, shown, config.clone()));
    sleep(Duration::from_secs(1)).await;
    let first: Arc<ServerConfig> = config.load_full().unwrap();
    assert!(first.send_tls13_tickets == 0 && !first.session_storage.can_cache());
    known("half a file");
    sleep(AGAIN).await;
    assert_eq!(state.problems().len(), 1);
    assert!(Arc::ptr_eq(&first, &config.load_full().unwrap()), "the last one that could be read stays");
    known(after.pem());
    sleep(AGAIN).await;
    assert!(state.problems().is_empty() && !Arc::ptr_eq(&first, &config.load_full().unwrap()));
}

/// A client that trusts one authority and shows this.
fn config_of(authority: &Authority, Identity { certificate, key, .. }: Identity) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    config.with_client_auth_cert(vec![certificate], key).unwrap()
}

/// By a certificate of the clients' authority with another name anybody of it could fill the log.
#[tokio::test]
async fn who_is_not_named_is_told_of_once_a_minute() {
    tls::install_provider();
    let folder = tempfile::tempdir().unwrap();
    let [gateways, authority] = ["gateways", "clients"].map(|name| Authority::generate(name).unwrap());
    let shown = shown_files::shown(folder.path(), gateways.pem(), &gateways.server(&["gateway"]).unwrap());
    let file = folder.path().join("clients.crt");
    fs::write(&file, authority.pem()).unwrap();
    let names: BTreeSet<String> = ["prometheus".to_owned()].into();
    let clients = Mutual { address: "127.0.0.1:0".parse().unwrap(), authority: file, names: names.clone() };
    let config = Some(Arc::new(server_config(&clients, &shown).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ask = async |state: &Arc<State>, name: &str| {
        let leaf = authority.client(&User::new(name, &[])).unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, peer) = listener.accept().await.unwrap();
        let ending = Ending::at(CancellationToken::new());
        let mut tasks = JoinSet::new();
        let (names, arrival) = (Arc::new(names.clone()), Arrival::uncounted());
        tasks.spawn(mutual(state.clone(), names, config.clone(), ending, client, peer.to_string(), arrival));
        let connector = TlsConnector::from(Arc::new(config_of(&gateways, leaf)));
        let mut stream = connector.connect("gateway".try_into().unwrap(), program).await.unwrap();
        stream.write_all(b"CONNECT n:1 HTTP/1.1\r\nHost: n:1\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    let may_still =
        |state: &State| state.connector.unknown().may_tell("clients", "name", Arrival::uncounted().source());
    // Nothing is known of the cluster here, so there is no way to any node.
    let state = State::new("n", Handle::current());
    assert_eq!(ask(&state, "prometheus").await, "503");
    assert!(may_still(&state));
    let state = State::new("n", Handle::current());
    assert_eq!(ask(&state, "other").await, "403");
    assert!(!may_still(&state), "the line of this minute");
}
