//! An etcd of the test's own, spoken to with `etcdctl` as users do.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::sandbox::{Net, Process, Sandbox, tail};
use super::wait::within;

/// One etcd member on loopback.
#[derive(Debug)]
pub struct Etcd {
    name: String,
    data: PathBuf,
    log: PathBuf,
    client: u16,
    peer: u16,
    user: Option<String>,
    process: Option<Process>,
}

impl Etcd {
    /// Starts one in `sandbox`. `name` tells it from others there.
    pub fn start(sandbox: &Sandbox, name: &str) -> Self {
        let [client, peer] = free_ports(sandbox, name);
        let mut etcd = Self {
            name: name.to_owned(),
            data: sandbox.dir().join(format!("{name}.data")),
            log: sandbox.dir().join(format!("{name}.log")),
            client,
            peer,
            user: None,
            process: None,
        };
        etcd.start_again(sandbox);
        etcd
    }

    /// The client address, for `podherd --etcd`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// Starts the stopped one again, with the same data and ports.
    pub fn start_again(&mut self, sandbox: &Sandbox) {
        assert!(self.process.is_none(), "etcd runs already");
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let mut command = sandbox.command("etcd");
        command
            .args(["--name", &self.name, "--data-dir"])
            .arg(&self.data);
        command.args([
            "--listen-client-urls",
            &self.url(),
            "--advertise-client-urls",
            &self.url(),
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        command.args(["--initial-cluster", &format!("{}={peer}", self.name)]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(["--log-level", "warn"]);
        let mut process = Process::spawn(command, &self.log);
        within(Duration::from_secs(30), "etcd answers", || {
            assert!(
                process.ended().is_none(),
                "etcd ended: {}",
                tail(&self.log, 20)
            );
            let health = self.output(sandbox, &["endpoint", "health"], b"");
            if health.status.success() {
                Ok(())
            } else {
                Err(tail(&self.log, 5))
            }
        });
        self.process = Some(process);
    }

    /// Ends it as an administrator would.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(rustix::process::Signal::TERM);
            if process.wait(Duration::from_secs(10)).is_none() {
                process.kill_9();
            }
        }
    }

    /// Kills it with -9.
    pub fn kill_9(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill_9();
        }
    }

    /// Freezes it: connections stay open and nothing answers.
    pub fn pause(&mut self) {
        self.process.as_mut().expect("etcd runs").pause();
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.process.as_mut().expect("etcd runs").resume();
    }

    /// Runs `etcdctl …`; panics when it fails; answers its output.
    #[track_caller]
    pub fn ctl(&self, sandbox: &Sandbox, arguments: &[&str]) -> String {
        self.ctl_with_input(sandbox, arguments, b"")
    }

    /// The same with a standard input.
    #[track_caller]
    pub fn ctl_with_input(&self, sandbox: &Sandbox, arguments: &[&str], input: &[u8]) -> String {
        let output = self.output(sandbox, arguments, input);
        assert!(
            output.status.success(),
            "etcdctl {arguments:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `etcdctl …` whatever comes of it.
    pub fn output(&self, sandbox: &Sandbox, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = sandbox.command("env");
        command
            .args(["ETCDCTL_API=3", "etcdctl", "--endpoints", &self.url()])
            .args(["--command-timeout", "5s", "--dial-timeout", "2s"])
            .args(self.user.iter().flat_map(|user| ["--user", user]))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("nsenter starts");
        // It may end without reading it all.
        let _ = child.stdin.take().expect("piped").write_all(input);
        child.wait_with_output().expect("etcdctl's output")
    }

    /// `etcdctl put KEY < VALUE`; answers the key's new `mod_revision`.
    #[track_caller]
    pub fn put(&self, sandbox: &Sandbox, key: &str, value: &[u8]) -> i64 {
        let answer = self.ctl_with_input(sandbox, &["put", "-w", "json", key], value);
        header_revision(&answer)
    }

    /// The value under a key.
    #[track_caller]
    pub fn get(&self, sandbox: &Sandbox, key: &str) -> Option<String> {
        let value = self.ctl(sandbox, &["get", "--print-value-only", key]);
        (!value.is_empty()).then(|| value.trim_end_matches('\n').to_owned())
    }

    /// The value under a key, as JSON.
    #[track_caller]
    pub fn get_json(&self, sandbox: &Sandbox, key: &str) -> Option<Value> {
        let text = self.get(sandbox, key)?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{key}: {error}: {text}")))
    }

    /// The keys under a prefix, in order.
    #[track_caller]
    pub fn keys(&self, sandbox: &Sandbox, prefix: &str) -> Vec<String> {
        let listed = self.ctl(sandbox, &["get", "--prefix", "--keys-only", prefix]);
        listed
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Deletes a key.
    #[track_caller]
    pub fn delete(&self, sandbox: &Sandbox, key: &str) {
        self.ctl(sandbox, &["del", key]);
    }

    /// The store's revision: it grows with every write.
    #[track_caller]
    pub fn revision(&self, sandbox: &Sandbox) -> i64 {
        header_revision(&self.ctl(sandbox, &["get", "-w", "json", "none"]))
    }

    /// Turns authentication on; from now on `etcdctl` is root with this password.
    #[track_caller]
    pub fn require_password(&mut self, sandbox: &Sandbox, password: &str) {
        let user = format!("root:{password}");
        self.ctl(sandbox, &["user", "add", &user]);
        self.ctl(sandbox, &["user", "grant-role", "root", "root"]);
        self.ctl(sandbox, &["auth", "enable"]);
        self.user = Some(user);
    }

    /// Forgets all history up to now.
    #[track_caller]
    pub fn compact(&self, sandbox: &Sandbox) {
        let revision = self.revision(sandbox).to_string();
        self.ctl(sandbox, &["compaction", "--physical", &revision]);
    }
}

fn header_revision(answer: &str) -> i64 {
    let answer: Value = serde_json::from_str(answer).expect("etcdctl's JSON");
    answer["header"]["revision"].as_i64().expect("a revision")
}

/// Ports for one etcd: fixed ones where the network is the sandbox's own.
fn free_ports(sandbox: &Sandbox, name: &str) -> [u16; 2] {
    match sandbox.net() {
        Net::Own => {
            let offset = name.bytes().map(u16::from).sum::<u16>() % 500 * 2;
            [12000 + offset, 12001 + offset]
        }
        Net::Host => {
            let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
            listeners.map(|listener| listener.local_addr().expect("its address").port())
        }
    }
}
