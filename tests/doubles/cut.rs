//! The gate: every effect of the runtime, every change of the graph and every write to
//! the store passes it, and here it is decided what becomes of it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

/// What becomes of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// The run ends; the effect doesn't happen.
    Before,
    /// The effect happens, and nothing after it.
    After,
    /// The effect happens, its reply is lost, and the run goes on.
    LosesReply,
    /// The effect doesn't happen, the connection breaks, and the run goes on.
    Breaks,
    /// It is refused, and the run goes on.
    Refused,
    /// Nothing happens until the deadline.
    Hangs,
    /// The effect happens, and no reply comes until the deadline.
    HangsAfter,
}

/// Why a call that was cut failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The connection.
    Connection,
    /// It was refused.
    Refused,
    /// The deadline, after this time.
    Deadline(Duration),
}

/// One effect that is about to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The call.
    pub call: &'static str,
    /// The app that it is about, where that can be told.
    pub app: Option<String>,
    /// The verb and the step for which it is done, as `deploy/create`.
    pub step: Option<String>,
    /// How long the call may take.
    pub deadline: Duration,
}

/// Decides what becomes of each effect.
pub trait Script: Send + Sync + fmt::Debug {
    /// What becomes of this one, and how long it takes before.
    fn decide(&self, site: &Site) -> (Option<Cut>, Duration);
}

#[derive(Debug, Default)]
struct State {
    passed: usize,
    at: Option<(usize, Cut)>,
    hit: bool,
    dead: bool,
    script: Option<Arc<dyn Script>>,
}

/// Every effect passes here.
#[derive(Debug, Clone)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    closed: Arc<Notify>,
    passes: watch::Sender<usize>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            closed: Arc::default(),
            passes: watch::Sender::new(0),
        }
    }
}

impl Gate {
    /// A gate that asks a script.
    pub fn scripted(script: Arc<dyn Script>) -> Self {
        let gate = Self::default();
        gate.state.lock().unwrap().script = Some(script);
        gate
    }

    /// Cuts at the effect of this number, counted from 0 and from now.
    pub fn cut_at(&self, number: usize, cut: Cut) {
        let mut state = self.state.lock().unwrap();
        *state = State {
            at: Some((number, cut)),
            script: state.script.take(),
            ..State::default()
        };
    }

    /// Lets everything pass; says whether the cut was reached.
    pub fn open(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        let script = state.script.take();
        std::mem::replace(
            &mut *state,
            State {
                script,
                ..State::default()
            },
        )
        .hit
    }

    /// Returns when the run is cut.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Ends the run here, whatever it does: nothing passes any more.
    pub fn close(&self) {
        self.state.lock().unwrap().dead = true;
        self.closed.notify_one();
    }

    fn next(&self, site: &Site) -> (Option<Cut>, Duration) {
        let (script, cut) = {
            let mut state = self.state.lock().unwrap();
            let number = state.passed;
            state.passed += 1;
            let cut = state.at.filter(|(at, _)| *at == number).map(|(_, cut)| cut);
            state.hit |= cut.is_some();
            (state.script.clone(), cut)
        };
        self.passes.send_modify(|passed| *passed += 1);
        match script {
            Some(script) => script.decide(site),
            None => (cut, Duration::ZERO),
        }
    }

    /// Returns at once while the run goes on, and never when it has ended.
    pub async fn alive(&self) {
        if self.state.lock().unwrap().dead {
            std::future::pending::<()>().await;
        }
    }

    /// Performs the effect, or what the cut leaves of it.
    pub async fn pass<T, E>(
        &self,
        site: Site,
        effect: impl Future<Output = Result<T, E>>,
        broken: impl FnOnce(Broken) -> E,
    ) -> Result<T, E> {
        self.alive().await;
        let (cut, takes) = self.next(&site);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
            self.alive().await;
        }
        match cut {
            None => {
                let done = effect.await;
                self.alive().await;
                done
            }
            Some(Cut::Before) => self.end().await,
            Some(Cut::After) => {
                let _ = effect.await;
                self.end().await
            }
            Some(Cut::LosesReply) => {
                let _ = effect.await;
                Err(broken(Broken::Connection))
            }
            Some(Cut::Breaks) => Err(broken(Broken::Connection)),
            Some(Cut::Refused) => Err(broken(Broken::Refused)),
            Some(cut @ (Cut::Hangs | Cut::HangsAfter)) => {
                if cut == Cut::HangsAfter {
                    let _ = effect.await;
                }
                tokio::time::sleep(site.deadline).await;
                self.alive().await;
                Err(broken(Broken::Deadline(site.deadline)))
            }
        }
    }

    async fn end<T>(&self) -> T {
        self.close();
        std::future::pending().await
    }
}
