//! Namespaces of a test's own: processes, mounts, and mostly the network.
//!
//! Inside, `/run` and `/dev/shm` are empty, so that neither Podman's locks and
//! event log nor its network state are shared with the host or with another test,
//! and ports, bridges and firewall rules can't clash. The process that holds the
//! namespaces waits for the end of its standard input: when the test is over, or
//! was killed, the kernel ends everything inside, and the directory goes too.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::rootless::User;
use super::wait::within;

/// Which network a sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// Its own, with nothing but a loopback device.
    Own,
    /// The host's; for code under test that runs in the test's own process.
    Host,
}

/// The namespaces, and a directory that is the same inside and outside.
#[derive(Debug)]
pub struct Sandbox {
    dir: PathBuf,
    net: Net,
    holder: Child,
    init: u32,
    user: Option<User>,
}

const TOOLS: [(&str, &str); 9] = [
    ("podman", "podman"),
    ("runc", "runc"),
    ("conmon", "conmon"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("busybox", "busybox-static"),
    ("catatonit", "catatonit"),
    ("iptables", "iptables"),
    ("curl", "curl"),
];

/// Runs the namespaces; `$1` is the directory, the rest are options of unshare.
const HOLDER: &str = r#"
dir=$1; shift
unshare --mount --pid "$@" --fork --kill-child=KILL --mount-proc --propagation private -- /bin/sh -ec '
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs /dev/shm
    busybox ip link set lo up
    echo ready
    exec catatonit -- cat'
for container in "$dir"/*/root/*-containers/*/; do
    id=$(basename "$container")
    rmdir /sys/fs/cgroup/*/libpod_parent/*"$id" /sys/fs/cgroup/libpod_parent/*"$id" 2>/dev/null
done
rm -rf "$dir"
"#;

impl Sandbox {
    /// Makes the namespaces.
    pub fn new(net: Net) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        require_tools(&TOOLS);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: a Unix socket's path has room for 107 bytes.
        let dir = PathBuf::from(format!("/tmp/podherd-e2e-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("the sandbox's directory");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", HOLDER, "sandbox"]).arg(&dir);
        if net == Net::Own {
            command.arg("--net");
        }
        // A process group of its own: Ctrl-C must not stop the clean-up.
        let mut holder = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("/bin/sh starts");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("the sandbox's output");
        assert_eq!(
            line.trim(),
            "ready",
            "no namespaces for the end-to-end tests: they need root with CAP_SYS_ADMIN and \
             CAP_NET_ADMIN (`make test` uses sudo for them where it isn't root)"
        );
        let unshare = child_of(holder.id()).expect("unshare runs");
        let init = child_of(unshare).expect("the sandbox's init runs");
        Self {
            dir,
            net,
            holder,
            init,
            user: None,
        }
    }

    /// Namespaces in whose inside an ordinary user lives: commands are that user's.
    pub fn of_user() -> Self {
        let mut sandbox = Self::new(Net::Own);
        sandbox.user = Some(User::create(&sandbox));
        sandbox
    }

    /// The user whose commands run inside, when it isn't root.
    pub fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// The program under test, where whoever runs it may read it.
    pub fn podherd(&self) -> PathBuf {
        match self.user {
            Some(_) => self.dir.join("podherd"),
            None => PathBuf::from(env!("CARGO_BIN_EXE_podherd")),
        }
    }

    /// What a path inside is outside.
    pub fn outside(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").expect("a path from / on");
        PathBuf::from(format!("/proc/{}/root", self.init)).join(inside)
    }

    /// A directory of this sandbox, by the same path inside and outside.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Which network it has.
    pub fn net(&self) -> Net {
        self.net
    }

    /// A command that runs inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.enter();
        if let Some(user) = &self.user {
            user.enter(&mut command);
        }
        command.arg(program);
        command
    }

    /// A command that runs inside as root, whoever else lives there.
    pub fn command_of_root(&self, program: &str) -> Command {
        let mut command = self.enter();
        command.arg(program);
        command
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--pid"]);
        if self.net == Net::Own {
            command.arg("--net");
        }
        command.arg("--").stdin(Stdio::null());
        command
    }

    /// A socket of this process that listens inside.
    pub fn listen(&self, address: &str) -> TcpListener {
        self.in_network(|| TcpListener::bind(address).expect("a listener"))
    }

    /// Does something in a thread of its own that is in the sandbox's network. Sockets
    /// that it opens stay there.
    pub fn in_network<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let namespace = format!("/proc/{}/ns/net", self.init);
        let enter = || {
            let namespace = File::open(namespace).expect("the sandbox's network");
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).expect("setns");
            act()
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(enter);
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Runs a command to its end; panics unless it succeeds; answers its output.
    #[track_caller]
    pub fn run<I: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = I>,
    ) -> String {
        let mut command = self.command(program);
        command.args(arguments);
        let output = command.output().expect("nsenter starts");
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Fails with the packages to install when programs are missing.
#[track_caller]
pub fn require_tools(tools: &[(&str, &str)]) {
    let path = std::env::var("PATH").unwrap_or_default();
    let places: Vec<_> = path
        .split(':')
        .chain(["/usr/sbin", "/sbin"])
        .map(Path::new)
        .collect();
    let missing: Vec<_> = tools
        .iter()
        .filter(|(tool, _)| !places.iter().any(|place| place.join(tool).exists()))
        .map(|(_, package)| *package)
        .collect();
    assert!(
        missing.is_empty(),
        "the end-to-end tests need the Debian packages {}: run `make setup`",
        missing.join(" ")
    );
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// A long-running process inside a sandbox.
#[derive(Debug)]
pub struct Process {
    wrapper: Child,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Starts a long-running command (made by [`Sandbox::command`]) whose output is
    /// appended to `log`.
    pub fn spawn(mut command: Command, log: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log file");
        let mut wrapper = command
            .stdout(file.try_clone().expect("the log file again"))
            .stderr(file)
            .process_group(0)
            .spawn()
            .expect("nsenter starts");
        let pid = within(
            Duration::from_secs(5),
            "the process inside the sandbox",
            || match child_of(wrapper.id()) {
                Some(pid) => Ok(pid),
                // It may have ended already: then nothing is signalled any more.
                None if wrapper.try_wait().is_ok_and(|ended| ended.is_some()) => Ok(wrapper.id()),
                None => Err(format!("{command:?}: {}", tail(log, 20))),
            },
        );
        Self {
            wrapper,
            pid,
            log: log.to_owned(),
        }
    }

    /// Its process ID, as the host sees it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// All it has printed.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.wrapper.try_wait().expect("the wrapper's status")
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let _ = rustix::process::kill_process(as_pid(self.pid), signal);
        }
    }

    /// Kills it with -9 and waits until it is gone.
    pub fn kill_9(&mut self) {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10))
            .expect("it ends after SIGKILL");
    }

    /// Stops it in its tracks (SIGSTOP).
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on; nsenter, which stopped with it, first.
    pub fn resume(&mut self) {
        let _ = rustix::process::kill_process(as_pid(self.wrapper.id()), Signal::CONT);
        self.signal(Signal::CONT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
            let _ = self.wait(Duration::from_secs(10));
        }
    }
}

/// The last lines of a file.
pub fn tail(file: &Path, lines: usize) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn as_pid(pid: u32) -> Pid {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process ID")
}

/// The first child of a process.
fn child_of(parent: u32) -> Option<u32> {
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|pid: &u32| parent_of(*pid) == Some(parent))
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // pid (name, which may hold anything) state ppid …
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}
