//! What every store must do, whichever it is. The in-memory one and etcd both
//! run all of it, so that a test on the former says something about the latter.
//!
//! Each check uses a prefix of its own and expects nobody else to write there.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use podherd::store::{
    Change, Commit, Entry, Fence, LeaseId, Range, Store, StoreError, Target, Txn, View, Watch,
    WatchEvent, limit,
};

/// The shortest lease that etcd grants with its default timing.
const SHORT: Duration = Duration::from_secs(2);

/// Runs every check.
pub async fn holds(store: Arc<dyn Store>) {
    let store = &*store;
    creates_only_if_absent(store).await;
    compares_revisions_and_names_what_failed(store).await;
    writes_all_or_nothing(store).await;
    reads_many_ranges_at_one_revision(store).await;
    reads_more_than_a_page(store).await;
    keeps_every_byte(store).await;
    deletes_by_key_and_by_prefix(store).await;
    makes_no_revision_when_nothing_changes(store).await;
    refuses_what_is_too_large(store).await;
    watches_every_change_in_order(store).await;
    replays_from_an_old_revision(store).await;
    tells_that_a_quiet_watch_lives(store).await;
    ends_leases_with_their_keys(store).await;
    knows_a_dead_lease(store).await;
    detaches_a_key_that_is_put_without_its_lease(store).await;
    fences_off_an_ended_term(store).await;
}

/// A watch from before `compacted` must say so; for stores that can be compacted.
pub async fn tells_what_was_compacted(store: &dyn Store, from: i64, compacted: i64) {
    let mut watch = store.watch("/compacted/", from).await.unwrap();
    match next(&mut watch).await {
        Some(Err(StoreError::Compacted { compacted: found })) => assert_eq!(found, compacted),
        other => panic!("not told of the compaction: {other:?}"),
    }
    assert!(next(&mut watch).await.is_none(), "an ended watch goes on");
}

async fn creates_only_if_absent(store: &dyn Store) {
    let create = || {
        Txn::default()
            .when("/create/a", Target::Absent)
            .put("/create/a", b"1".to_vec())
    };
    let created = applied(store.commit(create()).await);
    assert_eq!(refused(store.commit(create()).await), ["/create/a"]);
    let entry = one(store, "/create/a").await.unwrap();
    assert_eq!(
        (entry.create_revision, entry.mod_revision),
        (created, created)
    );
}

async fn compares_revisions_and_names_what_failed(store: &dyn Store) {
    let first = put(store, "/compare/a", b"1").await;
    let other = put(store, "/compare/b", b"1").await;
    let second = put(store, "/compare/a", b"2").await;
    let a = |target| Txn::default().when("/compare/a", target);
    for holds in [Target::CreateRevision(first), Target::ModRevision(second)] {
        applied(store.commit(a(holds)).await);
    }
    for fails in [
        Target::Absent,
        Target::CreateRevision(second),
        Target::ModRevision(first),
    ] {
        assert_eq!(refused(store.commit(a(fails)).await), ["/compare/a"]);
    }
    let txn = a(Target::ModRevision(first))
        .when("/compare/b", Target::ModRevision(other))
        .when("/compare/c", Target::ModRevision(first))
        .when("/compare/a", Target::CreateRevision(first));
    assert_eq!(
        refused(store.commit(txn).await),
        ["/compare/a", "/compare/c"]
    );
}

async fn writes_all_or_nothing(store: &dyn Store) {
    put(store, "/all/old", b"1").await;
    let writes = |txn: Txn| {
        txn.put("/all/one", b"1".to_vec())
            .put("/all/two", b"2".to_vec())
            .delete("/all/old")
    };
    let stale = writes(Txn::default().when("/all/old", Target::Absent));
    assert_eq!(refused(store.commit(stale).await), ["/all/old"]);
    assert_eq!(keys(store, "/all/").await, ["/all/old"]);

    let revision = applied(store.commit(writes(Txn::default())).await);
    let view = list(store, "/all/").await;
    assert_eq!(view.revision, revision);
    let revisions: Vec<i64> = view.ranges[0]
        .iter()
        .map(|entry| entry.mod_revision)
        .collect();
    assert_eq!(revisions, [revision, revision]);
}

