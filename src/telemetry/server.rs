//! The listener for `/metrics`, `/healthz` and `/readyz`.

use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::{Health, Report};
use super::metrics::Metrics;

#[derive(Debug, Clone)]
struct Shown {
    metrics: Metrics,
    health: Health,
}

/// Answers on this listener until `stop`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    health: Health,
    stop: CancellationToken,
) -> io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(show_alive))
        .route("/readyz", get(show_ready))
        .with_state(Shown { metrics, health });
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

async fn show_metrics(State(shown): State<Shown>) -> Response {
    match shown.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn show_alive(State(shown): State<Shown>) -> Response {
    answer(shown.health.alive())
}

async fn show_ready(State(shown): State<Shown>) -> Response {
    answer(shown.health.ready().await)
}

fn answer(report: Report) -> Response {
    let code = if report.well {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut text = if report.well { "ok\n" } else { "not ok\n" }.to_owned();
    for line in report.lines {
        text.push_str(&line);
        text.push('\n');
    }
    (code, text).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(path: &str, health: Health) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(
            listener,
            Metrics::new().unwrap(),
            health,
            stop.clone(),
        ));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        stop.cancel();
        server.await.unwrap().unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_are_served_as_text() {
        let answer = get("/metrics", Health::default()).await;

        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("podherd_leader 0"), "{answer}");
        assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    }

    #[tokio::test]
    async fn a_process_without_stuck_loops_is_alive() {
        assert!(
            get("/healthz", Health::default())
                .await
                .starts_with("HTTP/1.1 200")
        );
    }

    #[tokio::test]
    async fn a_stuck_loop_makes_it_unhealthy() {
        let health = Health::default();
        let _pulse = health.pulse("queue", std::time::Duration::ZERO);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;

        let answer = get("/healthz", health).await;

        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("queue: no sign of life"), "{answer}");
    }
}
