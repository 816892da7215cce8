//! What a person can do about a reason, as the conditions and outcomes give it.

use crate::manifest::AppName;

/// The next step; `None` where the message says all there is, or nothing is to be done.
pub(super) fn advice(reason: &str, app: &AppName) -> Option<String> {
    let next = match reason {
        "InvalidManifest" => {
            format!("mend the manifest at the place that is named; podherd validate FILE checks it; then podherd apply -f FILE (podherd get apps {app} -o yaml shows the one in etcd)")
        }
        "InvalidName" => "put the manifest under a key that is a DNS label, and delete this key".to_owned(),
        "Deleted" => format!("podherd apply -f FILE brings {app} back"),
        "Stopped" => format!("podherd start {app}"),
        "RolledBack" => format!("podherd describe {app} says why; mend the manifest and apply it, or try it again with podherd deploy {app}"),
        "Deploying" | "Preflight" | "Pulling" | "OperationInFlight" | "Superseded" | "Interrupted" => {
            format!("it goes on: podherd wait {app}")
        }
        "RetryScheduled" => format!("it is tried again by itself; at once with podherd deploy {app}"),
        "PolicyDenied" | "ImageDenied" | "PolicyRevoked" => {
            "take it out of the manifest, or have the node's administrator allow it in its policy file (--policy)".to_owned()
        }
        "PolicyUnreadable" => "mend the node's policy file (--policy) where the message says; podherd doctor checks it".to_owned(),
        "RouteConflict" => "choose another host, path or port, or take it out of the app that holds it: podherd get routes".to_owned(),
        "ListenerReserved" | "ListenerUnavailable" | "PortInUse" => {
            "free the port on the host (ss -lntup shows who has it), or choose another".to_owned()
        }
        "PortsExhausted" => "give Podherd a larger --port-range".to_owned(),
        "PortNotPublished" | "PodmanRefused" => "look at Podman's own log (journalctl -u podman), then podherd doctor".to_owned(),
        "SecretMissing" => format!("podherd secret set {app} NAME < FILE, or podman secret create for one of Podman's"),
        "SecretRotated" => format!("podherd restart {app} takes the new value"),
        "ImageUnknown" | "ImageAbsent" => "check the image's name and tag, and pullPolicy; a private registry needs --auth-file".to_owned(),
        "ImagePullFailed" | "AuthFileUnusable" => "check the registry, the network and the credentials in --auth-file".to_owned(),
        "ImageVolumeNotMapped" => "map the image's volume in volumes: or tmpfs: of the service".to_owned(),
        "ImageWithoutHealthcheck" => "choose another readiness probe than health".to_owned(),
        "NotReady" | "NotStarted" | "ContainerExited" | "ProbeImpossible" | "Exited" | "Unhealthy" | "CrashLoopBackOff" => {
            format!("podherd logs {app} says what the container says; then mend the image, its settings or the probe, and apply; podherd history {app} lists what worked before")
        }
        "ServiceNotVerified" | "ContainerGone" | "ContainerMoved" => format!("it is brought back by itself: podherd status {app} --watch"),
        "Inhibited" | "ReplacementPending" | "RetirementPending" | "Removed" => {
            format!("podherd get inhibitions {app} shows which; a deployment replaces it: podherd deploy {app}")
        }
        "RetireFailed" | "StopFailed" | "CleanupFailed" | "CleanupWarning" | "CandidateStays" | "StillHeld" => {
            "look at the container with podman inspect; once it can be removed (podman rm -f), it goes on by itself".to_owned()
        }
        "UnknownContainer" => "podman rm -f it if nobody needs it".to_owned(),
        "ForeignResource" | "NameInUse" | "NetworkConflict" => "remove or rename what has the name already: it isn't Podherd's".to_owned(),
        "NewerGenerationRuns" | "ActiveMissing" => "etcd seems to be an older copy: see whether that is so before anything is done; then podherd deploy the app".to_owned(),
        "TrafficUnconfirmed" => "see that podherd proxy runs and reaches etcd: podherd get nodes -o wide".to_owned(),
        "RecordDamaged" => "restore the key that is named from a backup of etcd".to_owned(),
        "DeletionProtected" => format!("podherd remove {app} --force removes it all the same"),
        "OtherServicesDiffer" => format!("podherd deploy {app} without --service takes all of it"),
        "RevisionUnknown" | "RevisionMissing" => format!("podherd history {app} lists the revisions"),
        "ServiceUnknown" => format!("podherd get services {app} lists the services"),
        "NeverDeployed" | "NoManifest" => "podherd apply -f FILE first".to_owned(),
        "PodmanUnavailable" => "start Podman's service (systemctl start podman.socket); podherd doctor checks it".to_owned(),
        "NoUserIds" => "give the user of Podman ranges in /etc/subuid and /etc/subgid".to_owned(),
        "SecurityIgnored" | "ResourceLimitIgnored" => "podherd doctor says what this host lacks".to_owned(),
        _ => return None,
    };
    Some(next)
}
