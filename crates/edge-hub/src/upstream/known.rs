//! Whether an API server knows the certificate that the hub shows, as its answers say: of one that it does not know, of another authority or by a
//! clock that is wrong, it answers all requests 401, and closes the connection after that.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::StatusCode;

use super::connector::Showing;

/// What the answers of one server say.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Something that was asked with the certificate was answered 401.
    refused: AtomicBool,
    /// Something that was asked with it was answered anything else.
    taken: AtomicBool,
}

impl Known {
    /// What was asked with that was answered so. A caller's token that is refused says nothing of the certificate.
    pub(super) fn answered(&self, showing: Showing, status: StatusCode) {
        if showing == Showing::Nothing {
            return;
        }
        let said = if status == StatusCode::UNAUTHORIZED { &self.refused } else { &self.taken };
        // Nearly always so, and then nobody else's processor hears of it.
        if !said.load(Relaxed) {
            said.store(true, Relaxed);
        }
    }

    /// Whether all that was asked with the certificate was answered 401, and something was.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Relaxed) && !self.taken.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_of_401_to_the_certificate_and_no_other_say_that_it_is_not_known() {
        use Showing::{Certificate, Nothing};
        let cases: [(&[(Showing, u16)], bool); 7] = [
            (&[], false),
            (&[(Certificate, 401), (Certificate, 401)], true),
            (&[(Certificate, 401), (Certificate, 200)], false),
            (&[(Certificate, 403), (Certificate, 401)], false),
            (&[(Nothing, 401)], false),
            (&[(Certificate, 200), (Nothing, 401)], false),
            (&[(Nothing, 200), (Certificate, 401)], true),
        ];
        for (answers, expected) in cases {
            let known = Known::default();
            for (showing, status) in answers {
                known.answered(*showing, StatusCode::from_u16(*status).unwrap());
            }
            assert_eq!(known.is_refused(), expected, "{answers:?}");
        }
    }
}
