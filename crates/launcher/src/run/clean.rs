//! All that was made, taken away again: in the opposite order, past every error.

use tracing::info;

use super::Executor;
use crate::supervise::Input;

impl Executor {
    pub(super) async fn clean_up(&self) {
        let vnics = std::mem::take(&mut self.made.lock().await.vnics);
        let (count, mut problems) = (vnics.len(), Vec::new());
        for made in vnics.into_iter().rev() {
            self.remove_vnic(made, &mut problems).await;
        }
        info!(vnics = count, ?problems, "cleaned up");
        self.say(Input::Cleaned { problems });
    }
}
