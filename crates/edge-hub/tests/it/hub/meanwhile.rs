//! What happens to a hub while something changes at the API server.

use super::site::Site;

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Meanwhile {
    Connected,
    Cut,
    Killed,
}

impl Meanwhile {
    pub(super) async fn begin(self, site: &mut Site) {
        match self {
            Self::Connected => {}
            Self::Cut => {
                site.server.cut();
                site.offline().await;
            }
            Self::Killed => site.kill(),
        }
    }

    pub(super) fn end(self, site: &mut Site) {
        match self {
            Self::Connected => {}
            Self::Cut => site.server.heal(),
            Self::Killed => site.start(),
        }
    }
}