async fn reads_many_ranges_at_one_revision(store: &dyn Store) {
    put(store, "/many/a/1", b"1").await;
    put(store, "/many/b", b"2").await;
    let newest = put(store, "/many/a/2", b"3").await;
    let ranges = [
        Range::Prefix("/many/a/".to_owned()),
        Range::Key("/many/b".to_owned()),
        Range::Key("/many/a".to_owned()),
        Range::Key("/many/a/1".to_owned()),
    ];
    let view = store.read(&ranges).await.unwrap();
    let found: Vec<Vec<&str>> = view
        .ranges
        .iter()
        .map(|range| range.iter().map(|entry| entry.key.as_str()).collect())
        .collect();
    assert_eq!(
        found,
        [
            vec!["/many/a/1", "/many/a/2"],
            vec!["/many/b"],
            vec![],
            vec!["/many/a/1"]
        ]
    );
    assert_eq!(view.revision, newest);
    assert_eq!(store.read(&[]).await.unwrap().revision, newest);
    assert_eq!(store.identity().await.unwrap().1, newest);

    // More ranges than one transaction of etcd holds.
    let ranges: Vec<Range> = (0..300)
        .map(|n| Range::Key(format!("/many/none/{n}")))
        .collect();
    let view = store.read(&ranges).await.unwrap();
    assert_eq!(view.ranges.len(), 300);
}

async fn reads_more_than_a_page(store: &dyn Store) {
    let key = |n: usize| format!("/page/{n:04}");
    for chunk in (0..1000).collect::<Vec<_>>().chunks(100) {
        let txn = chunk
            .iter()
            .fold(Txn::default(), |txn, n| txn.put(key(*n), vec![b'x'; 64]));
        applied(store.commit(txn).await);
    }
    // The neighbour of the last key isn't below the prefix.
    put(store, "/page0", b"").await;
    let found = keys(store, "/page/").await;
    assert_eq!(found, (0..1000).map(key).collect::<Vec<_>>());
    applied(store.commit(Txn::default().delete_prefix("/page/")).await);
}

async fn keeps_every_byte(store: &dyn Store) {
    let value: Vec<u8> = (0..=255).collect();
    put(store, "/bytes/ü", &value).await;
    assert_eq!(one(store, "/bytes/ü").await.unwrap().value, value);
    put(store, "/bytes/empty", b"").await;
    assert_eq!(one(store, "/bytes/empty").await.unwrap().value, b"");
    // Larger than what a gRPC client accepts unless told otherwise.
    let large = vec![0xA5; 1024 * 1024];
    for n in 0..6 {
        put(store, &format!("/bytes/large/{n}"), &large).await;
    }
    let view = list(store, "/bytes/large/").await;
    assert!(view.ranges[0].iter().all(|entry| entry.value == large));
    assert_eq!(view.ranges[0].len(), 6);
    applied(store.commit(Txn::default().delete_prefix("/bytes/")).await);
}

async fn deletes_by_key_and_by_prefix(store: &dyn Store) {
    for key in ["/delete/a", "/delete/a/1", "/delete/a/2", "/delete/b"] {
        put(store, key, b"").await;
    }
    applied(store.commit(Txn::default().delete("/delete/a")).await);
    assert_eq!(
        keys(store, "/delete/").await,
        ["/delete/a/1", "/delete/a/2", "/delete/b"]
    );
    applied(
        store
            .commit(Txn::default().delete_prefix("/delete/a/"))
            .await,
    );
    assert_eq!(keys(store, "/delete/").await, ["/delete/b"]);
}

async fn makes_no_revision_when_nothing_changes(store: &dyn Store) {
    let before = put(store, "/nothing/a", b"").await;
    let txn = Txn::default()
        .delete("/nothing/b")
        .delete_prefix("/nothing/c/");
    assert_eq!(applied(store.commit(txn).await), before);
    assert_eq!(applied(store.commit(Txn::default()).await), before);
}

async fn refuses_what_is_too_large(store: &dyn Store) {
    let key = |n: usize| format!("/limit/{n}");
    let puts = |count| (0..count).fold(Txn::default(), |txn, n| txn.put(key(n), Vec::new()));
    applied(store.commit(puts(limit::OPERATIONS)).await);
    let compares = |count| {
        (0..count).fold(Txn::default(), |txn, n| {
            txn.when(key(n + 1000), Target::Absent)
        })
    };
    applied(store.commit(compares(limit::OPERATIONS)).await);
    let large = |bytes| Txn::default().put("/limit/large", vec![0; bytes]);
    let twice = Txn::default()
        .put("/limit/twice", Vec::new())
        .put("/limit/twice", Vec::new());
    let both = Txn::default()
        .put("/limit/both", Vec::new())
        .delete_prefix("/limit/");
    for txn in [
        puts(300),
        compares(300),
        large(limit::REQUEST_BYTES + 1),
        large(2 * limit::REQUEST_BYTES),
        large(8 * limit::REQUEST_BYTES),
        twice,
        both,
    ] {
        let count = (txn.compares.len(), txn.writes.len());
        match store.commit(txn).await {
            Err(StoreError::Refused { call: "commit", .. }) => {}
            other => panic!("{count:?} wasn't refused: {other:?}"),
        }
    }
    assert!(one(store, "/limit/large").await.is_none());
    // The connection is as good as before.
    put(store, "/limit/1", b"").await;
}

