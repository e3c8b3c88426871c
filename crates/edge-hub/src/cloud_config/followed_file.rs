//! The file of `--config` while the hub runs.

use std::{path::PathBuf, time::Duration};

use tokio::time::sleep;

use super::{Layer, beside, in_vain, places::Place, read};
use crate::{run::Sharing, tunnel_roles::DestinationRule};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The key that says what is shared.
const POOL_SCOPE_RESOURCES: &str = "poolScopeResources";

/// The file, if there is one.
pub(super) struct FollowedFile {
    path: PathBuf,
    /// What of it is in force.
    pub(super) layer: Layer,
    /// What it said of the tunnel when the hub began, which is when that is read.
    tunnel: (bool, Vec<DestinationRule>),
    /// What is wrong with it now, if it cannot be read.
    error: Option<String>,
    /// `None`: there is no file.
    place: Option<Place>,
}

impl FollowedFile {
    /// The file as it was read at the start.
    pub(super) fn new(file: Option<(PathBuf, Layer)>) -> Self {
        let place = file.as_ref().map(|(path, _)| Place::unread(path.display().to_string()));
        let (path, layer) = file.unwrap_or_default();
        let tunnel = tunnel(&layer);
        Self { path, layer, tunnel, error: None, place }
    }

    fn tell(&mut self, sharing: &Sharing) {
        let Some(place) = &mut self.place else { return };
        if let Some(error) = &self.error {
            return place.says_nothing(vec![format!("the configuration stays as it was: {error}")]);
        }
        let mut problems = self.layer.problems.clone();
        let pooled = self.layer.pooled.iter();
        problems.extend(pooled.flat_map(|pooled| in_vain(pooled, sharing, POOL_SCOPE_RESOURCES)));
        if self.tunnel != tunnel(&self.layer) {
            let problem = "tunnel and tunnelDestinations are read when the hub starts: restart it for what has changed of them";
            problems.push(problem.to_owned());
        }
        place.says(None, problems);
    }

    /// The file as it is shown where a ConfigMap, if one is named, says what is shared, and with all others this follows from it.
    pub(super) fn shown(&mut self, said_by: Option<&str>, sharing: &Sharing) -> Option<Place> {
        self.tell(sharing);
        let pooled = self.layer.pooled.as_ref();
        let more = pooled.and_then(|of| beside(of, sharing, POOL_SCOPE_RESOURCES, said_by, "the file"));
        self.place.as_ref().map(|place| place.with(more))
    }

    /// Returns when the file says something else, or something else is wrong with it. One that is wrong changes nothing that is in force.
    pub(super) async fn changed(&mut self) {
        while self.place.is_some() {
            sleep(LOOK).await;
            let path = self.path.clone();
            let Ok(said) = tokio::task::spawn_blocking(move || read(&path)).await else { break };
            match said {
                Ok(layer) if layer == self.layer && self.error.is_none() => continue,
                Ok(layer) => (self.layer, self.error) = (layer, None),
                Err(error) => {
                    let error = Some(error.to_string());
                    if error == self.error {
                        continue;
                    }
                    self.error = error;
                }
            }
            return;
        }
        std::future::pending::<()>().await;
    }
}

fn tunnel(layer: &Layer) -> (bool, Vec<DestinationRule>) {
    (layer.tunnel, layer.tunnel_destinations.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_leaves_out_is_told_while_the_file_says_what_is_shared() {
        let nodes = super::super::resource("/v1/nodes").unwrap();
        let layer = Layer { pooled: Some([nodes].into()), ..Layer::default() };
        let sharing = Sharing::resolve(&Layer::default(), &layer, &Layer::default());
        let mut file = FollowedFile::new(Some(("f".into(), layer)));
        for (said_by, expected) in [
            (
                None,
                "not shared: /v1/services, discovery.k8s.io/v1/endpointslices: the list replaces the default",
            ),
            (Some("leader-hub-a"), "leader-hub-a says what is shared, and counts before the file"),
        ] {
            let problems = file.shown(said_by, &sharing).unwrap().problems;
            assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
        }
    }
}
