//! What a handler and a launcher read from each other. The first byte says which message is expected; the rest comes as a stream.

use wire::{Command, Event, Lines, Message, ProxyRequest, ProxyResponse, decode, encode};

/// Whatever was accepted can be sent on, and means the same.
fn read<M: Message + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let mut lines = Lines::new();
    lines.push(bytes);
    lines.push(b"\n");
    while let Some(message) = lines.next::<M>() {
        if let Ok(message) = message
            && let Ok(line) = encode(&message)
        {
            assert_eq!(decode::<M>(&line).ok(), Some(message));
        }
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    match first % 4 {
        0 => read::<Command>(rest),
        1 => read::<Event>(rest),
        2 => read::<ProxyRequest>(rest),
        _ => read::<ProxyResponse>(rest),
    }
}
