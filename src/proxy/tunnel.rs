//! An upgraded connection: bytes both ways until one side ends.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

/// Copies until both ends have closed or `hard_stop`. `busy` is what the
/// connection keeps counted in, dropped at its end.
pub(super) async fn run<T: Send>(
    on_client: OnUpgrade,
    on_backend: OnUpgrade,
    hard_stop: CancellationToken,
    busy: T,
) {
    let copy = async {
        let (client, backend) = match tokio::try_join!(on_client, on_backend) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "an upgrade didn't happen");
                return;
            }
        };
        let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
        // Either end may break off at any time; nobody is left to be told.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
    };
    tokio::select! {
        () = copy => {}
        () = hard_stop.cancelled() => {}
    }
    drop(busy);
}
