mod discovery;
mod kinds;
mod message;
mod properties;
mod published;

/// A field with a length: `number`, and what is in it.
fn length(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = tag(number, 2);
    field.extend(varint(content.len() as u64));
    field.extend(content);
    field
}

/// A field with a number.
fn integer(number: u32, value: i64) -> Vec<u8> {
    let mut field = tag(number, 0);
    field.extend(varint(value.cast_unsigned()));
    field
}

fn tag(number: u32, wire_type: u32) -> Vec<u8> {
    varint(u64::from(number << 3 | wire_type))
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}
