//! Leadership on a real etcd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use podherd::clock::{Entropy, SystemClock};
use podherd::controller::Campaign;
use podherd::state::Leader;
use podherd::store::{Authority, EtcdOptions, EtcdStore, authority};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Etcd, Net, Sandbox};

const TTL: Duration = Duration::from_secs(6);

struct Candidate {
    authority: Authority,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidate {
    async fn stand(etcd: &Etcd, holder: &str) -> Self {
        let options = EtcdOptions::new(vec![etcd.url()], "/podherd");
        let (keeper, authority) = authority();
        let cancel = CancellationToken::new();
        let campaign = Campaign {
            store: Arc::new(EtcdStore::connect(&options).await.unwrap()),
            key: "/podherd/leader/controller".to_owned(),
            me: Leader {
                node: "host-a".parse().unwrap(),
                holder: holder.to_owned(),
                process: None,
                since: Timestamp::UNIX_EPOCH,
            },
            ttl: TTL,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(Entropy::from_system()),
        };
        Self {
            task: tokio::spawn(campaign.run(keeper, cancel.clone())),
            authority,
            cancel,
        }
    }

    async fn leads_within(&self, limit: Duration) {
        let begin = Instant::now();
        while !self.authority.holds() {
            assert!(begin.elapsed() < limit, "it didn't lead within {limit:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_passes_on_in_order_after_a_death_and_survives_a_restart_of_etcd() {
    let sandbox = Sandbox::new(Net::Host);
    let mut etcd = Etcd::start(&sandbox, "etcd");
    let first = Candidate::stand(&etcd, "first").await;
    first.leads_within(Duration::from_secs(2)).await;
    let second = Candidate::stand(&etcd, "second").await;
    tokio::time::sleep(TTL * 2).await;
    assert!(first.authority.holds() && !second.authority.holds());

    first.cancel.cancel();
    second.leads_within(Duration::from_secs(2)).await;
    first.task.await.unwrap();

    let term = second.authority.permit(Duration::ZERO).unwrap();
    etcd.stop();
    etcd.start_again(&sandbox);
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(second.authority.permit(Duration::ZERO).unwrap(), term);

    // Silent for longer than the term: nobody leads, and then the same goes on
    // or another follows; etcd decides, and never do two.
    let third = Candidate::stand(&etcd, "third").await;
    etcd.pause();
    tokio::time::sleep(TTL + Duration::from_secs(1)).await;
    assert!(!second.authority.holds() && !third.authority.holds());
    etcd.resume();
    let begin = Instant::now();
    while !second.authority.holds() && !third.authority.holds() {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "nobody leads any more"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(second.authority.holds() != third.authority.holds());

    let (leader, other) = if second.authority.holds() {
        (second, third)
    } else {
        (third, second)
    };
    leader.task.abort();
    let begin = Instant::now();
    other.leads_within(TTL * 3).await;
    assert!(begin.elapsed() > TTL / 2, "not before the term was over");
    other.cancel.cancel();
    other.task.await.unwrap();
    assert_eq!(etcd.get(&sandbox, "/podherd/leader/controller"), None);
}
