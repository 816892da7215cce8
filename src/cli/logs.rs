//! `podherd logs`: what the containers of an app say, from this host's Podman. It goes to
//! whoever asked, and nowhere else.

use std::io;

use futures::StreamExt as _;
use futures::stream::{FuturesUnordered, TryStreamExt as _};

use super::containers::{Reach, Target};
use crate::manifest::ServiceName;
use crate::runtime::{LogPart, Output, Podman};
use crate::state::ContainerId;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The app, or one of its services
    #[arg(value_name = "APP[/SERVICE]")]
    target: Target,
    /// Go on with what they say from now on
    #[arg(short, long)]
    follow: bool,
    /// Only so many of the last lines [default: all]
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Begin each line with when it was written
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (client, podman) = arguments.reach.connect().await?;
    let found = arguments.target.find(&client).await?;
    let part = LogPart {
        tail: arguments.tail,
        follow: arguments.follow,
        timestamps: arguments.timestamps,
    };
    let many = found.len() > 1;
    let logs = found
        .iter()
        .map(|(service, active)| copy(&podman, &active.container, part, many.then_some(service)));
    if part.follow {
        let all: FuturesUnordered<_> = logs.collect();
        return all.try_collect().await;
    }
    // One after another: a page is easier to read than a braid.
    futures::stream::iter(logs).buffered(1).try_collect().await
}

async fn copy(
    podman: &Podman,
    container: &ContainerId,
    part: LogPart,
    name: Option<&ServiceName>,
) -> anyhow::Result<()> {
    let mut log = podman.read_log(container, part).await?;
    let mut lines = [Lines::default(), Lines::default()];
    while let Some((output, piece)) = log.next().await? {
        let [out, err] = &mut lines;
        match output {
            Output::Out => out.write(&piece, name, &mut io::stdout().lock())?,
            Output::Err => err.write(&piece, name, &mut io::stderr().lock())?,
        }
    }
    Ok(())
}

/// Whole lines, so that those of several services don't mix.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn write(
        &mut self,
        piece: &[u8],
        name: Option<&ServiceName>,
        out: &mut impl io::Write,
    ) -> io::Result<()> {
        let Some(name) = name else {
            out.write_all(piece)?;
            return out.flush();
        };
        self.0.extend_from_slice(piece);
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            write!(out, "{name}: ")?;
            out.write_all(&line)?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_services_are_whole_and_named() {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let web = "web".parse().unwrap();
        for piece in ["a", "b\nc", "\n"] {
            lines.write(piece.as_bytes(), Some(&web), &mut out).unwrap();
        }
        assert_eq!(out, b"web: ab\nweb: c\n");
    }
}
