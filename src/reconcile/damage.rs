//! Tells people about a record that can't be read: nothing of its app is decided then.

use crate::manifest::AppName;
use crate::state::{Condition, ConditionType, Status, Truth};
use crate::store::{Changes, RecordsError};
use crate::traffic::TrafficError;

use super::Reconciler;
use super::error::ReconcileError;

const REASON: &str = "RecordDamaged";

impl Reconciler {
    /// Says in the status that the app can't be looked after, if that is why.
    pub(super) async fn tell_damage(&self, app: &AppName, error: &ReconcileError) {
        if is_damage(error)
            && let Err(unsaid) = self.write_damage(app, &error.to_string()).await
        {
            tracing::warn!(app = %app, error = %unsaid, "the status can't be written");
        }
    }

    async fn write_damage(&self, app: &AppName, message: &str) -> Result<(), ReconcileError> {
        let kept = self.ctx.records.status(app).await?;
        let known = kept.as_ref().map(|kept| kept.mod_revision);
        let before = kept.map(|kept| kept.record).unwrap_or_default();
        let mut after = before.clone();
        for (r#type, status) in [
            (ConditionType::Progressing, Truth::False),
            (ConditionType::Ready, Truth::Unknown),
            (ConditionType::Degraded, Truth::True),
        ] {
            self.set(&mut after, r#type, status, message);
        }
        self.ctx.observer.status(app, Some(&after));
        if after == before {
            return Ok(());
        }
        let key = self.ctx.records.keys().status(app);
        let records = &self.ctx.records;
        records
            .commit(key, known, &after, Changes::default())
            .await?;
        Ok(())
    }

    fn set(&self, status: &mut Status, r#type: ConditionType, truth: Truth, message: &str) {
        let mut conditions = status.conditions.iter();
        let before = conditions.find(|it| it.r#type == r#type && it.status == truth);
        let since = before.map_or_else(|| self.ctx.clock.now(), |it| it.last_transition_time);
        status.conditions.retain(|it| it.r#type != r#type);
        status.conditions.push(Condition {
            r#type,
            status: truth,
            reason: REASON.to_owned(),
            message: message.to_owned(),
            last_transition_time: since,
        });
        status.conditions.sort_by_key(|it| it.r#type);
    }
}

fn is_damage(error: &ReconcileError) -> bool {
    matches!(
        error,
        ReconcileError::Records(RecordsError::Damaged { .. })
            | ReconcileError::Traffic(TrafficError::Record(_))
    )
}