async fn watches_every_change_in_order(store: &dyn Store) {
    let start = list(store, "/watch/").await.revision + 1;
    let mut watch = store.watch("/watch/", start).await.unwrap();
    let first = put(store, "/watch/a", b"1").await;
    put(store, "/watched", b"not below the prefix").await;
    let txn = Txn::default()
        .put("/watch/b", b"2".to_vec())
        .delete("/watch/a");
    let second = applied(store.commit(txn).await);
    let third = put(store, "/watch/b", b"3").await;
    let put_b = |revision, value: &[u8]| {
        Change::Put(Entry {
            key: "/watch/b".to_owned(),
            value: value.to_vec(),
            create_revision: second,
            mod_revision: revision,
        })
    };
    let expected = [
        Change::Put(Entry {
            key: "/watch/a".to_owned(),
            value: b"1".to_vec(),
            create_revision: first,
            mod_revision: first,
        }),
        put_b(second, b"2"),
        Change::Delete {
            key: "/watch/a".to_owned(),
            mod_revision: second,
        },
        put_b(third, b"3"),
    ];
    assert_eq!(changes(&mut watch, 4).await, expected);
}

async fn replays_from_an_old_revision(store: &dyn Store) {
    let first = put(store, "/replay/a", b"1").await;
    let deleted = applied(store.commit(Txn::default().delete("/replay/a")).await);
    put(store, "/replay/a", b"2").await;
    let mut watch = store.watch("/replay/", first + 1).await.unwrap();
    let seen = changes(&mut watch, 2).await;
    let gone = Change::Delete {
        key: "/replay/a".to_owned(),
        mod_revision: deleted,
    };
    assert_eq!(seen[0], gone);
    assert!(matches!(&seen[1], Change::Put(entry) if entry.value == b"2"));
    put(store, "/replay/a", b"3").await;
    let live = changes(&mut watch, 1).await;
    assert!(matches!(&live[0], Change::Put(entry) if entry.value == b"3"));
}

async fn tells_that_a_quiet_watch_lives(store: &dyn Store) {
    let revision = put(store, "/quiet/a", b"").await;
    let mut watch = store.watch("/quiet/", revision + 1).await.unwrap();
    put(store, "/loud/a", b"").await;
    match next(&mut watch).await {
        Some(Ok(WatchEvent::Progress(at))) => assert!(at >= revision),
        other => panic!("no sign of life: {other:?}"),
    }
}

async fn ends_leases_with_their_keys(store: &dyn Store) {
    let start = list(store, "/lease/").await.revision + 1;
    let mut watch = store.watch("/lease/", start).await.unwrap();
    let ended = store.grant(SHORT).await.unwrap();
    let revoked = store.grant(Duration::from_secs(600)).await.unwrap();
    let kept = store.grant(Duration::from_secs(600)).await.unwrap();
    for (key, lease) in [
        ("/lease/a", ended),
        ("/lease/b", ended),
        ("/lease/c", revoked),
        ("/lease/d", kept),
    ] {
        applied(
            store
                .commit(Txn::default().put_leased(key, Vec::new(), lease))
                .await,
        );
    }
    store.revoke(revoked).await.unwrap();
    assert_eq!(
        keys(store, "/lease/").await,
        ["/lease/a", "/lease/b", "/lease/d"]
    );
    let seen = changes(&mut watch, 7).await;
    let deleted: Vec<(&str, i64)> = seen
        .iter()
        .filter_map(|change| match change {
            Change::Delete { key, mod_revision } => Some((key.as_str(), *mod_revision)),
            Change::Put(_) => None,
        })
        .collect();
    let [("/lease/c", _), ("/lease/a", at), ("/lease/b", also_at)] = deleted[..] else {
        panic!("{deleted:?}");
    };
    assert_eq!(at, also_at, "one lease ends in one revision");
    assert_eq!(keys(store, "/lease/").await, ["/lease/d"]);
    store.revoke(kept).await.unwrap();
}

