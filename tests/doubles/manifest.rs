//! Manifests in a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A manifest that is being written.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub name: String,
    labels: Vec<String>,
    top: Vec<String>,
    services: BTreeMap<String, Vec<String>>,
}

/// The full reference of a short image name.
pub fn reference(image: &str) -> String {
    format!("registry.test/{image}")
}

/// An app without services.
pub fn app(name: &str) -> Manifest {
    Manifest {
        name: name.to_owned(),
        labels: Vec::new(),
        top: Vec::new(),
        services: BTreeMap::new(),
    }
}

/// The app `blog` with the service `web`, routed at `blog.test`.
pub fn blog(image: &str) -> Manifest {
    app("blog").web(image)
}

impl Manifest {
    /// The service `web`, routed at a host of the app's name.
    pub fn web(self, image: &str) -> Self {
        let route = format!("http: [{{host: {}.test, path: /, port: http}}]", self.name);
        self.service("web", image).with("web", &route)
    }

    /// A service with a port and a readiness check on it, and no route.
    pub fn service(mut self, name: &str, image: &str) -> Self {
        let lines = [
            format!("image: {}", reference(image)),
            "ports: [{name: http, container: 8080}]".to_owned(),
            "readiness: {http: {path: /healthz, port: http}, timeout: 30s}".to_owned(),
        ];
        self.services.insert(name.to_owned(), lines.to_vec());
        self
    }

    /// One more field of a service; replaces what has the same key.
    pub fn with(mut self, service: &str, field: &str) -> Self {
        let key = |line: &str| line.split(':').next().map(str::to_owned);
        let lines = self.services.get_mut(service).unwrap();
        lines.retain(|line| key(line) != key(field));
        lines.push(field.to_owned());
        self
    }

    /// A writable volume of the service.
    pub fn volume(self, service: &str, name: &str) -> Self {
        self.with(
            service,
            &format!("volumes: [{{name: {name}, path: /{name}}}]"),
        )
    }

    /// A field of the app's spec.
    pub fn spec(mut self, field: &str) -> Self {
        self.top.push(field.to_owned());
        self
    }

    /// A label of the app.
    pub fn label(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self
    }

    pub fn yaml(&self) -> String {
        let mut text = format!(
            "apiVersion: podherd/v1\nkind: App\nmetadata:\n  name: {}\n  labels: {{{}}}\nspec:\n",
            self.name,
            self.labels.join(", ")
        );
        for line in &self.top {
            writeln!(text, "  {line}").unwrap();
        }
        writeln!(text, "  services:").unwrap();
        for (name, lines) in &self.services {
            writeln!(text, "    {name}:").unwrap();
            for line in lines {
                writeln!(text, "      {line}").unwrap();
            }
        }
        text
    }
}
