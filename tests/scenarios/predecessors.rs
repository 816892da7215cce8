//! A predecessor that an overlapping update left running, when its app is removed.

use podherd::runtime::Call;

use crate::failing::refuses;
use crate::support::{Manifest, World, blog};

fn overlapping(image: &str) -> Manifest {
    let overlap = blog(image).with("web", "update: {strategy: overlap}");
    overlap.with("web", "stopGrace: 7s")
}

#[tokio::test(start_paused = true)]
async fn a_removal_takes_it_along_and_does_not_end_before_it_is_gone() {
    for asked in [false, true] {
        let world = World::new().await.images(&["web:1", "web:2"]);
        world.deploy(&overlapping("web:1")).await;
        let old = world.serving("blog", "web").container;
        world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
        world.put(&overlapping("web:2")).await;
        world.pass("blog").await.unwrap();
        let markers = world.inhibitions("blog");
        assert_eq!(markers.len(), 1);
        assert_eq!(
            (&markers[0].container, markers[0].stop_grace_ms),
            (&old, 7000)
        );

        // Nothing else is left to be removed.
        let new = world.serving("blog", "web").container;
        world.runtime.remove_by_hand(new.as_str());
        if asked {
            world.request("blog", "r-1", "verb: remove").await;
        } else {
            world.delete("blog").await;
        }
        for _ in 0..3 {
            let _ = world.pass("blog").await;
        }
        let kept = world.inhibitions("blog");
        assert!(kept.iter().any(|it| it.container == old), "{kept:?}");
        assert!(world.ownership("blog").is_some(), "the app isn't gone");
        world.runtime.clear_faults();
        world.settle("blog").await;
        world.assert_gone("blog");
        assert_eq!(world.keys_with("/apps/"), Vec::<String>::new());
    }
}
