//! What a stranger says to the tunnel's listener, or to a gateway: the first message of a TLS connection.
#![no_main]

use tunnel::{Hello, Route};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(hello) = Hello::read(&mut &*data) {
        // All that was read is there to be replayed, and the name means one route.
        assert!(data.starts_with(&hello.bytes));
        assert_eq!(Route::from_server_name(&hello.route.server_name()).ok(), Some(hello.route));
    }
});
