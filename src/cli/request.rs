//! Asking the controller for a verb, by a request's key.

use std::fmt::Write as _;

use anyhow::bail;

use super::WELL;
use super::client::{Client, Reach};
use super::follow::Followed;
use super::waiting::warn_without_controller;
use crate::clock::Entropy;
use crate::manifest::{AppName, Timespan};
use crate::state::{Asked, Operation, OperationId, Request, parse_id};
use crate::store::{Commit, Range, Target, Txn};

/// How many characters of a fresh ID are random.
const RANDOM: usize = 12;

/// How a request is made and followed.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// Only ask; don't follow what comes of it
    #[arg(long)]
    no_wait: bool,
    /// Follow it for so long at most; it goes on all the same
    #[arg(long, value_name = "TIME")]
    timeout: Option<Timespan>,
    /// ID of the request and its operation. The same request under the same ID isn't done
    /// again, only followed [default: a fresh one]
    #[arg(long, value_name = "ID", value_parser = id)]
    id: Option<OperationId>,
    #[command(flatten)]
    reach: Reach,
}

fn id(text: &str) -> Result<OperationId, String> {
    parse_id(text).map_err(|error| error.to_string())
}

impl How {
    /// Asks, and follows it to its end. Answers the exit code.
    pub(super) async fn ask(self, app: &AppName, asked: &Asked) -> anyhow::Result<u8> {
        let client = self.connect().await?;
        client.must_know(app).await?;
        self.ask_by(&client, app, asked).await
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        self.reach.clone().connect().await
    }

    /// The same, by a connection that is there already.
    pub(super) async fn ask_by(
        self,
        client: &Client,
        app: &AppName,
        asked: &Asked,
    ) -> anyhow::Result<u8> {
        let request = asked.request();
        let id = self.id.unwrap_or_else(|| fresh(&request));
        put(client, app, &id, asked).await?;
        warn_without_controller(client).await?;
        if self.no_wait {
            super::say(id.as_str())?;
            return Ok(WELL);
        }
        let again = again(app, &id, &request);
        let followed = Followed {
            app,
            id: &id,
            verb: request.verb,
            again: &again,
        };
        followed.follow(client, self.timeout).await
    }
}

fn fresh(request: &Request) -> OperationId {
    let mut random = Entropy::from_system().uuid().simple().to_string();
    random.truncate(RANDOM);
    OperationId::new(format!("{}-{random}", request.verb.as_str()))
}

/// The command that follows the same operation.
fn again(app: &AppName, id: &OperationId, request: &Request) -> String {
    let mut command = match &request.container {
        Some(container) => format!("podherd inhibitions clear {app} {container} --yes"),
        None => format!("podherd {} {app}", request.verb.as_str()),
    };
    if let Some(service) = &request.service {
        // A string can't refuse.
        _ = write!(command, " --service {service}");
    }
    if let Some(revision) = request.revision {
        _ = write!(command, " --to {revision}");
    }
    format!("{command} --id {id}")
}

/// Writes the request, unless its ID is used already: by the same one, all is well.
async fn put(
    client: &Client,
    app: &AppName,
    id: &OperationId,
    asked: &Asked,
) -> anyhow::Result<()> {
    let keys = &client.keys;
    let (key, operation) = (keys.request(app, id), keys.operation(app, id));
    let text = serde_yaml::to_string(asked)?.into_bytes();
    let txn = Txn::default()
        .when(key.clone(), Target::Absent)
        .when(operation.clone(), Target::Absent)
        .put(key.clone(), text.clone());
    let lost = match client.store.commit(txn).await {
        Ok(Commit::Applied(_)) => return Ok(()),
        Ok(Commit::Refused(_)) => None,
        Err(error) if error.is_ambiguous() => Some(error),
        Err(error) => return Err(error.into()),
    };
    let recorded = client.one::<Operation>(operation).await?;
    let waiting = client.entries(Range::Key(key)).await?;
    let is_same = match (&recorded, waiting.first()) {
        (Some(kept), _) => {
            let (one, other) = (&kept.record.request, asked.request());
            one.verb == other.verb
                && one.service == other.service
                && one.container == other.container
        }
        (None, Some(entry)) => Asked::parse(&entry.value).is_ok_and(|it| it == *asked),
        (None, None) => match lost {
            Some(error) => return Err(error.into()),
            None => bail!("request {id} was answered just now; see podherd events {app}"),
        },
    };
    if !is_same {
        bail!("ID {id} stands for another request of {app}: choose another, or leave --id out");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{AskedVerb, RevisionNumber};

    fn asked(verb: AskedVerb) -> Asked {
        Asked {
            verb,
            service: None,
            revision: None,
            force: false,
            container: None,
            note: None,
        }
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same_request() {
        let back = Asked {
            revision: Some(RevisionNumber(3)),
            ..asked(AskedVerb::Rollback)
        };
        let force = Asked {
            force: true,
            ..asked(AskedVerb::Remove)
        };
        for asked in [asked(AskedVerb::Stop), back, force] {
            let text = serde_yaml::to_string(&asked).unwrap();
            assert_eq!(Asked::parse(text.as_bytes()), Ok(asked));
        }
    }

    #[test]
    fn a_fresh_id_is_one_and_names_its_verb() {
        let request = asked(AskedVerb::Restart).request();
        let (one, other) = (fresh(&request), fresh(&request));
        assert_ne!(one, other);
        assert!(one.as_str().starts_with("restart-"));
        assert_eq!(parse_id(one.as_str()), Ok(one));
    }

    #[test]
    fn the_same_command_with_the_id_follows_it_again() {
        let mut request = asked(AskedVerb::Restart).request();
        request.service = "web".parse().ok();
        let command = again(&"blog".parse().unwrap(), &OperationId::new("r-1"), &request);
        assert_eq!(command, "podherd restart blog --service web --id r-1");
    }
}
