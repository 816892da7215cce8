//! This host's Podman, and what it can do here.

use std::path::Path;

use super::finding::Finding;
use crate::runtime::{About, Podman, Runtime as _};
use crate::settings::{Host, PodmanSettings};

/// The oldest Podman that is known to work.
const OLDEST: (u64, u64) = (4, 3);
/// The controllers that limits need.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

pub(super) async fn check(settings: &PodmanSettings, here: &Host) -> Vec<Finding> {
    let socket = settings.socket.as_path();
    let user = if here.is_root() { "" } else { " --user" };
    let podman = match Podman::connect(&format!("unix://{}", socket.display())) {
        Ok(podman) => podman,
        Err(error) => {
            return vec![Finding::wrong(
                "podman",
                error.to_string(),
                "say --podman unix:///PATH",
            )];
        }
    };
    if let Err(error) = podman.ping().await {
        return vec![Finding::wrong(
            "podman",
            error.to_string(),
            unreachable(socket, user),
        )];
    }
    match podman.about().await {
        Ok(about) => of_podman(&about, socket),
        Err(error) => vec![Finding::wrong(
            "podman",
            error.to_string(),
            "podman info says what is wrong",
        )],
    }
}

/// Why a socket doesn't answer, by what is there.
fn unreachable(socket: &Path, user: &str) -> String {
    match std::os::unix::net::UnixStream::connect(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("run as the user who owns {}", socket.display())
        }
        _ => format!(
            "systemctl{user} enable --now podman.socket, or say where it is with --podman (now {})",
            socket.display()
        ),
    }
}

fn of_podman(about: &About, socket: &Path) -> Vec<Finding> {
    vec![version(about, socket), network(about), cgroups(about)]
}

fn version(about: &About, socket: &Path) -> Finding {
    let mut numbers = about.version.split(['.', '-']).map(str::parse::<u64>);
    let number = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    };
    let rootless = if about.rootless { ", without root" } else { "" };
    let said = format!("{}{rootless}, at {}", about.version, socket.display());
    match number {
        Some(number) if number < OLDEST => Finding::wrong(
            "podman",
            said,
            format!("upgrade it to {}.{} or newer", OLDEST.0, OLDEST.1),
        ),
        _ => Finding::well("podman", said),
    }
}

fn network(about: &About) -> Finding {
    match about.network_backend.as_str() {
        "netavark" => Finding::well("network", "netavark"),
        other => Finding::wrong(
            "network",
            format!("the backend is {other}: services don't find each other by name"),
            "install netavark and aardvark-dns, and set network_backend = \"netavark\" in containers.conf",
        ),
    }
}

fn cgroups(about: &About) -> Finding {
    let has = |name: &&str| about.cgroup_controllers.iter().any(|it| it == *name);
    let missing: Vec<_> = CONTROLLERS.into_iter().filter(|name| !has(name)).collect();
    let said = format!("{}, by {}", about.cgroup_version, about.cgroup_manager);
    if missing.is_empty() {
        return Finding::well("cgroups", said);
    }
    let mend = match (about.rootless, about.cgroup_version.as_str()) {
        (_, "v1") => "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)".to_owned(),
        (true, _) => format!(
            "delegate them: Delegate={} in /etc/systemd/system/user@.service.d/delegate.conf",
            missing.join(" ")
        ),
        (false, _) => "enable them in the kernel (cgroup_enable=… on its command line)".to_owned(),
    };
    let missing = missing.join(", ");
    Finding::weak(
        "cgroups",
        format!("{said}; without {missing}: such limits of resources: are ignored"),
        mend,
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn about(version: &str, controllers: &[&str]) -> About {
        About {
            version: version.to_owned(),
            rootless: true,
            network_backend: "netavark".to_owned(),
            cgroup_version: "v2".to_owned(),
            cgroup_manager: "systemd".to_owned(),
            cgroup_controllers: controllers.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_podman_that_is_too_old_is_wrong() {
        let level = |text| version(&about(text, &[]), Path::new("/x")).level;
        for old in ["3.4.4", "4.2.0", "4.2.1-dev"] {
            assert_eq!(level(old), Level::Wrong, "{old}");
        }
        for new in ["4.3.1", "5.4.2", "10.0.0-rc1", "who knows"] {
            assert_eq!(level(new), Level::Well, "{new}");
        }
    }

    #[test]
    fn missing_controllers_are_named_with_how_to_get_them() {
        let found = cgroups(&about("5.0.0", &["memory", "pids"]));
        assert_eq!(found.level, Level::Weak);
        assert!(found.said.contains("without cpu:") && found.mend.contains("Delegate=cpu"));
        assert_eq!(cgroups(&about("5.0.0", &CONTROLLERS)).level, Level::Well);
    }

    #[test]
    fn a_backend_without_names_is_wrong() {
        let mut about = about("5.0.0", &[]);
        assert_eq!(network(&about).level, Level::Well);
        about.network_backend = "cni".to_owned();
        assert_eq!(network(&about).level, Level::Wrong);
    }
}
