//! The store in etcd.
//!
//! One client for the life of the process: it makes its connections again by
//! itself, renews its token, and tries another endpoint when one can't be
//! reached. Every call has its own deadline ([`super::deadline`]).
//!
//! - `options`: where etcd is, and who we are there;
//! - `error`: what its answers mean;
//! - `read`: ranges at one revision, page by page;
//! - `watch`: the stream of changes and its watchdog.

mod error;
mod options;
mod read;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare as EtcdCompare, CompareOp, DeleteOptions, Error, GetOptions, KvClient,
    LeaseClient, PutOptions, Txn as EtcdTxn, TxnOp, TxnOpResponse, WatchClient,
};
use tokio::time::{Instant, timeout_at};

use super::{
    Commit, Compare, LeaseId, Range, Store, StoreError, Target, Txn, View, Watch, Write, deadline,
    limit,
};
pub use options::{Certificates, EtcdOptions};

/// Answers may be as large as etcd sends them: paging is what bounds them.
const MESSAGE_BYTES: usize = i32::MAX as usize;
/// Tries of a call that never reached an endpoint, when there are several.
const TRIES_OF_MANY: u32 = 8;

/// A store in etcd.
pub struct EtcdStore {
    client: Client,
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
    endpoints: Vec<String>,
    /// A key that we may read wherever roles are set up: what identity asks for.
    probe: String,
    authenticates: bool,
}

/// What may be done about a call that failed on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It changes nothing, or the same again: make it again.
    Freely,
    /// It may have happened: only when it was surely not sent.
    WhenUnsent,
}

impl EtcdStore {
    /// Prepares a client and, where there is a user, proves who we are. Without
    /// a user nothing is sent yet: [`Store::identity`] tells whether etcd is there.
    ///
    /// # Errors
    /// When the options contradict each other, or etcd can't be reached to
    /// check the user's password or doesn't accept it.
    pub async fn connect(options: &EtcdOptions) -> Result<Self, StoreError> {
        let connecting = Client::connect(&options.endpoints, Some(options.to_client()?));
        let client = match timeout_at(Instant::now() + deadline::CONNECT, connecting).await {
            Ok(client) => client.map_err(|error| error::classify("connect", &error))?,
            Err(_) => return Err(too_late("connect", deadline::CONNECT)),
        };
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES),
            lease: client.lease_client(),
            watch: client
                .watch_client()
                .max_decoding_message_size(MESSAGE_BYTES),
            client,
            endpoints: options.endpoints.clone(),
            probe: format!("{}/", options.prefix),
            authenticates: options.user.is_some(),
        })
    }

    /// Makes a call, within `limit` all in all.
    async fn call<T, F>(
        &self,
        name: &'static str,
        limit: Duration,
        repeat: Repeat,
        attempt: impl Fn() -> F + Send,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        match timeout_at(Instant::now() + limit, self.attempts(repeat, attempt)).await {
            Ok(answer) => answer.map_err(|error| error::classify(name, &error)),
            Err(_) => Err(too_late(name, limit)),
        }
    }

    async fn attempts<T, F>(
        &self,
        repeat: Repeat,
        attempt: impl Fn() -> F + Send,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        // With one endpoint, one more try is for a connection that turned out
        // to be dead, as after a restart of etcd.
        let mut tries = if self.endpoints.len() > 1 {
            TRIES_OF_MANY
        } else {
            2
        };
        let mut may_refresh = self.authenticates;
        loop {
            let error = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tries -= 1;
            if may_refresh && error::is_token_outdated(&error) {
                may_refresh = false;
                self.client.refresh_token().await?;
            } else if tries == 0
                || !(error::was_not_sent(&error)
                    || repeat == Repeat::Freely && error::is_passing(&error))
            {
                return Err(error);
            }
        }
    }
}

