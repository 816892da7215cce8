//! An ordinary user that exists only inside one sandbox.
//!
//! Rootless Podman wants an account with subordinate IDs, a runtime directory and
//! `/dev/net/tun`. All of it is mounted over the host's in the sandbox's own mount
//! namespace: the host gets no account and no other permission, and nothing is left.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::sandbox::{Sandbox, require_tools};

const UID: u32 = 64_711;
const NAME: &str = "podherd-e2e";

const TOOLS: [(&str, &str); 3] = [
    ("newuidmap", "uidmap"),
    ("slirp4netns", "slirp4netns"),
    ("setpriv", "util-linux"),
];

/// Run inside as root: `$1` is the sandbox's directory, `$2` and `$3` the user, `$4` the
/// program under test, which may lie where no other user comes.
const SET_UP: &str = r#"
set -e
dir=$1 uid=$2 name=$3 program=$4
mkdir "$dir/etc" "$dir/home"
printf 'root:x:0:0::/root:/bin/sh\n%s:x:%s:%s::%s:/bin/sh\n' \
    "$name" "$uid" "$uid" "$dir/home" >"$dir/etc/passwd"
printf 'root:x:0:\n%s:x:%s:\n' "$name" "$uid" >"$dir/etc/group"
echo "$name:200000:65536" >"$dir/etc/subuid"
cp "$dir/etc/subuid" "$dir/etc/subgid"
for file in passwd group subuid subgid; do
    mount --bind "$dir/etc/$file" "/etc/$file"
done
mkdir -p "/run/user/$uid"
chmod 700 "/run/user/$uid"
chown "$uid:$uid" "$dir" "$dir/home" "/run/user/$uid"
chmod 1777 /dev/shm
mkdir -p /dev/net
mount -t tmpfs tmpfs /dev/net
mknod -m 666 /dev/net/tun c 10 200
touch "$dir/podherd"
mount --bind "$program" "$dir/podherd"
"#;

/// The user, as commands need it.
#[derive(Debug)]
pub struct User {
    id: u32,
    home: PathBuf,
}

impl User {
    /// Makes one inside.
    #[track_caller]
    pub fn create(sandbox: &Sandbox) -> Self {
        require_tools(&TOOLS);
        let dir = sandbox
            .dir()
            .to_str()
            .expect("paths of the tests are UTF-8");
        let uid = UID.to_string();
        let program = env!("CARGO_BIN_EXE_podherd");
        sandbox.run("sh", ["-c", SET_UP, "set-up", dir, &uid, NAME, program]);
        Self {
            id: UID,
            home: sandbox.dir().join("home"),
        }
    }

    /// Where its home is, inside and outside.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where Podman listens for this user by default, inside.
    pub fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/run/user/{}/podman/podman.sock", self.id))
    }

    /// Gives a file tree to it.
    #[track_caller]
    pub fn give(&self, sandbox: &Sandbox, tree: &Path) {
        let owner = format!("{0}:{0}", self.id);
        let tree = tree.to_str().expect("paths of the tests are UTF-8");
        let mut command = sandbox.command_of_root("chown");
        let given = command.args(["--recursive", &owner, tree]).status();
        assert!(given.expect("chown starts").success(), "chown {tree}");
    }

    /// Makes the rest of the command run as this user, with its environment alone.
    pub fn enter(&self, command: &mut Command) {
        let id = |which: &str| format!("--{which}={}", self.id);
        command.args(["setpriv", &id("reuid"), &id("regid"), "--clear-groups"]);
        command.args(["--inh-caps=-all", "env", "--ignore-environment"]);
        let path = std::env::var("PATH").unwrap_or_default();
        command.arg(format!("PATH={path}:/usr/sbin:/sbin"));
        command.arg(format!("HOME={}", self.home.display()));
        command.arg(format!("USER={NAME}"));
        command.arg(format!("XDG_RUNTIME_DIR=/run/user/{}", self.id));
    }
}
