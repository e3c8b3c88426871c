//! Somebody at a keyboard: an exec that stays open, and the time from a key to its echo.
//!
//! A whole `kubectl exec` takes most of its time to begin. What the path costs is seen in a session that has begun, beside one
//! whose path is plain TCP at the same moments: a busy machine delays both.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::ground::{in_namespace, pod};

/// How long a session may take to begin, or an echo to come: longer is broken, not slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session on a node's pod.
#[derive(Debug)]
pub struct Keyboard {
    kubectl: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pressed: u64,
}

impl Keyboard {
    /// A session whose echo is the input.
    pub async fn open(node: &str) -> Result<Self> {
        Self::with(node, &["cat"]).await
    }

    /// A session with a command that gives back each line.
    pub async fn with(node: &str, command: &[&str]) -> Result<Self> {
        let pod = pod(node);
        let mut kubectl = Command::new("kubectl");
        kubectl.args(in_namespace(&["exec", "-i", &pod, "--"])).args(command);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut kubectl = kubectl.spawn()?;
        let input = kubectl.stdin.take().context("its input")?;
        let lines = BufReader::new(kubectl.stdout.take().context("its output")?).lines();
        let mut keyboard = Self { kubectl, input, lines, pressed: 0 };
        keyboard.press().await.with_context(|| format!("the first echo from {node}"))?;
        Ok(keyboard)
    }

    /// From a key to its echo.
    pub async fn press(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.send().await?;
        self.echoed().await?;
        Ok(began.elapsed())
    }

    /// The line that is sent next.
    pub fn next(&self) -> String {
        format!("key {}", self.pressed + 1)
    }

    /// Sends a line.
    pub async fn send(&mut self) -> Result<()> {
        let key = self.next() + "\n";
        self.pressed += 1;
        Ok(self.input.write_all(key.as_bytes()).await?)
    }

    /// Waits until the session has ended, which is an error to kubectl: one that is cut must not hang, nor pass for one that is done.
    pub async fn breaks(mut self, within: Duration) -> Result<()> {
        let ended = timeout(within, self.kubectl.wait()).await;
        let status = ended.with_context(|| format!("the session hangs for longer than {within:?}"))??;
        ensure!(!status.success(), "a session that was cut ended with {status}");
        Ok(())
    }

    /// Waits until the last line has come back.
    pub async fn echoed(&mut self) -> Result<()> {
        let echo = timeout(PATIENCE, self.lines.next_line()).await.context("no echo")??;
        let key = format!("key {}", self.pressed);
        ensure!(echo.as_deref() == Some(&*key), "{echo:?} is the echo of {key:?}");
        Ok(())
    }
}

/// How long one and the same thing took, again and again.
#[derive(Debug, Clone, Default)]
pub struct Waits(Vec<Duration>);

impl Waits {
    /// One more.
    pub fn add(&mut self, wait: Duration) {
        self.0.push(wait);
    }

    /// So many of a hundred were not longer.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().saturating_sub(1);
        sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |percent| self.percentile(percent).as_secs_f64() * 1000.0;
        write!(f, "p50 {:.1} ms, p99 {:.1} ms of {}", ms(50), ms(99), self.0.len())
    }
}

/// Presses keys of both, in turn, so that whatever delays one moment delays both.
pub async fn in_turn(ours: &mut Keyboard, plain: &mut Keyboard, times: usize) -> Result<(Waits, Waits)> {
    let (mut through, mut beside) = (Waits::default(), Waits::default());
    for _ in 0..times {
        through.add(ours.press().await?);
        beside.add(plain.press().await?);
    }
    Ok((through, beside))
}

/// Whether the tunnel adds no more than the round trip of the link and 50 ms to what plain TCP takes at the same moments. Of the
/// slow ones each process on the way has its share, and through the tunnel there are three as many; the slowest few of a busy machine
/// say nothing of either.
pub fn hardly_slower(ours: &Waits, plain: &Waits, round_trip: Duration) -> Result<()> {
    within(ours, plain, round_trip, 50, 1)?;
    within(ours, plain, round_trip, 90, 3)
}

/// The same of the slowest hundredth, which holds of the best of some rounds only.
pub fn slowest_hardly_slower(ours: &Waits, plain: &Waits, round_trip: Duration) -> Result<()> {
    within(ours, plain, round_trip, 99, 3)
}

fn within(ours: &Waits, plain: &Waits, round_trip: Duration, percent: usize, times: u32) -> Result<()> {
    const MORE: Duration = Duration::from_millis(50);
    let (wait, bound) = (ours.percentile(percent), plain.percentile(percent) * times + round_trip + MORE);
    ensure!(wait <= bound, "p{percent} {wait:?} of at most {bound:?}: {ours}; plain {plain}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(ms: &[u64]) -> Waits {
        Waits(ms.iter().copied().map(Duration::from_millis).collect())
    }

    #[test]
    fn what_plain_tcp_waits_for_as_well_is_not_the_tunnels() {
        let plain = waits(&[5; 100]);
        assert_eq!(waits(&[3, 1, 2]).percentile(50), Duration::from_millis(2));
        assert!(hardly_slower(&waits(&[50; 100]), &plain, Duration::ZERO).is_ok());
        assert!(hardly_slower(&waits(&[60; 100]), &plain, Duration::ZERO).is_err());
        assert!(hardly_slower(&waits(&[60; 100]), &plain, Duration::from_millis(40)).is_ok());
        assert!(hardly_slower(&waits(&[500; 100]), &waits(&[480; 100]), Duration::ZERO).is_ok());
        let mut some_slow = [5; 100];
        some_slow[..12].fill(2000);
        assert!(hardly_slower(&waits(&some_slow), &plain, Duration::ZERO).is_err());
        assert!(hardly_slower(&waits(&some_slow), &waits(&some_slow), Duration::ZERO).is_ok());
        let mut slowest = [5; 100];
        slowest[0] = 2000;
        assert!(hardly_slower(&waits(&slowest), &plain, Duration::ZERO).is_ok());
        assert!(slowest_hardly_slower(&waits(&slowest), &plain, Duration::ZERO).is_err());
        assert!(slowest_hardly_slower(&waits(&slowest), &waits(&slowest), Duration::ZERO).is_ok());
    }
}
