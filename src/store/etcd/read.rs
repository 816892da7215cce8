//! Several ranges at one revision, page by page.
//!
//! The first page fixes the revision and is linearizable; all the others read
//! at that revision.

use std::collections::VecDeque;

use etcd_client::{GetOptions, KeyValue, Txn as EtcdTxn, TxnOp, TxnOpResponse};

use super::super::{Entry, Range, Store, StoreError, View, deadline, limit};
use super::{EtcdStore, Repeat, error};

/// Keys of one range in one page. Records are small; what bounds the page is
/// that a value can't be larger than a request.
const PAGE: i64 = 256;
/// How often a read begins anew because its revision was compacted meanwhile.
const PASSES: u32 = 3;

/// What is still to be read of one range.
#[derive(Debug)]
struct Rest {
    /// Which range.
    slot: usize,
    start: Vec<u8>,
    /// Where it ends; empty for a single key.
    end: Vec<u8>,
}

/// Reads all the ranges.
pub(super) async fn at_one_revision(
    store: &EtcdStore,
    ranges: &[Range],
) -> Result<View, StoreError> {
    if ranges.is_empty() {
        let (_, revision) = store.identity().await?;
        return Ok(View {
            revision,
            ranges: Vec::new(),
        });
    }
    for _ in 0..PASSES {
        if let Some(view) = pass(store, ranges).await? {
            return Ok(view);
        }
    }
    Err(error::unavailable(
        "read",
        "the revision was compacted while it was read, again and again",
    ))
}

/// One pass; `None` when its revision was compacted meanwhile.
async fn pass(store: &EtcdStore, ranges: &[Range]) -> Result<Option<View>, StoreError> {
    let mut rests: VecDeque<Rest> = ranges.iter().enumerate().map(begin).collect();
    let mut view = View {
        revision: 0,
        ranges: vec![Vec::new(); ranges.len()],
    };
    while !rests.is_empty() {
        let batch: Vec<Rest> = rests.drain(..rests.len().min(limit::OPERATIONS)).collect();
        let request = EtcdTxn::new().and_then(get_all(&batch, view.revision));
        let answer = store
            .call("read", deadline::READ, Repeat::Freely, || {
                let (mut kv, request) = (store.kv.clone(), request.clone());
                async move {
                    match kv.txn(request).await {
                        Err(error) if error::is_compacted(&error) => Ok(None),
                        answer => answer.map(Some),
                    }
                }
            })
            .await?;
        let Some(answer) = answer else {
            return Ok(None);
        };
        if view.revision == 0 {
            view.revision = answer
                .header()
                .ok_or_else(|| super::no_header("read"))?
                .revision();
        }
        for (mut rest, response) in batch.into_iter().zip(answer.op_responses()) {
            let TxnOpResponse::Get(mut page) = response else {
                continue;
            };
            let more = page.more();
            let keys = page.take_kvs();
            if let (true, Some(last)) = (more, keys.last()) {
                rest.start = [last.key(), b"\0"].concat();
                let slot = rest.slot;
                rests.push_back(rest);
                view.ranges[slot].extend(keys.into_iter().map(entry));
            } else {
                view.ranges[rest.slot].extend(keys.into_iter().map(entry));
            }
        }
    }
    Ok(Some(view))
}

fn begin((slot, range): (usize, &Range)) -> Rest {
    let (start, end) = match range {
        Range::Key(key) => (key.clone().into_bytes(), Vec::new()),
        // In etcd the range from NUL to NUL is everything.
        Range::Prefix(prefix) if prefix.is_empty() => (vec![0], vec![0]),
        Range::Prefix(prefix) => {
            let start = prefix.clone().into_bytes();
            let mut end = start.clone();
            // No byte of UTF-8 is 0xFF, so the last one can be raised.
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            (start, end)
        }
    };
    Rest { slot, start, end }
}

fn get_all(batch: &[Rest], revision: i64) -> Vec<TxnOp> {
    batch
        .iter()
        .map(|rest| {
            let mut options = GetOptions::new().with_limit(PAGE).with_revision(revision);
            if !rest.end.is_empty() {
                options = options.with_range(rest.end.clone());
            }
            TxnOp::get(rest.start.clone(), Some(options))
        })
        .collect()
}

/// An entry as etcd sent it. A key that isn't UTF-8 keeps its place with
/// replacement characters in it, so that it is refused by name, not overlooked.
pub(super) fn entry(found: KeyValue) -> Entry {
    let (create_revision, mod_revision) = (found.create_revision(), found.mod_revision());
    let (key, value) = found.into_key_value();
    Entry {
        key: String::from_utf8(key)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        value,
        create_revision,
        mod_revision,
    }
}
