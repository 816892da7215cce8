//! A Podman API service with storage of its own.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use super::images;
use super::sandbox::{Process, Sandbox, tail};
use super::wait::within;

/// The service, and the `podman` command on the same storage.
#[derive(Debug)]
pub struct Podman {
    home: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    service: Option<Process>,
}

impl Podman {
    /// Starts a service with every demo image in its storage.
    pub fn start(sandbox: &Sandbox) -> Self {
        let home = sandbox.dir().join("podman");
        fs::create_dir(&home).expect("Podman's directory");
        images::copy_into(&home.join("root"));
        let socket = match sandbox.user() {
            Some(user) => {
                user.give(sandbox, &home);
                let socket = user.socket();
                let dir = socket.parent().expect("a directory");
                sandbox.run("mkdir", ["--parents".as_ref(), dir.as_os_str()]);
                socket
            }
            None => home.join("podman.sock"),
        };
        let mut podman = Self {
            log: home.join("service.log"),
            socket,
            home,
            service: None,
        };
        podman.start_service(sandbox);
        podman
    }

    /// The API's address, for `podherd --podman`.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The API's socket.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Kills the service with -9. Containers go on running.
    pub fn kill_service(&mut self) {
        if let Some(mut service) = self.service.take() {
            service.kill_9();
        }
    }

    /// Starts the service again, on the same socket and storage.
    pub fn start_service(&mut self, sandbox: &Sandbox) {
        assert!(self.service.is_none(), "the service runs already");
        let socket = sandbox.outside(&self.socket);
        let _ = fs::remove_file(&socket);
        let mut command = command(sandbox, &self.home, "podman");
        command.args(["system", "service", "--time=0", &self.url()]);
        let mut service = Process::spawn(command, &self.log);
        within(
            Duration::from_secs(20),
            "the Podman service answers",
            || {
                assert!(
                    service.ended().is_none(),
                    "podman ended: {}",
                    tail(&self.log, 20)
                );
                ping(&socket)
            },
        );
        self.service = Some(service);
    }

    /// Kills the service with -9 and starts it again.
    pub fn restart_service(&mut self, sandbox: &Sandbox) {
        self.kill_service();
        self.start_service(sandbox);
    }

    /// The service's process.
    pub fn service(&mut self) -> &mut Process {
        self.service.as_mut().expect("the service runs")
    }

    /// Runs `podman …` on the same storage; panics when it fails; answers its output.
    #[track_caller]
    pub fn run(&self, sandbox: &Sandbox, arguments: &[&str]) -> String {
        let output = self.output(sandbox, arguments);
        assert!(
            output.status.success(),
            "podman {arguments:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// The same whatever comes of it.
    pub fn output(&self, sandbox: &Sandbox, arguments: &[&str]) -> Output {
        let mut command = command(sandbox, &self.home, "podman");
        command.args(arguments).output().expect("podman starts")
    }

    /// All containers, running or not, as `podman ps` describes them.
    #[track_caller]
    pub fn containers(&self, sandbox: &Sandbox) -> Vec<Value> {
        let listed = self.run(sandbox, &["ps", "--all", "--format", "json"]);
        serde_json::from_str(&listed).expect("a JSON list of containers")
    }

    /// Makes the storage forget a container, as a removal that is cut off does.
    #[track_caller]
    pub fn forget_storage(&self, id: &str) {
        let root = fs::read_dir(self.home.join("root")).expect("the storage");
        let index = root
            .flatten()
            .map(|entry| entry.path().join("containers.json"))
            .find(|index| index.exists())
            .expect("the storage's index of containers");
        let text = fs::read(&index).expect("the index");
        let mut containers: Vec<Value> = serde_json::from_slice(&text).expect("a JSON list");
        containers.retain(|container| container["id"] != id);
        fs::write(&index, Value::from(containers).to_string()).expect("the index is written");
    }

    /// The host's directory of a named volume.
    #[track_caller]
    pub fn volume_dir(&self, sandbox: &Sandbox, volume: &str) -> PathBuf {
        let mountpoint = ["volume", "inspect", "--format", "{{.Mountpoint}}", volume];
        PathBuf::from(self.run(sandbox, &mountpoint))
    }

    /// The names of all volumes.
    #[track_caller]
    pub fn volumes(&self, sandbox: &Sandbox) -> Vec<String> {
        let listed = self.run(sandbox, &["volume", "ls", "--format", "{{.Name}}"]);
        listed.lines().map(str::to_owned).collect()
    }
}

/// A command (podman, or one that calls it) whose Podman storage is in `home`.
pub fn command(sandbox: &Sandbox, home: &Path, program: &str) -> Command {
    let conf = home.join("containers.conf");
    if !conf.exists() {
        fs::write(&conf, containers_conf(home)).expect("containers.conf");
    }
    let registries = home.join("registries.conf");
    if !registries.exists() {
        fs::write(&registries, registries_conf()).expect("registries.conf");
    }
    let mut command = sandbox.command("env");
    command
        .args([
            "--unset",
            "XDG_RUNTIME_DIR",
            "--unset",
            "REGISTRY_AUTH_FILE",
        ])
        // Logins of the host are not the tests'.
        .arg(format!("HOME={}", home.display()))
        .arg(format!(
            "CONTAINERS_REGISTRIES_CONF={}",
            registries.display()
        ))
        .arg("PODMAN_IGNORE_CGROUPSV1_WARNING=1")
        .arg(format!("CONTAINERS_CONF={}", conf.display()))
        .arg(format!("TMPDIR={}", home.display()))
        .arg(program)
        // vfs needs nothing of the host's file system, and the images are small.
        .args(["--storage-driver", "vfs", "--root"])
        .arg(home.join("root"))
        .arg("--runroot")
        .arg(home.join("run"));
    command
}

/// What keeps it apart from the host's Podman, and what this host makes necessary.
fn containers_conf(home: &Path) -> String {
    let mut conf = format!(
        "[network]\nnetwork_backend = \"netavark\"\nnetwork_config_dir = \"{}\"\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
        home.join("networks").display()
    );
    // crun refuses the hybrid layout of cgroups.
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        conf.push_str("runtime = \"runc\"\n");
    }
    conf.push_str("[containers]\nlog_driver = \"k8s-file\"\n");
    if !may_raise_limits() {
        conf.push_str("default_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n");
    }
    conf
}

/// The tests' registry speaks plain HTTP.
fn registries_conf() -> String {
    format!(
        "unqualified-search-registries = []\n[[registry]]\nlocation = \"{}\"\ninsecure = true\n",
        super::registry::ADDRESS
    )
}

/// Whether this process holds `CAP_SYS_RESOURCE`.
fn may_raise_limits() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        const CAP_SYS_RESOURCE: u32 = 24;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & (1 << CAP_SYS_RESOURCE) != 0)
    })
}

fn ping(socket: &Path) -> Result<(), String> {
    use std::io::{Read, Write};
    let mut stream = UnixStream::connect(socket).map_err(|error| error.to_string())?;
    let limit = Some(Duration::from_secs(5));
    stream
        .set_read_timeout(limit)
        .map_err(|error| error.to_string())?;
    stream
        .write_all(b"GET /v4.0.0/libpod/_ping HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
        .map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 200") {
        Ok(())
    } else {
        Err(answer)
    }
}
