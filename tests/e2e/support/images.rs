//! The demo images: one busybox root file system, and what each does with it.
//!
//! They are imported once per run of the tests; each Podman gets a copy.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::podman;
use super::sandbox::{Net, Sandbox};

/// PID 1 of every demo image. It leaves at once on SIGTERM.
const DEMO: &str = include_str!("../../../scripts/demo-web.sh");

/// PID 1 of the UDP image. It needs no module, so nothing but the interpreter.
const UDP_ECHO: &str = r#"
$| = 1;
$SIG{TERM} = sub { exit 0 };
socket(S, 2, 2, 0) or die "socket: $!";
bind(S, pack("S n a4 x8", 2, $ARGV[0], "\0\0\0\0")) or die "bind: $!";
print "serving\n";
while (1) {
    my $peer = recv(S, my $said, 65535, 0) or next;
    send(S, "$ENV{NAME}:$said", 0, $peer);
}
"#;
/// How the image with a health check is made of another one.
const HEALTHCHECK: &str = "FROM localhost/demo-web:1
HEALTHCHECK CMD wget -q -O /dev/null http://127.0.0.1:8080/healthz && test ! -e /tmp/sick
";

/// An image that the tests deploy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// `GET /` says `demo-web version 1`; `/healthz` is 200. On `$PORT`, by default 8080.
    Web1,
    /// The same with version 2.
    Web2,
    /// Serves, but has no `/healthz`: 404.
    NeverReady,
    /// Ends at once with exit code 3.
    ExitsAtOnce,
    /// Begins to serve only after three seconds.
    SlowStart,
    /// Serves, and doesn't leave on SIGTERM.
    IgnoresTerm,
    /// Echoes on a TCP port; no HTTP.
    TcpOnly,
    /// Answers each datagram on UDP port 5353 with `$NAME`, a colon, and the datagram.
    UdpEcho,
    /// `Web1` with a VOLUME /data of its own.
    WithVolume,
    /// `Web1` with a HEALTHCHECK: it serves `/healthz`, and there is no `/tmp/sick`.
    WithHealthcheck,
    /// Appends `start ID VERSION`, then `tick ID` every 50 ms, to /data/log, and serves
    /// version 1. A tick of one ID after the start of another is a double writer.
    Writer1,
    /// The same with version 2.
    Writer2,
    /// A writer that never becomes ready.
    WriterNeverReady,
}

impl Image {
    const ALL: [Self; 13] = [
        Self::Web1,
        Self::Web2,
        Self::NeverReady,
        Self::ExitsAtOnce,
        Self::SlowStart,
        Self::IgnoresTerm,
        Self::TcpOnly,
        Self::UdpEcho,
        Self::WithVolume,
        Self::WithHealthcheck,
        Self::Writer1,
        Self::Writer2,
        Self::WriterNeverReady,
    ];

    /// Its reference, as in a manifest.
    pub fn reference(self) -> &'static str {
        match self {
            Self::Web1 => "localhost/demo-web:1",
            Self::Web2 => "localhost/demo-web:2",
            Self::NeverReady => "localhost/demo-web:never-ready",
            Self::ExitsAtOnce => "localhost/demo-web:exits-at-once",
            Self::SlowStart => "localhost/demo-web:slow-start",
            Self::IgnoresTerm => "localhost/demo-web:ignores-term",
            Self::TcpOnly => "localhost/demo-web:tcp-only",
            Self::UdpEcho => "localhost/demo-udp:echo",
            Self::WithVolume => "localhost/demo-web:with-volume",
            Self::WithHealthcheck => "localhost/demo-web:with-healthcheck",
            Self::Writer1 => "localhost/demo-writer:1",
            Self::Writer2 => "localhost/demo-writer:2",
            Self::WriterNeverReady => "localhost/demo-writer:never-ready",
        }
    }

    /// What its PID 1 is.
    pub fn command(self) -> [&'static str; 3] {
        if self == Self::UdpEcho {
            return ["/bin/perl", "/bin/udp-echo", "5353"];
        }
        let [mode, site] = self.behaviour();
        ["/bin/demo", mode, site]
    }

    /// The arguments of `/bin/demo`: what it does, and which site it serves.
    fn behaviour(self) -> [&'static str; 2] {
        match self {
            Self::Web1 | Self::WithVolume | Self::WithHealthcheck => ["web", "1"],
            Self::Web2 => ["web", "2"],
            Self::NeverReady => ["web", "sick"],
            Self::ExitsAtOnce => ["exit", "1"],
            Self::SlowStart => ["slow", "1"],
            Self::IgnoresTerm => ["stubborn", "1"],
            Self::TcpOnly | Self::UdpEcho => ["echo", "1"],
            Self::Writer1 => ["writer", "1"],
            Self::Writer2 => ["writer", "2"],
            Self::WriterNeverReady => ["writer", "sick"],
        }
    }
}

