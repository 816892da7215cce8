//! What a ready process must reach.

use std::sync::Arc;

use async_trait::async_trait;

use super::health::Check;
use crate::runtime::Runtime;
use crate::store::Store;

/// etcd answers.
#[derive(Debug)]
pub struct EtcdCheck(pub Arc<dyn Store>);

/// Podman answers.
#[derive(Debug)]
pub struct PodmanCheck(pub Arc<dyn Runtime>);

#[async_trait]
impl Check for EtcdCheck {
    fn name(&self) -> &'static str {
        "etcd"
    }

    async fn check(&self) -> Result<String, String> {
        match self.0.identity().await {
            Ok(_) => Ok("answers".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[async_trait]
impl Check for PodmanCheck {
    fn name(&self) -> &'static str {
        "podman"
    }

    async fn check(&self) -> Result<String, String> {
        match self.0.ping().await {
            Ok(()) => Ok("answers".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
