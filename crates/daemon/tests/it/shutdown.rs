//! Signals to a child process: this very binary, told by the environment to be the child.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const ROLE: &str = "SHUTDOWN_TEST_CHILD";
const SOON: Duration = Duration::from_secs(30);

/// What the child does: says when it is up and when it is asked to end, and ends in order only if told to.
#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let shutdown = daemon::shutdown::signals().unwrap();
    println!("\nup");
    shutdown.cancelled().await;
    println!("\nasked");
    if role == "stubborn" {
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    std::process::exit(0);
}

async fn start(role: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shutdown::child", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    expect(&mut lines, "up").await;
    (child, lines)
}

async fn expect(lines: &mut Lines<BufReader<ChildStdout>>, expected: &str) {
    let found = async { while lines.next_line().await.unwrap().expect("it ended") != expected {} };
    timeout(SOON, found).await.unwrap_or_else(|_| panic!("the child never said {expected:?}"));
}

async fn kill(child: &Child, signal: &str) {
    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
}

async fn code(mut child: Child) -> Option<i32> {
    timeout(SOON, child.wait()).await.expect("it does not end").unwrap().code()
}

#[tokio::test]
async fn the_first_signal_asks() {
    for signal in ["-TERM", "-INT"] {
        let (child, mut lines) = start("willing").await;
        kill(&child, signal).await;
        expect(&mut lines, "asked").await;
        assert_eq!(code(child).await, Some(0), "{signal}");
    }
}

#[tokio::test]
async fn the_second_signal_does_not_ask() {
    let (child, mut lines) = start("stubborn").await;
    kill(&child, "-TERM").await;
    expect(&mut lines, "asked").await;
    kill(&child, "-INT").await;
    assert_eq!(code(child).await, Some(130));
}