async fn knows_a_dead_lease(store: &dyn Store) {
    let lease = store.grant(SHORT).await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(SHORT / 2).await;
        store.keep_alive(lease).await.unwrap();
    }
    store.revoke(lease).await.unwrap();
    for dead in [lease, LeaseId(1_234_567)] {
        let put =
            Txn::default()
                .put("/dead/other", Vec::new())
                .put_leased("/dead/a", Vec::new(), dead);
        for error in [
            store.keep_alive(dead).await.unwrap_err(),
            store.revoke(dead).await.unwrap_err(),
            store.commit(put).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::LeaseExpired), "{error:?}");
        }
    }
    assert!(keys(store, "/dead/").await.is_empty());
}

async fn detaches_a_key_that_is_put_without_its_lease(store: &dyn Store) {
    let lease = store.grant(Duration::from_secs(600)).await.unwrap();
    for key in ["/detach/a", "/detach/b"] {
        applied(
            store
                .commit(Txn::default().put_leased(key, Vec::new(), lease))
                .await,
        );
    }
    put(store, "/detach/a", b"mine").await;
    store.revoke(lease).await.unwrap();
    assert_eq!(keys(store, "/detach/").await, ["/detach/a"]);
}

async fn fences_off_an_ended_term(store: &dyn Store) {
    let key = "/fence/leader".to_owned();
    let term = |create_revision| Fence {
        key: key.clone(),
        create_revision,
    };
    let write = || Txn::default().put("/fence/state", Vec::new());
    let first = term(put(store, &key, b"first").await);
    applied(store.commit(first.guard(write())).await);
    // The same key again, even by the same holder, is another term.
    applied(store.commit(Txn::default().delete(&key)).await);
    assert_eq!(
        refused(store.commit(first.guard(write())).await),
        [key.as_str()]
    );
    let second = term(put(store, &key, b"first").await);
    assert_eq!(
        refused(store.commit(first.guard(write())).await),
        [key.as_str()]
    );
    applied(store.commit(second.guard(write())).await);
}

/// Puts a value and answers the revision.
pub async fn put(store: &dyn Store, key: &str, value: &[u8]) -> i64 {
    applied(store.commit(Txn::default().put(key, value.to_vec())).await)
}

/// The next event of a watch, which must come soon.
pub async fn next(watch: &mut Watch) -> Option<Result<WatchEvent, StoreError>> {
    let soon = Duration::from_secs(15);
    tokio::time::timeout(soon, watch.next())
        .await
        .expect("a watch said nothing at all")
}

/// The next changes, at least `count`; checks that revisions never go back.
pub async fn changes(watch: &mut Watch, count: usize) -> Vec<Change> {
    let mut seen = Vec::new();
    let mut delivered = 0;
    while seen.len() < count {
        match next(watch).await {
            Some(Ok(WatchEvent::Changes { revision, changes })) => {
                for change in &changes {
                    let at = match change {
                        Change::Put(entry) => entry.mod_revision,
                        Change::Delete { mod_revision, .. } => *mod_revision,
                    };
                    assert!(
                        at <= revision && at >= delivered,
                        "out of order: {changes:?}"
                    );
                }
                assert!(revision > delivered, "delivered twice: {changes:?}");
                delivered = revision;
                seen.extend(changes);
            }
            Some(Ok(WatchEvent::Progress(revision))) => {
                assert!(revision >= delivered);
            }
            other => panic!("the watch ended after {seen:?}: {other:?}"),
        }
    }
    seen
}

async fn list(store: &dyn Store, prefix: &str) -> View {
    store
        .read(&[Range::Prefix(prefix.to_owned())])
        .await
        .unwrap()
}

async fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut view = list(store, prefix).await;
    view.ranges
        .remove(0)
        .into_iter()
        .map(|entry| entry.key)
        .collect()
}

async fn one(store: &dyn Store, key: &str) -> Option<Entry> {
    let mut view = store.read(&[Range::Key(key.to_owned())]).await.unwrap();
    view.ranges.remove(0).pop()
}

#[track_caller]
fn applied(commit: Result<Commit, StoreError>) -> i64 {
    match commit {
        Ok(Commit::Applied(revision)) => revision,
        other => panic!("not applied: {other:?}"),
    }
}

#[track_caller]
fn refused(commit: Result<Commit, StoreError>) -> Vec<String> {
    match commit {
        Ok(Commit::Refused(keys)) => keys,
        other => panic!("not refused: {other:?}"),
    }
}
