//! Whole lists on the wire, in the order of bytes in which the API server writes them.

use crate::accept::META_VERSION_BETA;

use super::{
    Body, Bytes, ENVELOPE_TRAILER, Encoding, Form, Projection, ResourceVersion, TypeMeta, envelope_header,
    field_length, put_bytes, put_header, put_number,
};

/// What a list says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListHead<'a> {
    /// What its items are; the list's kind is theirs and `List`.
    pub items: TypeMeta<'a>,
    /// The version of the state that it shows.
    pub resource_version: ResourceVersion,
    /// The token for the rest; empty if there is none.
    pub continue_token: &'a str,
    /// How many objects are in the rest, if that is known.
    pub remaining: Option<u64>,
    /// Whether the items are custom resources, whose JSON lists look different.
    pub custom: bool,
}

/// The bytes of a list: the header, item by item, the trailer. [`List::write_next`] copies each to where it is sent from, which costs less
/// than to keep account of many small pieces; as an iterator each is a piece of its own.
#[derive(Debug)]
pub struct List<I> {
    form: Form,
    header: Option<Bytes>,
    /// Until the trailer is written, or one of them could not be made.
    items: Option<I>,
    trailer: Bytes,
    before: String,
    after: &'static [u8],
    first: bool,
}

/// A list of these items, all in the form's encoding. JSON items of built-in kinds carry neither `apiVersion` nor `kind`, those of
/// custom resources both.
pub fn list<B: Body, E>(
    form: Form,
    head: &ListHead<'_>,
    items: Vec<B>,
) -> List<impl ExactSizeIterator<Item = Result<B, E>> + use<B, E>> {
    let ends = match form.encoding {
        Encoding::Json => json_ends(form, head, items.is_empty()),
        Encoding::Protobuf => {
            let lengths = items.iter().map(|item| form.raw_length(form.payload(item).len()));
            protobuf_ends(form, head, lengths.map(field_length).sum())
        }
    };
    List::new(form, ends, items.into_iter().map(Ok))
}

/// The same in JSON, of items that are made when their turn comes: it is not known how long it will be. Nothing follows an error.
pub fn json_list<B: Body, E, I>(form: Form, head: &ListHead<'_>, items: I) -> List<I>
where
    I: ExactSizeIterator<Item = Result<B, E>>,
{
    List::new(form, json_ends(form, head, items.len() == 0), items)
}

impl<B: Body, E, I: Iterator<Item = Result<B, E>>> List<I> {
    fn new(form: Form, (header, trailer): (Bytes, Bytes), items: I) -> Self {
        let (before, after) = match form.encoding {
            Encoding::Json => form.json_around(),
            Encoding::Protobuf => (String::new(), &b""[..]),
        };
        Self { form, header: Some(header), items: Some(items), trailer, before, after, first: true }
    }

    /// Appends what comes next: the header, an item, or the trailer. `false` when nothing is left.
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> Result<bool, E> {
        if let Some(header) = self.header.take() {
            out.extend_from_slice(&header);
            return Ok(true);
        }
        let Some(items) = &mut self.items else { return Ok(false) };
        let Some(item) = items.next() else {
            self.items = None;
            out.extend_from_slice(&self.trailer);
            return Ok(true);
        };
        let item = item.inspect_err(|_| self.items = None)?;
        let payload = self.form.payload(&item);
        // Room for what stands around it, and for a header of protobuf.
        out.reserve(self.before.len() + payload.len() + self.after.len() + 16);
        match self.form.encoding {
            Encoding::Json if self.first => {}
            Encoding::Json => out.push(b','),
            Encoding::Protobuf => {
                put_header(out, self.form.list_fields().items, self.form.raw_length(payload.len()));
                self.form.put_raw_header(out, payload.len());
            }
        }
        self.first = false;
        for part in [self.before.as_bytes(), payload, self.after] {
            out.extend_from_slice(part);
        }
        Ok(true)
    }
}

impl<B: Body, E, I: Iterator<Item = Result<B, E>>> Iterator for List<I> {
    type Item = Result<Bytes, E>;

    /// The next piece; none is empty.
    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = Vec::new();
        self.write_next(&mut piece).map(|more| more.then(|| piece.into())).transpose()
    }
}