/// The storage with all images, in a sandbox that is there as long as the tests run.
fn store() -> &'static (Sandbox, PathBuf) {
    static STORE: OnceLock<(Sandbox, PathBuf)> = OnceLock::new();
    STORE.get_or_init(|| {
        let sandbox = Sandbox::new(Net::Own);
        let store = import_all(&sandbox);
        (sandbox, store)
    })
}

/// The demo's root file system, as a layer of an image.
pub fn rootfs_tar() -> PathBuf {
    store().0.dir().join("rootfs.tar")
}

/// Puts every demo image into a Podman storage root that doesn't exist yet.
pub fn copy_into(root: &Path) {
    let (_, store) = store();
    let copied = Command::new("cp")
        .arg("--archive")
        .args([store.as_path(), root])
        .status()
        .expect("cp starts");
    assert!(
        copied.success(),
        "copying {} to {}: {copied}",
        store.display(),
        root.display()
    );
}

fn import_all(sandbox: &Sandbox) -> PathBuf {
    let rootfs = sandbox.dir().join("rootfs");
    lay_out(&rootfs);
    let tar = sandbox.dir().join("rootfs.tar");
    sandbox.run("tar", ["-C", path(&rootfs), "-cf", path(&tar), "."]);
    let home = sandbox.dir().join("images");
    fs::create_dir(&home).expect("a directory for the images");
    for image in Image::ALL {
        let mut command = podman::command(sandbox, &home, "podman");
        if image == Image::WithHealthcheck {
            // An import makes an OCI image, and those can't have one.
            let recipe = home.join("Containerfile");
            fs::write(&recipe, HEALTHCHECK).expect("a Containerfile");
            command.args(["build", "--quiet", "--isolation", "chroot"]);
            command.args(["--format", "docker", "--tag", image.reference()]);
            command.args(["--file", path(&recipe), path(&home.join("context"))]);
            fs::create_dir(home.join("context")).expect("an empty context");
        } else {
            command.args(["import", "--quiet"]);
            let entry = format!("CMD {}", serde_json::json!(image.command()));
            command.args(["--change", &entry]);
            if image == Image::WithVolume {
                command.args(["--change", "VOLUME /data"]);
            }
            command.args([path(&tar), image.reference()]);
        }
        let output = command
            .stdout(Stdio::null())
            .output()
            .expect("podman starts");
        assert!(
            output.status.success(),
            "{}: {}",
            image.reference(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let root = home.join("root");
    // Podman's own database knows the path it was made for; storage doesn't.
    fs::remove_dir_all(root.join("libpod")).expect("Podman's database");
    root
}

fn lay_out(rootfs: &Path) {
    for dir in [
        "bin", "data", "tmp", "proc", "sys", "dev", "etc", "www/1", "www/2", "www/sick",
    ] {
        fs::create_dir_all(rootfs.join(dir)).expect("the image's directories");
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("busybox-static is installed");
    fs::copy(busybox, rootfs.join("bin/busybox")).expect("busybox copies");
    for applet in [
        "sh", "cat", "httpd", "ip", "nc", "nslookup", "sleep", "test", "wget",
    ] {
        symlink("busybox", rootfs.join("bin").join(applet)).expect("an applet's link");
    }
    let demo = rootfs.join("bin/demo");
    fs::write(&demo, DEMO).expect("the demo program");
    fs::set_permissions(&demo, fs::Permissions::from_mode(0o755)).expect("its mode");
    lay_out_udp(rootfs);
    for site in ["1", "2", "sick"] {
        let site_dir = rootfs.join("www").join(site);
        fs::write(
            site_dir.join("index.html"),
            format!("demo-web version {site}\n"),
        )
        .expect("a page");
        if site != "sick" {
            fs::write(site_dir.join("healthz"), "ok\n").expect("the health page");
        }
    }
}

/// Busybox has nothing that answers datagrams: Perl, which every Debian has, does.
fn lay_out_udp(rootfs: &Path) {
    let perl = Path::new("/usr/bin/perl");
    fs::copy(perl, rootfs.join("bin/perl")).expect("perl-base is installed");
    fs::write(rootfs.join("bin/udp-echo"), UDP_ECHO).expect("the UDP program");
    let linked = Command::new("ldd").arg(perl).output().expect("ldd starts");
    let linked = String::from_utf8_lossy(&linked.stdout).into_owned();
    for library in linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let to = rootfs.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a directory")).expect("its directory");
        fs::copy(library, to).expect("a library copies");
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of the tests are UTF-8")
}
