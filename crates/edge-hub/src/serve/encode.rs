//! Objects as a client wants them: lent as they are held, or transcoded; events for all their watchers at once.

use std::sync::Arc;

use bytes::Bytes;
use kube_wire::{
    accept::{As, MediaType, Representation},
    frame::{self, Body, EventType, Form, ListHead, Projection, TypeMeta},
    object::{Encoding, Object},
    status::Status,
    transcode::{self, MetaMessage, TranscodeError},
};
use watch_cache::{Delivery, Page};

use crate::{metrics::Meters, subscriptions::Subscription};

/// Writes the objects of one subscription in one form.
#[derive(Clone)]
pub(super) struct Encoder {
    subscription: Arc<Subscription>,
    form: Form,
    media: MediaType,
    api_version: Arc<str>,
    kind: Arc<str>,
    transcodes: bool,
    of_lists: bool,
}

/// An object's bytes in the encoding that is written.
enum Shown {
    /// As it is held.
    Held(Arc<Object>),
    /// What is written of it, transcoded.
    Text(Bytes),
}

impl Body for Shown {
    fn whole(&self) -> &Bytes {
        match self {
            Self::Held(object) => object.body(),
            Self::Text(text) => text,
        }
    }

    fn metadata(&self) -> &[u8] {
        match self {
            Self::Held(object) => object.metadata(),
            Self::Text(text) => text,
        }
    }
}

/// Appends what comes next of a list; `false` when nothing is left.
pub(super) type WriteNext = Box<dyn FnMut(&mut Vec<u8>) -> Result<bool, TranscodeError> + Send>;

impl Encoder {
    /// `None` if the kind of the objects is not known yet.
    pub(super) fn new(subscription: &Arc<Subscription>, representation: Representation) -> Option<Self> {
        let encoding = match representation.encoding {
            MediaType::Protobuf => Encoding::Protobuf,
            MediaType::Json | MediaType::Yaml => Encoding::Json,
        };
        let projection = match representation.as_ {
            As::Object | As::Table => Projection::Whole,
            As::PartialObjectMetadata | As::PartialObjectMetadataList => {
                Projection::Metadata(representation.meta_version)
            }
        };
        Some(Self {
            form: Form { encoding, projection },
            media: representation.encoding,
            api_version: subscription.key().resource.api_version().into(),
            kind: subscription.kind()?,
            transcodes: subscription.is_protobuf() == (encoding == Encoding::Json),
            of_lists: representation.as_ == As::PartialObjectMetadataList,
            subscription: subscription.clone(),
        })
    }

    /// The `Content-Type` of an object or list.
    pub(super) fn content_type(&self) -> &'static str {
        self.media.as_str()
    }

    /// The `Content-Type` of a watch.
    pub(super) fn watch_content_type(&self) -> &'static str {
        self.media.of_watch()
    }

    /// Whether objects are held in another encoding than is written.
    pub(super) fn transcodes(&self) -> bool {
        self.transcodes
    }

    /// Whether only a list can be written so. As in the API server, a watch in this form is begun, and ends where its first event would stand.
    pub(super) fn is_of_lists(&self) -> bool {
        self.of_lists
    }

    /// Whether every one of these objects can be written.
    pub(super) fn check(&self, objects: &[Arc<Object>]) -> Result<(), TranscodeError> {
        objects.iter().try_for_each(|object| self.transcode(object, false).map(drop))
    }

    fn type_meta(&self) -> TypeMeta<'_> {
        TypeMeta { api_version: &self.api_version, kind: &self.kind }
    }

    /// One object, as the answer to a GET.
    pub(super) fn object(&self, object: &Arc<Object>) -> Result<Vec<Bytes>, TranscodeError> {
        Ok(frame::object(self.form, self.type_meta(), &self.shown(object, true)?))
    }

    /// A list, item by item; what has to be transcoded is, when its turn comes.
    pub(super) fn list(&self, page: Page) -> WriteNext {
        let Page { objects, resource_version, continue_token, remaining } = page;
        let head = ListHead {
            items: self.type_meta(),
            resource_version,
            continue_token: continue_token.as_deref().unwrap_or_default(),
            remaining,
            custom: !self.subscription.is_protobuf(),
        };
        if !self.transcodes {
            let mut list = frame::list(self.form, &head, objects);
            return Box::new(move |out| list.write_next(out));
        }
        if self.form.encoding == Encoding::Protobuf {
            // How long it is stands before it.
            let shown = objects.iter().map(|object| self.shown(object, false)).collect::<Result<Vec<_>, _>>();
            return match shown {
                Ok(items) => {
                    let mut list = frame::list(self.form, &head, items);
                    Box::new(move |out| list.write_next(out))
                }
                Err(error) => Box::new(move |_| Err(error.clone())),
            };
        }
        let encoder = self.clone();
        let items = objects.into_iter().map(move |object| encoder.shown(&object, false));
        let mut list = frame::json_list(self.form, &head, items);
        Box::new(move |out| list.write_next(out))
    }

    /// One thing that a watch tells; `shared`: whether other watchers are told the same about now. Meters count what is encoded for it.
    pub(super) fn delivery(
        &self,
        delivery: &Delivery,
        shared: bool,
        meters: &Meters,
    ) -> Result<Bytes, TranscodeError> {
        let (event, object) = match delivery {
            Delivery::Added(object) => (EventType::Added, object),
            Delivery::Modified(object) => (EventType::Modified, object),
            Delivery::Deleted(object) => (EventType::Deleted, object),
            Delivery::InitialEnd(version) | Delivery::Bookmark(version) => {
                let end = matches!(delivery, Delivery::InitialEnd(_));
                return Ok(frame::bookmark(self.form, self.type_meta(), *version, end));
            }
        };
        let write = || {
            let shown = self.shown(object, true)?;
            meters.event_encoded();
            Ok(frame::watch_event(self.form, self.type_meta(), event, &shown).concat().into())
        };
        if shared { self.subscription.written(object, event, self.form, write) } else { write() }
    }

    /// An error within a watch.
    pub(super) fn error(&self, status: &Status) -> Bytes {
        frame::watch_error(self.form.encoding, status)
    }

    fn shown(&self, object: &Arc<Object>, typed: bool) -> Result<Shown, TranscodeError> {
        if !self.transcodes {
            return Ok(Shown::Held(object.clone()));
        }
        Ok(Shown::Text(self.transcode(object, typed)?))
    }

    /// What is written of an object held as protobuf, as JSON; of the metadata of a custom resource, which is held as JSON, as protobuf.
    fn transcode(&self, object: &Arc<Object>, typed: bool) -> Result<Bytes, TranscodeError> {
        if let Projection::Metadata(_) = self.form.projection {
            if self.form.encoding == Encoding::Protobuf {
                return transcode::metadata_to_protobuf(object.metadata()).map(Bytes::from);
            }
            return transcode::meta_to_json(MetaMessage::ObjectMeta, object.metadata(), false)
                .map(Bytes::from);
        }
        let resource = &self.subscription.key().resource;
        transcode::to_json(resource, object.body(), typed).map(Bytes::from)
    }
}
