//! The real binary, and what can be seen of it from outside.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::sandbox::{Process, tail};
use super::world::World;

/// Which etcd a Podherd is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// The world's.
    World,
    /// Another one, by its address.
    At(String),
    /// None.
    Unnamed,
}

/// How a Podherd is started. The default is `podherd run` on the world's etcd and Podman.
#[derive(Debug, Clone)]
pub struct Options {
    /// `run`, `controller` or `proxy`.
    pub verb: &'static str,
    /// Tells several Podherds of one world apart: state directory, log, ports.
    pub number: u16,
    /// The node's name.
    pub node: &'static str,
    /// Whether Podman's socket and the state folder are for it to find.
    pub defaults: bool,
    /// What `--etcd` says.
    pub store: Store,
    /// Arguments added at the end.
    pub arguments: Vec<String>,
    /// Environment variables added.
    pub environment: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verb: "run",
            number: 0,
            node: "host-a",
            defaults: false,
            store: Store::World,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }
}

/// One running `podherd`.
#[derive(Debug)]
pub struct Podherd {
    options: Options,
    log: PathBuf,
    process: Process,
}

/// What the proxy answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code; 0 when there was no answer.
    pub code: u16,
    /// The body.
    pub body: String,
}

impl Podherd {
    /// Starts one. It may not be ready yet: see [`Podherd::wait_serving`].
    pub fn start(world: &World, options: Options) -> Self {
        let log = world
            .sandbox
            .dir()
            .join(format!("podherd-{}.log", options.number));
        let process = Self::spawn(world, &options, &log);
        Self {
            options,
            log,
            process,
        }
    }

    fn spawn(world: &World, options: &Options, log: &std::path::Path) -> Process {
        let mut command = world.sandbox.command("env");
        for (name, value) in &options.environment {
            command.arg(format!("{name}={value}"));
        }
        command.arg(world.sandbox.podherd()).arg(options.verb);
        match &options.store {
            Store::World => _ = command.args(["--etcd", &world.etcd.url()]),
            Store::At(url) => _ = command.args(["--etcd", url]),
            Store::Unnamed => {}
        }
        if options.verb != "proxy" {
            command.args(["--node", options.node]);
        }
        if options.verb != "proxy" && !options.defaults {
            let state_dir = Self::state_dir_of(world, options.number);
            command.args(["--podman", &world.podman.url(), "--state-dir"]);
            command.arg(state_dir);
        }
        if options.verb != "controller" {
            command.args(["--http", &Self::http_of(options.number)]);
        }
        command.args(["--listen", &Self::listen_of(options.number)]);
        command.args(&options.arguments);
        Process::spawn(command, log)
    }

    /// The state directory of the Podherd with this number.
    pub fn state_dir_of(world: &World, number: u16) -> PathBuf {
        world.sandbox.dir().join(format!("podherd-{number}.state"))
    }

    fn http_of(number: u16) -> String {
        format!("127.0.0.1:{}", 8000 + number)
    }

    fn listen_of(number: u16) -> String {
        format!("127.0.0.1:{}", 9000 + number)
    }

    /// Waits until `/readyz` answers 200.
    #[track_caller]
    pub fn wait_serving(&mut self, world: &World) -> &mut Self {
        super::within(Duration::from_secs(30), "podherd is ready", || {
            if let Some(status) = self.process.ended() {
                panic!("podherd ended with {status}:\n{}", tail(&self.log, 40));
            }
            let answer = self.listen(world, "/readyz");
            if answer.code == 200 {
                Ok(())
            } else {
                Err(answer)
            }
        });
        self
    }

    /// `GET` through the proxy.
    pub fn get(&self, world: &World, host: &str, path: &str) -> Response {
        world.get(
            &format!("http://{}{path}", Self::http_of(self.options.number)),
            host,
        )
    }

    /// `GET` of the metrics and health listener.
    pub fn listen(&self, world: &World, path: &str) -> Response {
        let address = Self::listen_of(self.options.number);
        world.get(&format!("http://{address}{path}"), &address)
    }

    /// Kills it with -9.
    pub fn kill_9(&mut self) {
        self.process.kill_9();
    }

    /// Sends SIGTERM and waits for its end; answers its exit code.
    #[track_caller]
    pub fn term(&mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        let status = self.process.wait(Duration::from_secs(30));
        status.expect("podherd ends after SIGTERM").code()
    }

    /// Starts it again after its end.
    #[track_caller]
    pub fn start_again(&mut self, world: &World) -> &mut Self {
        assert!(self.process.ended().is_some(), "podherd still runs");
        self.process = Self::spawn(world, &self.options, &self.log);
        self
    }

    /// Waits for its end; answers its exit code.
    pub fn wait_end(&mut self, limit: Duration) -> Option<i32> {
        self.process.wait(limit).and_then(|status| status.code())
    }

    /// Waits for its end; whether a signal ended it.
    pub fn wait_end_by_signal(&mut self, limit: Duration) -> bool {
        let status = self.process.wait(limit);
        // nsenter, which stands before it, tells a signal as 128 and its number.
        status.is_some_and(|it| it.code().is_none_or(|code| code > 128))
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

impl Drop for Podherd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- {} ---\n{}\n---",
                self.log.display(),
                tail(&self.log, 80)
            );
        }
    }
}

/// Runs `podherd …` on the world's etcd to its end, with a standard input; answers its
/// exit code, and what it printed on both outputs.
pub fn cli(world: &World, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut command = world.sandbox.command("env");
    command.arg(format!("PODHERD_ETCD={}", world.etcd.url()));
    command.arg(format!("PODHERD_PODMAN={}", world.podman.url()));
    command.arg(env!("CARGO_BIN_EXE_podherd")).args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("podherd starts");
    // It may end without reading it all.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes());
    let output = child.wait_with_output().expect("its output");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("it wasn't ended by a signal");
    (code, text(&output.stdout), text(&output.stderr))
}

/// The same of a command that must go well; answers what it printed.
#[track_caller]
pub fn ask(world: &World, arguments: &[&str]) -> String {
    let (code, out, err) = cli(world, arguments, "");
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

/// Runs `podherd …` to its end, inside the world.
pub fn podherd(world: &World, arguments: &[&str]) -> Output {
    let mut command = world.sandbox.command(env!("CARGO_BIN_EXE_podherd"));
    command.args(arguments).output().expect("podherd starts")
}
