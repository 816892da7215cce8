//! `podherd exec`: runs a command in a service's container, on this host.

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{SignalKind, signal};

use super::FAILED;
use super::containers::{Reach, Target};
use crate::runtime::{Output, Podman, Session};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The app's service; only the app where it has a single one
    #[arg(value_name = "APP[/SERVICE]")]
    target: Target,
    /// Give it this command's standard input
    #[arg(short, long)]
    interactive: bool,
    /// Give it a terminal
    #[arg(short, long)]
    tty: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let Arguments {
        interactive,
        tty,
        command,
        ..
    } = arguments;
    if tty && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        bail!("there is no terminal here to give: leave out -t");
    }
    let (client, podman) = arguments.reach.connect().await?;
    let (_, active) = arguments.target.find_one(&client).await?;
    let begun = podman.begin_command(&active.container, &command, tty, interactive);
    let (mut session, mut input) = begun.await?;
    if interactive {
        tokio::spawn(async move {
            // Its end is the command's to notice.
            _ = tokio::io::copy(&mut tokio::io::stdin(), &mut input).await;
            _ = input.shutdown().await;
        });
    }
    let raw = tty.then(Raw::enter).transpose()?;
    let copied = copy(&podman, &mut session, tty).await;
    drop(raw);
    copied?;
    let code = podman.exit_code(&session).await?;
    Ok(u8::try_from(code).unwrap_or(FAILED))
}

/// Copies what it says; tells its terminal when ours has another size.
async fn copy(podman: &Podman, session: &mut Session, tty: bool) -> anyhow::Result<()> {
    let mut resized = signal(SignalKind::window_change())?;
    if tty {
        fit(podman, session).await;
    }
    loop {
        tokio::select! {
            piece = session.next() => match piece? {
                None => return Ok(()),
                Some((Output::Out, piece)) => write(&mut io::stdout().lock(), &piece)?,
                Some((Output::Err, piece)) => write(&mut io::stderr().lock(), &piece)?,
            },
            Some(()) = resized.recv(), if tty => fit(podman, session).await,
        }
    }
}

fn write(out: &mut impl io::Write, piece: &[u8]) -> io::Result<()> {
    out.write_all(piece)?;
    out.flush()
}

async fn fit(podman: &Podman, session: &Session) {
    if let Ok(size) = termios::tcgetwinsize(io::stdout()) {
        // A wrong size is no reason to end.
        _ = podman.resize(session, size.ws_row, size.ws_col).await;
    }
}

/// The terminal without its own editing, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
