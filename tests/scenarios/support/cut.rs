//! Ends a run at a chosen effect: an effect of the runtime, a change of the
//! graph, or a write to the store.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// Where exactly the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The effect doesn't happen.
    Before,
    /// The effect happens, and nothing after it.
    After,
    /// The effect happens, its reply is lost, and the run goes on.
    LosesReply,
    /// The effect doesn't happen, the call fails, and the run goes on.
    Fails,
}

#[derive(Debug, Default)]
struct State {
    passed: usize,
    at: Option<(usize, Cut)>,
    hit: bool,
}

/// Every effect passes here.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    closed: Arc<Notify>,
}

impl Gate {
    /// Cuts at the effect of this number, counted from 0 and from now.
    pub fn cut_at(&self, number: usize, cut: Cut) {
        *self.state.lock().unwrap() = State {
            at: Some((number, cut)),
            ..State::default()
        };
    }

    /// Lets everything pass; says whether the cut was reached.
    pub fn open(&self) -> bool {
        std::mem::take(&mut *self.state.lock().unwrap()).hit
    }

    /// Returns when the run is cut.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    fn next(&self) -> Option<Cut> {
        let mut state = self.state.lock().unwrap();
        let number = state.passed;
        state.passed += 1;
        let cut = state.at.filter(|(at, _)| *at == number).map(|(_, cut)| cut);
        state.hit |= cut.is_some();
        cut
    }

    /// Performs the effect, or what the cut leaves of it.
    pub async fn pass<T, E>(
        &self,
        effect: impl Future<Output = Result<T, E>>,
        lost: impl FnOnce() -> E,
    ) -> Result<T, E> {
        match self.next() {
            None => effect.await,
            Some(Cut::Before) => self.end().await,
            Some(Cut::After) => {
                let _ = effect.await;
                self.end().await
            }
            Some(Cut::Fails) => Err(lost()),
            Some(Cut::LosesReply) => {
                let _ = effect.await;
                Err(lost())
            }
        }
    }

    async fn end<T>(&self) -> T {
        self.closed.notify_one();
        std::future::pending().await
    }
}
