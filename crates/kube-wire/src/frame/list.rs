//! Whole lists on the wire, in the order of bytes in which the API server writes them.

use std::iter;

use super::{
    Body, Bytes, ENVELOPE_TRAILER, Encoding, Form, Projection, ResourceVersion, TypeMeta, VecDeque,
    envelope_header, field_length, put_bytes, put_header, put_number,
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

/// The bytes of a list. As pieces each item is lent; [`List::write_next`] copies them to where they are sent from, which costs less
/// than to keep account of many small pieces.
#[derive(Debug)]
pub struct List<B> {
    header: Option<Bytes>,
    items: std::vec::IntoIter<B>,
    trailer: Option<Bytes>,
    form: Form,
    before: Bytes,
    after: Bytes,
    first: bool,
    pieces: VecDeque<Bytes>,
    length: u64,
}

/// A list of these items, all in the form's encoding. JSON items of built-in kinds carry neither `apiVersion` nor `kind`, those of
/// custom resources both.
pub fn list<B: Body>(form: Form, head: &ListHead<'_>, items: Vec<B>) -> List<B> {
    let (before, after) = match form.encoding {
        Encoding::Json => form.json_around(),
        Encoding::Protobuf => (String::new(), &b""[..]),
    };
    let lengths = items.iter().map(|item| form.payload(item).len());
    let content: usize = match form.encoding {
        Encoding::Json => {
            let around = before.len() + after.len();
            lengths.map(|length| around + length).sum::<usize>() + items.len().saturating_sub(1)
        }
        Encoding::Protobuf => lengths.map(|length| field_length(form.raw_length(length))).sum(),
    };
    let (header, trailer) = match form.encoding {
        Encoding::Json if items.is_empty() => json_ends_of_none(form, head),
        Encoding::Json => json_ends(form, head),
        Encoding::Protobuf => protobuf_ends(form, head, content),
    };
    List {
        length: (header.len() + content + trailer.len()) as u64,
        header: Some(header),
        items: items.into_iter(),
        trailer: Some(trailer),
        form,
        before: before.into(),
        after: Bytes::from_static(after),
        first: true,
        pieces: VecDeque::with_capacity(4),
    }
}

impl<B: Body> List<B> {
    /// How many bytes it is in all.
    pub fn content_length(&self) -> u64 {
        self.length
    }

    /// Appends what comes next: the header, an item, or the trailer. `false` when nothing is left.
    pub fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some(header) = self.header.take() {
            out.extend_from_slice(&header);
            return true;
        }
        let Some(item) = self.items.next() else {
            let Some(trailer) = self.trailer.take() else { return false };
            out.extend_from_slice(&trailer);
            return true;
        };
        let payload = self.form.payload(&item);
        let first = std::mem::replace(&mut self.first, false);
        match self.form.encoding {
            Encoding::Json => {
                if !first {
                    out.push(b',');
                }
                out.extend_from_slice(&self.before);
                out.extend_from_slice(payload);
                out.extend_from_slice(&self.after);
            }
            Encoding::Protobuf => {
                self.item_header(payload.len(), out);
                out.extend_from_slice(payload);
            }
        }
        true
    }

    /// What stands before an item of protobuf.
    fn item_header(&self, payload: usize, out: &mut Vec<u8>) {
        put_header(out, 2, self.form.raw_length(payload));
        self.form.put_raw_header(out, payload);
    }

    fn lend(&mut self, item: &B) {
        let payload = self.form.lent(item);
        let first = std::mem::replace(&mut self.first, false);
        match self.form.encoding {
            Encoding::Json => {
                if !first {
                    self.pieces.push_back(Bytes::from_static(b","));
                }
                self.pieces.push_back(self.before.clone());
                self.pieces.push_back(payload);
                self.pieces.push_back(self.after.clone());
            }
            Encoding::Protobuf => {
                let mut header = Vec::with_capacity(16);
                self.item_header(payload.len(), &mut header);
                self.pieces.push_back(header.into());
                self.pieces.push_back(payload);
            }
        }
    }
}

impl<B: Body> Iterator for List<B> {
    type Item = Bytes;

    /// The next piece; none is empty.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(header) = self.header.take() {
            return Some(header);
        }
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                if piece.is_empty() {
                    continue;
                }
                return Some(piece);
            }
            match self.items.next() {
                Some(item) => self.lend(&item),
                None => return self.trailer.take(),
            }
        }
    }
}

/// The same in JSON, of items that are made when their turn comes: it is not known how long it will be. Nothing follows an error.
pub fn json_list<B: Body, E, I>(
    form: Form,
    head: &ListHead<'_>,
    items: I,
) -> impl Iterator<Item = Result<Bytes, E>> + use<B, E, I>
where
    I: ExactSizeIterator<Item = Result<B, E>>,
{
    let (header, trailer) =
        if items.len() == 0 { json_ends_of_none(form, head) } else { json_ends(form, head) };
    let (before, after) = form.json_around();
    let items = items.enumerate().map(move |(index, item)| {
        let comma: &[u8] = if index > 0 { b"," } else { b"" };
        Ok([comma, before.as_bytes(), form.payload(&item?), after].concat().into())
    });
    let mut failed = false;
    iter::once(Ok(header))
        .chain(items)
        .chain(iter::once(Ok(trailer)))
        .take_while(move |piece| !std::mem::replace(&mut failed, piece.is_err()))
}

/// A list without items in JSON. One of metadata is made of a slice that nothing was put into, which Go writes as `null`.
fn json_ends_of_none(form: Form, head: &ListHead<'_>) -> (Bytes, Bytes) {
    let (header, trailer) = json_ends(form, head);
    match form.projection {
        Projection::Whole => (header, trailer),
        Projection::Metadata(_) => (
            [header.strip_suffix(b"[").unwrap_or(&header), b"null"].concat().into(),
            Bytes::from_static(b"}\n"),
        ),
    }
}

/// What stands before and after the items of a list in JSON, if there are any.
fn json_ends(form: Form, head: &ListHead<'_>) -> (Bytes, Bytes) {
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
    let token =
        if continue_token.is_empty() { String::new() } else { format!(",\"continue\":\"{continue_token}\"") };
    let header = format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"{resource_version}\"{token}{remaining}}},\"items\":["
    );
    (header.into(), Bytes::from_static(b"]}\n"))
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
    put_bytes(&mut header, 1, &list_meta);
    (header.into(), Bytes::from_static(ENVELOPE_TRAILER))
}
