//! Only one Podherd acts on a Podman socket.
//!
//! The lock is the operating system's, on a file beside the socket:
//! `<socket>.podherd.lock`. It ends with the process, however that ends. The
//! file itself stays: removing it would let two processes lock two files.
//!
//! Where the socket's folder can't be written, the file is in the state folder.
//! That is weaker: it keeps only those apart that use the same state folder.
//! So is a socket that is mounted alone, without its folder, into a container:
//! then only the leadership in etcd keeps two controllers apart.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tracing::{info, warn};

use super::{HostError, file};

/// How often a taken lock is tried again.
const AGAIN: Duration = Duration::from_millis(250);

/// The lock, held until this is dropped or the process ends.
#[derive(Debug)]
pub struct HostLock {
    path: PathBuf,
    _file: File,
}

impl HostLock {
    /// Waits until nobody else acts on this socket. To give up, drop the future.
    ///
    /// # Errors
    /// When the lock file can be neither beside the socket nor in the state folder.
    pub async fn acquire(socket: &Path, state_dir: &Path) -> Result<Self, HostError> {
        let mut told = Told::default();
        loop {
            if let Some(lock) = Self::try_acquire(socket, state_dir, &mut told)? {
                info!(file = %lock.path.display(), "this host's Podman is ours");
                return Ok(lock);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The locked file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One try; `None` when another holds it or there is nothing to lock yet.
    fn try_acquire(
        socket: &Path,
        state_dir: &Path,
        told: &mut Told,
    ) -> Result<Option<Self>, HostError> {
        let Some(beside) = beside(socket)? else {
            told.once(|| {
                warn!(socket = %socket.display(), "waiting: the socket's folder doesn't exist; is Podman's service installed?");
            });
            return Ok(None);
        };
        let (path, mut file) = match open(&beside) {
            Ok(file) => (beside, file),
            Err(error) if is_forbidden(&error) && !beside.exists() => {
                let inside = inside(&beside, state_dir)?;
                told.once(|| {
                    warn!(
                        file = %inside.display(),
                        "the socket's folder can't be written: the lock is in the state folder, and keeps only those apart that use the same one"
                    );
                });
                let file = open(&inside).map_err(super::file(&inside, "lock it"))?;
                (inside, file)
            }
            Err(error) => return Err(super::file(&beside, "lock it")(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                told.who(&path, &mut file);
                return Ok(None);
            }
            Err(errno) => return Err(super::file(&path, "lock it")(errno.into())),
        }
        // Somebody may have removed the file between the open and the lock; the
        // next one would then lock another.
        if !is_still_there(&path, &file) {
            return Ok(None);
        }
        // Only for people and for the message above: a lock without it is as good.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Some(Self { path, _file: file }))
    }
}

/// What was said already while waiting.
#[derive(Debug, Default)]
struct Told {
    once: bool,
    holder: Option<String>,
}

impl Told {
    fn once(&mut self, say: impl FnOnce()) {
        if !self.once {
            self.once = true;
            say();
        }
    }

    fn who(&mut self, path: &Path, file: &mut File) {
        let mut pid = String::new();
        let _ = file.take(16).read_to_string(&mut pid);
        if self.holder.as_ref() != Some(&pid) {
            info!(file = %path.display(), pid, "standing by: another Podherd acts on this Podman");
            self.holder = Some(pid);
        }
    }
}

/// The lock file beside the socket, the same for every spelling of its path;
/// `None` when its folder doesn't exist.
fn beside(socket: &Path) -> Result<Option<PathBuf>, HostError> {
    let real = match fs::canonicalize(socket) {
        Ok(real) => real,
        // The socket may come later than we; its folder is what counts.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
                return Err(file(socket, "find its folder")(error));
            };
            match fs::canonicalize(folder) {
                Ok(folder) => folder.join(name),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(file(folder, "find it")(error)),
            }
        }
        Err(error) => return Err(file(socket, "find it")(error)),
    };
    let mut name = OsString::from(real);
    name.push(".podherd.lock");
    Ok(Some(name.into()))
}

/// The lock file in the state folder, named after the one beside the socket.
fn inside(beside: &Path, state_dir: &Path) -> Result<PathBuf, HostError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(file(state_dir, "create it"))?;
    let escaped: String = beside
        .as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| match byte {
            b'/' => '-',
            byte if byte.is_ascii_graphic() => char::from(*byte),
            _ => '_',
        })
        .collect();
    Ok(state_dir.join(escaped.trim_start_matches('-')))
}

/// Opens or creates a lock file. Somebody else's can be locked without the right to write it.
fn open(path: &Path) -> io::Result<File> {
    let created = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(path);
    match created {
        Err(error) if is_forbidden(&error) => File::open(path).map_err(|_| error),
        created => created,
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn is_still_there(path: &Path, file: &File) -> bool {
    match (fs::metadata(path), file.metadata()) {
        (Ok(there), Ok(ours)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    async fn is_taken(socket: &Path, state: &Path) -> bool {
        timeout(AGAIN * 3, HostLock::acquire(socket, state))
            .await
            .is_err()
    }

    #[tokio::test]
    async fn a_second_one_waits_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("podman.sock");
        let first = HostLock::acquire(&socket, dir.path()).await.unwrap();
        assert_eq!(first.path(), dir.path().join("podman.sock.podherd.lock"));
        assert_eq!(
            fs::read_to_string(first.path()).unwrap(),
            std::process::id().to_string()
        );
        assert!(is_taken(&socket, dir.path()).await);

        let path = socket.clone();
        let waiting = tokio::spawn(async move { HostLock::acquire(&path, Path::new("/")).await });
        tokio::time::sleep(AGAIN).await;
        drop(first);
        timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn two_spellings_of_a_socket_are_one_and_two_sockets_are_two() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("run");
        fs::create_dir(&real).unwrap();
        symlink(&real, dir.path().join("var")).unwrap();
        let _first = HostLock::acquire(&real.join("a.sock"), dir.path())
            .await
            .unwrap();
        assert!(is_taken(&dir.path().join("var/a.sock"), dir.path()).await);
        HostLock::acquire(&real.join("b.sock"), dir.path())
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_does_not_exist_yet_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("later");
        let socket = folder.join("podman.sock");
        assert!(is_taken(&socket, dir.path()).await);
        let waiting = tokio::spawn(async move { HostLock::acquire(&socket, Path::new("/")).await });
        fs::create_dir(&folder).unwrap();
        timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_lock_file_that_was_removed_is_not_mistaken_for_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let opened = open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!is_still_there(&path, &opened));
        let _other = open(&path).unwrap();
        assert!(!is_still_there(&path, &opened));
    }

    #[tokio::test]
    async fn without_the_right_to_write_there_the_state_folder_has_the_lock() {
        // In /sys nobody can create a file, root included.
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let socket = Path::new("/sys/podman.sock");
        let lock = HostLock::acquire(socket, &state).await.unwrap();
        assert_eq!(lock.path(), state.join("sys-podman.sock.podherd.lock"));
        assert!(is_taken(socket, &state).await);
    }
}