fn too_late(call: &'static str, limit: Duration) -> StoreError {
    error::unavailable(call, format!("no answer within {} s", limit.as_secs()))
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn identity(&self) -> Result<(u64, i64), StoreError> {
        let answer = self
            .call("identity", deadline::READ, Repeat::Freely, || {
                let (mut kv, key) = (self.kv.clone(), self.probe.clone());
                async move { kv.get(key, Some(GetOptions::new().with_keys_only())).await }
            })
            .await?;
        let header = answer.header().ok_or_else(|| no_header("identity"))?;
        Ok((header.cluster_id(), header.revision()))
    }

    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError> {
        read::at_one_revision(self, ranges).await
    }

    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError> {
        let request = to_etcd(&txn);
        let answer = self
            .call("commit", deadline::COMMIT, Repeat::WhenUnsent, || {
                let (mut kv, request) = (self.kv.clone(), request.clone());
                async move { kv.txn(request).await }
            })
            .await?;
        if answer.succeeded() {
            let header = answer.header().ok_or_else(|| no_header("commit"))?;
            return Ok(Commit::Applied(header.revision()));
        }
        let mut failed = BTreeSet::new();
        for (key, response) in compared_keys(&txn).into_iter().zip(answer.op_responses()) {
            let TxnOpResponse::Get(get) = response else {
                continue;
            };
            let found = get.kvs().first();
            let created = found.map_or(0, etcd_client::KeyValue::create_revision);
            let modified = found.map_or(0, etcd_client::KeyValue::mod_revision);
            let holds = |compare: &Compare| match compare.target {
                Target::Absent => created == 0,
                Target::CreateRevision(revision) => created == revision,
                Target::ModRevision(revision) => modified == revision,
            };
            if !txn
                .compares
                .iter()
                .filter(|compare| compare.key == *key)
                .all(holds)
            {
                failed.insert(key.clone());
            }
        }
        Ok(Commit::Refused(failed.into_iter().collect()))
    }

    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError> {
        watch::open(self, prefix, from).await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        let seconds = i64::try_from(limit::lease_seconds(ttl)).unwrap_or(i64::MAX);
        // A grant that got lost leaves a lease without keys, which ends by itself.
        let answer = self
            .call("grant a lease", deadline::LEASE, Repeat::Freely, || {
                let mut lease = self.lease.clone();
                async move { lease.grant(seconds, None).await }
            })
            .await?;
        Ok(LeaseId(answer.id()))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        // A stream for each renewal: one that went silently dead would cost the lease.
        self.call(
            "keep a lease alive",
            deadline::LEASE,
            Repeat::Freely,
            || {
                let mut client = self.lease.clone();
                async move { client.keep_alive(lease.0).await.map(drop) }
            },
        )
        .await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.call(
            "revoke a lease",
            deadline::LEASE,
            Repeat::WhenUnsent,
            || {
                let mut client = self.lease.clone();
                async move { client.revoke(lease.0).await.map(drop) }
            },
        )
        .await
    }
}

fn no_header(call: &'static str) -> StoreError {
    error::unavailable(call, "the answer has no header")
}

/// The keys of the comparisons, each once: what a refused transaction reads back.
fn compared_keys(txn: &Txn) -> BTreeSet<&String> {
    txn.compares.iter().map(|compare| &compare.key).collect()
}

fn to_etcd(txn: &Txn) -> EtcdTxn {
    let compares: Vec<EtcdCompare> = txn
        .compares
        .iter()
        .map(|Compare { key, target }| {
            let key = key.as_str();
            match *target {
                Target::Absent => EtcdCompare::create_revision(key, CompareOp::Equal, 0),
                Target::CreateRevision(revision) => {
                    EtcdCompare::create_revision(key, CompareOp::Equal, revision)
                }
                Target::ModRevision(revision) => {
                    EtcdCompare::mod_revision(key, CompareOp::Equal, revision)
                }
            }
        })
        .collect();
    let writes: Vec<TxnOp> = txn
        .writes
        .iter()
        .map(|write| match write {
            Write::Put { key, value, lease } => TxnOp::put(
                key.as_str(),
                value.clone(),
                lease.map(|lease| PutOptions::new().with_lease(lease.0)),
            ),
            Write::Delete(key) => TxnOp::delete(key.as_str(), None),
            Write::DeletePrefix(prefix) => {
                TxnOp::delete(prefix.as_str(), Some(DeleteOptions::new().with_prefix()))
            }
        })
        .collect();
    let looks: Vec<TxnOp> = compared_keys(txn)
        .into_iter()
        .map(|key| TxnOp::get(key.as_str(), Some(GetOptions::new().with_keys_only())))
        .collect();
    EtcdTxn::new()
        .when(compares)
        .and_then(writes)
        .or_else(looks)
}
