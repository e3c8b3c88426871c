//! The body of a request.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube_wire::status::Status;

use crate::field_error::failure;

/// Reads it whole; status 413 if it is longer than `limit`, and 400 if it breaks off.
pub async fn whole(body: Body, limit: usize) -> Result<Bytes, Status> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let words = format!("Request entity too large: limit is {limit}");
            Err(failure(413, "RequestEntityTooLarge", words, None))
        }
        Err(error) => Err(Status::bad_request(format!("cannot read the body: {error}"))),
    }
}
