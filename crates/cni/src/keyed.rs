//! One lock for each key, made when it is wanted and forgotten when nobody holds it.
//!
//! What two operations must not do at once is decided by who asks for the same key.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Locks by key.
#[derive(Debug)]
pub(crate) struct Keyed<K, L> {
    locks: Mutex<HashMap<K, Weak<L>>>,
}

impl<K, L> Default for Keyed<K, L> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Eq + Hash, L: Default> Keyed<K, L> {
    /// The lock of this key: the same for everybody who holds it.
    pub(crate) fn get(&self, key: K) -> Arc<L> {
        // A map of weak pointers is whole after any panic.
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(L::default());
        locks.insert(key, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_for_a_key_and_none_kept() {
        let keyed: Keyed<&str, Mutex<()>> = Keyed::default();
        let first = keyed.get("a");
        assert!(Arc::ptr_eq(&first, &keyed.get("a")));
        assert!(!Arc::ptr_eq(&first, &keyed.get("b")));
        drop(first);
        keyed.get("c");
        assert_eq!(keyed.locks.lock().unwrap().len(), 1);
    }
}