/// What stands before and after the items of a list in JSON.
fn json_ends(form: Form, head: &ListHead<'_>, is_empty: bool) -> (Bytes, Bytes) {
    let TypeMeta { api_version, kind } = form.type_meta(head.items);
    let ListHead { resource_version, continue_token, remaining, custom, items: _ } = head;
    let remaining = remaining.map(|count| format!(",\"remainingItemCount\":{count}")).unwrap_or_default();
    // Lists of custom resources are maps in Go, which are written in the order of their keys.
    if *custom && form.projection == Projection::Whole {
        let header = format!("{{\"apiVersion\":\"{api_version}\",\"items\":[");
        let trailer = format!(
            "],\"kind\":\"{kind}List\",\"metadata\":{{\"continue\":\"{continue_token}\"{remaining},\"resourceVersion\":\"{resource_version}\"}}}}\n"
        );
        return (header.into(), trailer.into());
    }
    // A list of metadata is made of a slice, and one that nothing was put into Go writes as `null`.
    let (open, close) = match form.projection {
        Projection::Metadata(_) if is_empty => ("null", "}\n"),
        _ => ("[", "]}\n"),
    };
    let token =
        if continue_token.is_empty() { String::new() } else { format!(",\"continue\":\"{continue_token}\"") };
    let header = format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{resource_version}\"{token}{remaining}}},\"items\":{open}"
    );
    (header.into(), close.into())
}

/// The envelope and `ListMeta`, and the envelope's end.
fn protobuf_ends(form: Form, head: &ListHead<'_>, content: usize) -> (Bytes, Bytes) {
    let TypeMeta { api_version, kind } = form.type_meta(head.items);
    let ListHead { resource_version, continue_token, remaining, custom: _, items: _ } = head;
    let mut list_meta = Vec::new();
    put_bytes(&mut list_meta, 1, b"");
    put_bytes(&mut list_meta, 2, resource_version.to_string().as_bytes());
    put_bytes(&mut list_meta, 3, continue_token.as_bytes());
    if let Some(remaining) = remaining {
        put_number(&mut list_meta, 4, *remaining);
    }
    let raw = field_length(list_meta.len()) + content;
    let mut header = envelope_header(api_version, &format!("{kind}List"), raw);
    let ListFields { metadata, items } = form.list_fields();
    let mut trailer = Vec::new();
    // Fields stand in the order of their numbers.
    put_bytes(if metadata < items { &mut header } else { &mut trailer }, metadata, &list_meta);
    trailer.extend_from_slice(ENVELOPE_TRAILER);
    (header.into(), trailer.into())
}

/// The numbers of a list's fields in protobuf.
struct ListFields {
    metadata: u64,
    items: u64,
}

impl Form {
    /// All lists have the same, but the list of metadata of the version that came first: `generated.proto` of `k8s.io/apimachinery/pkg/apis/meta/v1beta1`.
    fn list_fields(self) -> ListFields {
        match self.projection {
            Projection::Metadata(META_VERSION_BETA) => ListFields { metadata: 2, items: 1 },
            _ => ListFields { metadata: 1, items: 2 },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::accept::META_VERSION;

    #[test]
    fn a_list_of_metadata_has_the_fields_of_its_version() {
        let head = ListHead {
            items: TypeMeta { api_version: "v1", kind: "Service" },
            resource_version: "7".parse().unwrap(),
            continue_token: "",
            remaining: None,
            custom: false,
        };
        let item = Bytes::from_static(br#"{"metadata":{}}"#);
        for (version, expected) in [
            (META_VERSION, &b"\x0a\x07\x0a\x00\x12\x017\x1a\x00\x12\x04\x0a\x02{}"[..]),
            (META_VERSION_BETA, b"\x0a\x04\x0a\x02{}\x12\x07\x0a\x00\x12\x017\x1a\x00"),
        ] {
            let form = Form { encoding: Encoding::Protobuf, projection: Projection::Metadata(version) };
            let written: Result<Vec<_>, Infallible> = list(form, &head, vec![item.clone()]).collect();
            let written = written.unwrap().concat();
            assert!(written.windows(expected.len()).any(|part| part == expected), "{version}: {written:?}");
        }
    }
}
