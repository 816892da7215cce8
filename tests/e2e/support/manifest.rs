//! The texts that tests apply.

use super::images::Image;

/// An app with one web service, routed at `APP.test`.
pub fn manifest(app: &str, image: Image) -> String {
    with(app, image.reference(), "")
}

/// The same with a volume at /data.
pub fn with_volume(app: &str, image: Image) -> String {
    with(
        app,
        image.reference(),
        "volumes: [{name: data, path: /data}]",
    )
}

/// The same with any image and one more line for the service.
pub fn with(app: &str, image: &str, line: &str) -> String {
    format!(
        "\
apiVersion: podherd/v1
kind: App
metadata:
  name: {app}
spec:
  services:
    web:
      image: {image}
      pullPolicy: Never
      ports: [{{name: http, container: 8080}}]
      http: [{{host: {app}.test, port: http}}]
      readiness: {{http: {{path: /healthz, port: http}}, timeout: 10s, interval: 100ms}}
      stopGrace: 2s
      {line}
"
    )
}
