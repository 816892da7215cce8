//! Progress: on a terminal a line that moves, in a pipe plain lines.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::output::print;

/// Between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// Shows how far something is.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    said: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = (io::stdout().is_terminal() && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        let said = String::new();
        Self { bar, said }
    }

    /// What is done now; shown while it is, on a terminal only.
    pub(super) fn now(&mut self, text: &str) {
        if let Some(bar) = self.bar.as_ref().filter(|_| self.said != text) {
            bar.reset_elapsed();
            bar.set_message(text.to_owned());
            text.clone_into(&mut self.said);
        }
    }

    /// What is done for good.
    pub(super) fn line(&self, text: &str) -> anyhow::Result<()> {
        let said = || print(&format!("{text}\n"));
        match &self.bar {
            Some(bar) => bar.suspend(said),
            None => said(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
