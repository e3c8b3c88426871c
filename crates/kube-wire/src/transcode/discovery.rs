//! Discovery of all groups in one document (KEP-3352), from the form of it that is a fifth as long on the link.

use super::{MetaMessage, TranscodeError, meta_to_json};
use crate::protobuf::open_envelope;

/// What an API server answers as JSON to who asks for discovery of all groups, byte for byte, from its answer to who asks for
/// protobuf. An answer that is no such document, or of a newer server, is an error: then JSON is to be asked for.
pub fn discovery_to_json(answer: &[u8]) -> Result<Vec<u8>, TranscodeError> {
    let envelope = open_envelope(answer).map_err(|_| TranscodeError::Malformed("it has no envelope"))?;
    if (envelope.api_version, envelope.kind) != ("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList") {
        return Err(TranscodeError::Malformed("it is no discovery of all groups"));
    }
    let mut json = meta_to_json(MetaMessage::ApiGroupDiscoveryList, &answer[envelope.raw], true)?;
    // As Go's encoder ends every document.
    json.push(b'\n');
    Ok(json)
}
