//! Atomics before each access of which a simulator may let another thread run.
//!
//! Without the feature `simulation` nothing here is compiled, and the engine uses the processor's
//! own atomics. With it, sizes and orderings are the same. A simulator runs one task at a time, so
//! it sees all accesses in one total order; weaker orders are checked by loom.

pub(crate) use std::sync::atomic::{Ordering, fence};

use super::points::preempt;

macro_rules! atomics {
    ($($name:ident $of:ty { $($call:ident)* };)*) => {$(
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(std::sync::atomic::$name);

        #[allow(dead_code)] // All have what some use.
        impl $name {
            pub(crate) const fn new(value: $of) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }

            #[inline]
            pub(crate) fn load(&self, order: Ordering) -> $of {
                preempt();
                self.0.load(order)
            }

            #[inline]
            pub(crate) fn store(&self, value: $of, order: Ordering) {
                preempt();
                self.0.store(value, order);
            }

            #[inline]
            pub(crate) fn swap(&self, value: $of, order: Ordering) -> $of {
                preempt();
                self.0.swap(value, order)
            }

            #[inline]
            pub(crate) fn compare_exchange(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                preempt();
                self.0.compare_exchange(current, new, success, failure)
            }

            #[inline]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                preempt();
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// The load and the exchange are two accesses, as on the processor.
            #[inline]
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut update: impl FnMut($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                let mut before = self.load(failure);
                while let Some(after) = update(before) {
                    match self.compare_exchange_weak(before, after, success, failure) {
                        Ok(value) => return Ok(value),
                        Err(moved) => before = moved,
                    }
                }
                Err(before)
            }

            #[inline]
            pub(crate) fn get_mut(&mut self) -> &mut $of {
                self.0.get_mut()
            }

            pub(crate) fn into_inner(self) -> $of {
                self.0.into_inner()
            }

            $(
                #[inline]
                pub(crate) fn $call(&self, value: $of, order: Ordering) -> $of {
                    preempt();
                    self.0.$call(value, order)
                }
            )*
        }
    )*};
}

atomics! {
    AtomicBool bool { fetch_and fetch_or };
    AtomicU8 u8 { fetch_add fetch_sub fetch_max fetch_and fetch_or };
    AtomicU16 u16 { fetch_add fetch_sub fetch_max fetch_and fetch_or };
    AtomicU32 u32 { fetch_add fetch_sub fetch_max fetch_and fetch_or };
    AtomicU64 u64 { fetch_add fetch_sub fetch_max fetch_min fetch_and fetch_or fetch_xor };
    AtomicUsize usize { fetch_add fetch_sub fetch_max fetch_and fetch_or };
}

/// A pointer, as [`std::sync::atomic::AtomicPtr`].
#[repr(transparent)]
pub(crate) struct AtomicPtr<T>(std::sync::atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub(crate) const fn new(value: *mut T) -> Self {
        AtomicPtr(std::sync::atomic::AtomicPtr::new(value))
    }

    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        preempt();
        self.0.load(order)
    }

    #[inline]
    pub(crate) fn store(&self, value: *mut T, order: Ordering) {
        preempt();
        self.0.store(value, order);
    }

    #[inline]
    pub(crate) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        preempt();
        self.0.compare_exchange(current, new, success, failure)
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        AtomicPtr::new(std::ptr::null_mut())
    }
}

impl<T> std::fmt::Debug for AtomicPtr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
