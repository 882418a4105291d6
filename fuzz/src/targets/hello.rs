//! What a stranger says to the tunnel's listener, or to a gateway: the first message of a TLS connection, and whatever follows it.
#![allow(clippy::panic, reason = "a target that cannot start must say so")]

use std::sync::LazyLock;
use std::time::Duration;

use identity::{Authority, Subject};
use tunnel::{Credentials, Hello, Route};

static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
    let hour = Duration::from_hours(1);
    let made = Authority::generate("authority", hour).and_then(|authority| {
        let subject = Subject { common_name: "node".into(), ..Subject::default() };
        Ok((authority.issue(&subject, hour)?, authority.certificate().to_owned()))
    });
    let (identity, authority) = made.unwrap_or_else(|cause| panic!("no certificate: {cause}"));
    Credentials::tls(&identity, &[&authority]).unwrap_or_else(|cause| panic!("no credentials: {cause}"))
});

/// Runs one input.
pub fn run(data: &[u8]) {
    if let Ok(hello) = Hello::read(&mut &*data) {
        // All that was read is there to be replayed, and the name means one route.
        assert!(data.starts_with(&hello.bytes));
        assert_eq!(Route::from_server_name(&hello.route.server_name()).ok(), Some(hello.route));
    }
    assert!(!tunnel::fuzzing::serve(&CREDENTIALS, data), "nobody comes in without a certificate");
}
