//! The systemd unit: starts the hub before the kubelet and always again, with nothing that it does not need.

use std::path::Path;

use crate::run::RunArgs;

/// The folder that systemd makes by itself.
const STATE: &str = "/var/lib/edge-hub";

/// What `ProtectHome`, `PrivateTmp` and `PrivateDevices` keep the hub from (systemd.exec(5)).
pub(super) const HIDDEN: [&str; 6] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp", "/dev"];

/// The option's value by which the key comes from systemd (systemd.exec(5)): `%d` is the folder of the unit's credentials, which is in memory alone.
const CREDENTIAL: &str = "%d/storage.key";

/// What makes systemd open it, where `systemd-creds encrypt` has put it.
const LOADED: &str = "LoadCredentialEncrypted=storage.key:/etc/edge-hub/storage.key.cred";

/// Whether a path is the one of that key, which no other is like.
pub(super) fn is_credential(path: &Path) -> bool {
    path == Path::new(CREDENTIAL)
}

/// The unit's text.
pub(super) fn unit(binary: &Path, run: &RunArgs, options: &[String]) -> String {
    let words: Vec<String> = options.iter().map(|option| word(option)).collect();
    let binary = quoted(&binary.display().to_string());
    let root = &run.cache.root_dir;
    let state = if root == Path::new(STATE) {
        "StateDirectory=edge-hub\nStateDirectoryMode=0700".to_owned()
    } else {
        format!("ReadWritePaths={}", quoted(&root.display().to_string()))
    };
    let credential = if run.cache.storage_key_file.as_deref().is_some_and(is_credential) {
        LOADED.to_owned()
    } else {
        format!(
            "# With the key of what is encrypted on the disk sealed to this machine, by option --storage-key-file {CREDENTIAL}, the unit is printed with:\n#{LOADED}"
        )
    };
    format!(
        "[Unit]
Description=Isthmus edge-hub: this node's one way to the API server
# Not after network-online.target: the hub answers without a network, and the kubelet waits for it.
After=network.target
Before=kubelet.service
StartLimitIntervalSec=0

[Service]
ExecStart={binary} run {words}
# Renews the certificate of --identity=own, and reads a given client certificate anew; files of the HTTPS proxy are followed.
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
TimeoutStopSec={stop}
UMask=0077
LimitNOFILE=65536
OOMScoreAdjust=-900
# Little work that the kubelet and all else on the node wait for.
CPUWeight=500
{state}
{credential}

# It reads files of root, and needs none of root's capabilities.
CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateDevices=yes
PrivateTmp=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
# AF_NETLINK: the kernel says whether a caller is a pod's.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
",
        words = words.join(" "),
        stop = super::stop_seconds(run),
    )
}

/// An option as systemd reads it; the folder of credentials is for it to find.
fn word(option: &str) -> String {
    let value = option.strip_prefix("--storage-key-file=").unwrap_or(option);
    if value == CREDENTIAL { option.to_owned() } else { quoted(option) }
}

/// A word of a command line as systemd reads it (systemd.service(5), systemd.syntax(7)): `%` and `$` stand for themselves.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let plain = !word.is_empty() && !escaped.contains([' ', '\'', '"', '\\', ';', '#']);
    if plain { escaped } else { format!("\"{escaped}\"") }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use crate::manifest::{ManifestError, tests::printed};

    fn verify(unit: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge-hub.service");
        // It looks for the binary, too; any will do.
        fs::write(&path, unit.replace("/usr/local/bin/edge-hub", "/bin/true")).unwrap();
        let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().ok()?;
        let complaints = String::from_utf8_lossy(&verified.stderr);
        Some(complaints.lines().filter(|line| line.contains("edge-hub")).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn systemd_takes_the_unit() {
        let options = ["--node-name", "shop-1", "--server-addr", "https://10.0.0.1:6443"];
        let unit = printed("systemd", &options).unwrap();
        // A line without its section or value is wrong everywhere; systemd knows the rest.
        for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
            assert!(
                line.split_once('=').is_some_and(|(key, _)| key.chars().all(char::is_alphanumeric)),
                "{line}"
            );
        }
        assert!(unit.contains(
            "ExecStart=/usr/local/bin/edge-hub run --node-name shop-1 --server-addr https://10.0.0.1:6443\n"
        ));
        assert!(unit.contains("StateDirectory=edge-hub\n"));
        assert!(unit.contains(" AF_NETLINK\n"), "who calls is asked of the kernel");
        if let Some(complaints) = verify(&unit) {
            assert_eq!(complaints, "");
            let broken = verify(&unit.replace("RestrictNamespaces=yes", "RestrictNamespaces=what")).unwrap();
            assert!(broken.contains("namespace type"), "systemd-analyze finds faults: {broken}");
        }
    }

    #[test]
    fn the_key_of_the_store_comes_from_systemd_to_who_asks_for_it() {
        let options = ["--node-name", "a", "--server-addr", "https://a:1"];
        let loaded = "\nLoadCredentialEncrypted=storage.key:/etc/edge-hub/storage.key.cred\n";
        let unit = printed("systemd", &options).unwrap();
        assert!(!unit.contains(loaded) && unit.contains("--storage-key-file %d/storage.key,"), "{unit}");
        for given in [&["--storage-key-file", "%d/storage.key"][..], &["--storage-key-file=%d/storage.key"]] {
            let unit = printed("systemd", &[&options[..], given].concat()).unwrap();
            let starts = format!("https://a:1 {}\n", given.join(" "));
            assert!(unit.contains(loaded) && unit.contains(&starts), "{unit}");
            if let Some(complaints) = verify(&unit) {
                assert_eq!(complaints, "");
            }
        }
        let elsewhere = [&options[..], &["--storage-key-file", "/media/100%d/storage.key"]].concat();
        let unit = printed("systemd", &elsewhere).unwrap();
        assert!(!unit.contains(loaded) && unit.contains("/media/100%%d/storage.key\n"), "{unit}");
        let pod = printed("static-pod", &[&options[..], &["--storage-key-file", "%d/storage.key"]].concat());
        assert!(matches!(pod, Err(ManifestError::Relative(_))), "a pod gets none from systemd");
    }

    #[test]
    fn words_stay_words() {
        let options =
            ["--node-name", "a", "--server-addr", "https://a:1", "--root-dir", "/var/my 100% \"$x\""];
        let unit = printed("systemd", &options).unwrap();
        assert!(unit.contains(r#"--root-dir "/var/my 100%% \"$$x\"""#), "{unit}");
        assert!(unit.contains(r"ReadWritePaths=") && !unit.contains("StateDirectory="));
    }
}
