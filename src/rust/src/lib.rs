// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The stint authors
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[allow(missing_docs)]
pub mod sys;

use std::ffi::{CStr, CString};
use std::fmt;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::str::FromStr;
use std::time::Duration;

// ---- Errors ------------------------------------------------------------------------------------

/// What the library refused, and why: `stint_reason`'s sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    errno: i32,
    reason: String,
}

/// What can fail.
pub type Result<T> = std::result::Result<T, Error>;

const EINVAL: i32 = 22;

impl Error {
    /// Of a call on this thread that has just returned `result`.
    fn last(result: i32) -> Error {
        // SAFETY: both return text that ends in NUL, and is valid until the thread's next error.
        let reason = unsafe {
            let told = CStr::from_ptr(sys::stint_reason());
            let told = if told.to_bytes().is_empty() {
                CStr::from_ptr(sys::stint_strerror(result))
            } else {
                told
            };
            told.to_string_lossy().into_owned()
        };
        Error { errno: -result, reason }
    }

    fn invalid(reason: &str) -> Error {
        Error { errno: EINVAL, reason: reason.to_string() }
    }

    /// The number of the error, such as `EINVAL`'s. `stint.h` lists them.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.reason)
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno).kind();
        std::io::Error::new(kind, error)
    }
}

/// 0, or the length of a text; else an error.
fn checked(result: i32) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last(result))
}

fn c_string(text: impl Into<Vec<u8>>, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(&format!("{} must have no NUL in it", what)))
}

/// The text that `write` puts into a buffer, as snprintf does. It may grow between two calls.
fn text_of(write: impl Fn(*mut c_char, usize) -> i32) -> Result<String> {
    let mut length = checked(write(ptr::null_mut(), 0))?;
    loop {
        let mut buffer = vec![0u8; length + 1];
        length = checked(write(buffer.as_mut_ptr().cast(), buffer.len()))?;
        if length < buffer.len() {
            buffer.truncate(length);
            return Ok(String::from_utf8_lossy(&buffer).into_owned());
        }
    }
}

// ---- Opening -----------------------------------------------------------------------------------

/// What happens to a key that has no slot when the table is full (`enum stint_on_full`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OnFull {
    /// It is let through, marked [`UNTRACKED`](Verdict::UNTRACKED).
    Admit = sys::STINT_FULL_ADMIT,
    /// It is refused, marked [`UNTRACKED`](Verdict::UNTRACKED).
    Refuse = sys::STINT_FULL_REFUSE,
    /// It takes the slot of the key with the fewest tokens used.
    Replace = sys::STINT_FULL_REPLACE,
}

/// How a limiter is opened (`struct stint_options`).
#[derive(Clone, Debug)]
pub struct Options {
    raw: sys::stint_options,
    path: Option<PathBuf>,
    secret: Option<Box<[u8; sys::STINT_SECRET_SIZE]>>,
}

// SAFETY: the pointers of `raw` are null until the options are used.
unsafe impl Send for Options {}
// SAFETY: as above.
unsafe impl Sync for Options {}

impl Options {
    /// Room for so many live pairs of key and policy, in private memory.
    pub fn new(max_entries: u64) -> Options {
        let raw = sys::stint_options {
            size: size_of::<sys::stint_options>(),
            max_entries,
            shards: 0,
            max_policies: 0,
            on_full: 0,
            flags: 0,
            path: ptr::null(),
            clock: None,
            secret: ptr::null(),
            mode: 0,
            labels: 0,
        };
        Options { raw, path: None, secret: None }
    }

    /// The table of a file that is there, for [`attach`](Options::attach).
    pub fn existing(path: impl AsRef<Path>) -> Options {
        Options::new(0).path(path)
    }

    /// The table is a file, which processes share and which survives a restart.
    pub fn path(mut self, path: impl AsRef<Path>) -> Options {
        self.path = Some(path.as_ref().to_path_buf());
        self
    }

    /// A power of two; 0: chosen.
    pub fn shards(mut self, shards: u32) -> Options {
        self.raw.shards = shards;
        self
    }

    /// 0: 64.
    pub fn max_policies(mut self, policies: u32) -> Options {
        self.raw.max_policies = policies;
        self
    }

    /// What happens when the table is full.
    pub fn on_full(mut self, outcome: OnFull) -> Options {
        self.raw.on_full = outcome as u32;
        self
    }

    /// Permission bits of a file that is made; 0: 0600.
    pub fn mode(mut self, mode: u32) -> Options {
        self.raw.mode = mode;
        self
    }

    /// Names of keys that the table has room for ([`Limiter::label`]).
    pub fn labels(mut self, labels: u32) -> Options {
        self.raw.labels = labels;
        self
    }

    /// Touches all memory at open.
    pub fn prefault(self) -> Options {
        self.flag(sys::STINT_PREFAULT)
    }

    /// Does not ask for huge pages.
    pub fn small_pages(self) -> Options {
        self.flag(sys::STINT_SMALL_PAGES)
    }

    /// Reads a clock that is right to the nanosecond, and dearer.
    pub fn precise_clock(self) -> Options {
        self.flag(sys::STINT_PRECISE_CLOCK)
    }

    /// Never writes to the table: for [`attach`](Options::attach), and for
    /// [`open`](Options::open) of one that is there.
    pub fn read_only(self) -> Options {
        self.flag(sys::STINT_READ_ONLY)
    }

    fn flag(mut self, flag: u32) -> Options {
        self.raw.flags |= flag;
        self
    }

    /// A clock in place of the system's: ns since the Unix epoch. It is for whoever gives times of
    /// his own ([`take_at`](Limiter::take_at)). Every thread that decides calls it.
    pub fn clock(mut self, clock: extern "C" fn() -> u64) -> Options {
        self.raw.clock = Some(clock);
        self
    }

    /// The secret that keys are hashed with: for tests, and for the same hashes in several tables.
    pub fn secret(mut self, secret: &[u8; sys::STINT_SECRET_SIZE]) -> Options {
        self.secret = Some(Box::new(*secret));
        self
    }

    /// Opens a limiter, and takes all the memory that it will ever use.
    pub fn open(&self) -> Result<Limiter> {
        self.by(sys::stint_open)
    }

    /// Opens the table of a file that is there, whatever its shape.
    pub fn attach(&self) -> Result<Limiter> {
        self.by(sys::stint_attach)
    }

    /// Makes the table of a file larger or smaller.
    /// Nobody may have it open. What is 0 stays as it was; [`Options::new`]`(0)` changes nothing
    /// else.
    pub fn resize(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_string(path.as_ref().as_os_str().as_bytes(), "path")?;
        let mut raw = self.raw;
        if let Some(secret) = &self.secret {
            raw.secret = secret.as_ptr().cast();
        }
        // SAFETY: the path and the secret live until the call returns.
        checked(unsafe { sys::stint_resize(path.as_ptr(), &raw) }).map(|_| ())
    }

    fn by(
        &self,
        open: unsafe extern "C" fn(
            *const sys::stint_options,
            *mut *mut sys::stint_limiter,
        ) -> std::os::raw::c_int,
    ) -> Result<Limiter> {
        let mut raw = self.raw;
        let path = match &self.path {
            Some(path) => Some(c_string(path.as_os_str().as_bytes(), "options.path")?),
            None => None,
        };
        if let Some(path) = &path {
            raw.path = path.as_ptr();
        }
        if let Some(secret) = &self.secret {
            raw.secret = secret.as_ptr().cast();
        }
        let mut limiter = ptr::null_mut();
        // SAFETY: `raw` points to a path and a secret that live until the call returns. It copies
        // them.
        checked(unsafe { open(&raw, &mut limiter) })?;
        Ok(Limiter { raw: NonNull::new(limiter).expect("stint_open gives a limiter or an error") })
    }
}

/// A limiter. Threads share it by reference, and decide at once.
#[derive(Debug)]
pub struct Limiter {
    raw: NonNull<sys::stint_limiter>,
}

// SAFETY: every function of the library may be called by any number of threads at once, but for
// stint_close. That is called by drop, when nobody else has the limiter.
unsafe impl Send for Limiter {}
// SAFETY: as above.
unsafe impl Sync for Limiter {}

impl Drop for Limiter {
    fn drop(&mut self) {
        // SAFETY: nobody borrows the limiter any more.
        unsafe { sys::stint_close(self.raw.as_ptr()) }
    }
}

impl Limiter {
    /// The limiter as C has it, for functions of [`sys`]. It is the limiter's: who closes it breaks
    /// everything.
    pub fn as_raw(&self) -> *mut sys::stint_limiter {
        self.raw.as_ptr()
    }
}

// ---- Policies ----------------------------------------------------------------------------------

/// A limit for each key (`struct stint_policy`). It is made of its text notation, and written as
/// that: `"100/minute name=api".parse::<Policy>()`.
#[derive(Clone, Copy)]
pub struct Policy {
    raw: sys::stint_policy,
}

impl Policy {
    fn empty() -> Policy {
        Policy {
            raw: sys::stint_policy {
                size: size_of::<sys::stint_policy>(),
                name: [0; sys::STINT_NAME_SIZE],
                limit: 0,
                capacity: 0,
                max_reserved: 0,
                stripes: 0,
                window: 0,
                start: 0,
                flags: 0,
                near_limit: 0,
                jitter: 0,
                calendar: 0,
                offset: 0,
                ban_after: 0,
                ban: 0,
                burst: 0,
                reserved: 0,
                ban_within: 0,
            },
        }
    }

    /// By which it is found; empty: by its rate.
    pub fn name(&self) -> String {
        // SAFETY: the library has written the name, with a NUL at its end.
        unsafe { CStr::from_ptr(self.raw.name.as_ptr()) }.to_string_lossy().into_owned()
    }

    /// Tokens granted in each window; by a token bucket: that come back in so much time.
    pub fn limit(&self) -> u32 {
        self.raw.limit
    }

    /// Tokens that a token bucket holds; 0: it counts in windows.
    pub fn burst(&self) -> u32 {
        self.raw.burst
    }

    /// What the policy allows, but is hardly meant: a text for people, empty if there is nothing to
    /// say.
    pub fn note(&self) -> Result<String> {
        // SAFETY: the buffer has the size that is told.
        text_of(|buffer, size| unsafe { sys::stint_policy_note(&self.raw, buffer, size) })
    }

    /// All fields, as C has them.
    pub fn raw(&self) -> &sys::stint_policy {
        &self.raw
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Policy> {
        let text = c_string(text, "a policy's text")?;
        let mut policy = Policy::empty();
        // SAFETY: `text` ends in NUL, and `policy` has its size.
        let result =
            unsafe { sys::stint_policy_parse(text.as_ptr(), &mut policy.raw, ptr::null_mut()) };
        checked(result).map(|_| policy)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the buffer has the size that is told.
        let text =
            text_of(|buffer, size| unsafe { sys::stint_policy_format(&self.raw, buffer, size) });
        to.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Policy({})", self)
    }
}

/// A policy of a limiter. An id of another limiter is another policy there, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PolicyId(pub u32);

/// What became of a policy that [`Limiter::apply`] was told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is there, as the text says.
    Unchanged,
    /// It was not there.
    Added,
    /// What was used stays, as by [`Limiter::change`].
    Changed,
    /// Another policy has its name, and counts anew.
    Replaced,
    /// The text does not name it.
    Removed,
}

/// What [`Limiter::apply`] did with a policy (`struct stint_change`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What became of it.
    pub kind: ChangeKind,
    /// Its id; `None`: it would get one.
    pub id: Option<PolicyId>,
    /// By which it is found.
    pub name: String,
    /// As it is to be; `None`: it is removed.
    pub text: Option<String>,
    /// As it was; `None`: it was not there.
    pub was: Option<String>,
    /// Decisions that were made by it, as it was.
    pub decided: u64,
}

/// The text at a pointer of C.
///
/// # Safety
/// It is null, or text that ends in NUL.
unsafe fn optional(text: *const c_char) -> Option<String> {
    (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
}

unsafe extern "C" fn told(context: *mut c_void, change: *const sys::stint_change) {
    let (changes, change) = (&mut *context.cast::<Vec<Change>>(), &*change);
    changes.push(Change {
        kind: match change.kind {
            sys::STINT_POLICY_ADDED => ChangeKind::Added,
            sys::STINT_POLICY_CHANGED => ChangeKind::Changed,
            sys::STINT_POLICY_REPLACED => ChangeKind::Replaced,
            sys::STINT_POLICY_REMOVED => ChangeKind::Removed,
            _ => ChangeKind::Unchanged,
        },
        id: (change.id != u32::MAX).then_some(PolicyId(change.id)),
        name: optional(change.name).unwrap_or_default(),
        text: optional(change.text),
        was: optional(change.was),
        decided: change.decided,
    });
}

impl Limiter {
    /// Adds a policy, or finds the same one.
    pub fn add(&self, policy: &Policy) -> Result<PolicyId> {
        let mut id = 0;
        // SAFETY: all three are valid during the call.
        let result = unsafe { sys::stint_policy_add(self.raw.as_ptr(), &policy.raw, &mut id) };
        checked(result).map(|_| PolicyId(id))
    }

    /// Adds a policy in the text notation.
    pub fn add_text(&self, text: &str) -> Result<PolicyId> {
        self.add(&text.parse()?)
    }

    /// Finds a policy by its name.
    pub fn find(&self, name: &str) -> Result<PolicyId> {
        let name = c_string(name, "a policy's name")?;
        let mut id = 0;
        // SAFETY: all three are valid during the call.
        let result = unsafe { sys::stint_policy_find(self.raw.as_ptr(), name.as_ptr(), &mut id) };
        checked(result).map(|_| PolicyId(id))
    }

    /// Copies a policy out.
    pub fn policy(&self, id: PolicyId) -> Result<Policy> {
        let mut policy = Policy::empty();
        // SAFETY: `policy` has its size.
        let result = unsafe { sys::stint_policy_get(self.raw.as_ptr(), id.0, &mut policy.raw) };
        checked(result).map(|_| policy)
    }

    /// Changes a policy at once, for all keys. What was used stays used; of a bucket, the time until
    /// it is full.
    pub fn change(&self, id: PolicyId, policy: &Policy) -> Result<()> {
        // SAFETY: both are valid during the call.
        let result = unsafe { sys::stint_policy_change(self.raw.as_ptr(), id.0, &policy.raw) };
        checked(result).map(|_| ())
    }

    /// Says whether [`change`](Limiter::change) would make this change, and makes none.
    pub fn change_check(&self, id: PolicyId, policy: &Policy) -> Result<()> {
        // SAFETY: both are valid during the call.
        let result =
            unsafe { sys::stint_policy_change_check(self.raw.as_ptr(), id.0, &policy.raw) };
        checked(result).map(|_| ())
    }

    /// Takes a policy away.
    pub fn remove(&self, id: PolicyId) -> Result<()> {
        // SAFETY: an id may be any number.
        checked(unsafe { sys::stint_policy_remove(self.raw.as_ptr(), id.0) }).map(|_| ())
    }

    /// Makes the policies of the table those of a text, a policy a line. Returns what was done.
    ///   prune  remove the policies that the text does not name
    pub fn apply(&self, text: &str, prune: bool) -> Result<Vec<Change>> {
        self.apply_by(text, if prune { sys::STINT_PRUNE } else { 0 })
    }

    /// Tells what [`apply`](Limiter::apply) would do, and changes nothing.
    pub fn apply_dry(&self, text: &str, prune: bool) -> Result<Vec<Change>> {
        self.apply_by(text, sys::STINT_DRY_RUN | if prune { sys::STINT_PRUNE } else { 0 })
    }

    fn apply_by(&self, text: &str, flags: u32) -> Result<Vec<Change>> {
        let text = c_string(text, "the policies' text")?;
        let mut changes: Vec<Change> = Vec::new();
        // SAFETY: `told` is given the vector, which nobody else uses meanwhile.
        let result = unsafe {
            sys::stint_policies_apply(
                self.raw.as_ptr(),
                text.as_ptr(),
                flags,
                ptr::null_mut(),
                Some(told),
                (&mut changes as *mut Vec<Change>).cast(),
            )
        };
        checked(result).map(|_| changes)
    }
}

// ---- Keys --------------------------------------------------------------------------------------

/// Keyed hash of what is limited. It is of use with its own limiter only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Key(pub sys::stint_key);

impl Key {
    /// One counter that all requests share.
    pub const GLOBAL: Key = Key(sys::stint_key { hash: sys::STINT_KEY_GLOBAL_HASH });
}

/// Linux's `struct sockaddr_in` and `struct sockaddr_in6`.
#[repr(C, align(4))]
struct SocketAddress([u8; 28]);

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl Limiter {
    /// The key of any bytes.
    #[inline]
    pub fn key(&self, bytes: impl AsRef<[u8]>) -> Key {
        let bytes = bytes.as_ref();
        // SAFETY: the bytes can be read.
        Key(unsafe { sys::stint_key_of(self.raw.as_ptr(), bytes.as_ptr().cast(), bytes.len()) })
    }

    /// The key of a number, such as a user's id. It is another key than that of its bytes.
    #[inline]
    pub fn key_of_id(&self, id: u64) -> Key {
        // SAFETY: it reads the limiter alone.
        Key(unsafe { sys::stint_key_of_id(self.raw.as_ptr(), id) })
    }

    /// Joins one more part to a key: a user, then an endpoint.
    #[inline]
    pub fn join(&self, key: Key, bytes: impl AsRef<[u8]>) -> Key {
        let bytes = bytes.as_ref();
        // SAFETY: the bytes can be read.
        Key(unsafe {
            sys::stint_key_join(self.raw.as_ptr(), key.0, bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// The key of a client's address by its first bits. IPv4-mapped IPv6 is IPv4.
    ///   prefix4  bits of an IPv4 address, 1 to 32; 0: 32
    ///   prefix6  bits of an IPv6 address, 1 to 128; 0: 64
    pub fn address(&self, address: IpAddr, prefix4: u32, prefix6: u32) -> Key {
        let mut socket = SocketAddress([0; 28]);
        match address {
            IpAddr::V4(address) => {
                socket.0[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                socket.0[4..8].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                socket.0[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                socket.0[8..24].copy_from_slice(&address.octets());
            }
        }
        // SAFETY: `socket` is as long as the longer of the two, and aligned as they are.
        Key(unsafe {
            sys::stint_key_address(self.raw.as_ptr(), socket.0.as_ptr().cast(), prefix4, prefix6)
        })
    }
}

// ---- Deciding ----------------------------------------------------------------------------------

/// What was decided (`struct stint_verdict`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Verdict {
    raw: sys::stint_verdict,
}

impl Verdict {
    /// A flag: the key's first refusal in this window. Log it now and the log stays bounded.
    pub const FIRST_REFUSAL: u32 = sys::STINT_FIRST_REFUSAL;
    /// A flag: would have been refused, but the policy is a shadow.
    pub const SHADOWED: u32 = sys::STINT_SHADOWED;
    /// A flag: the table was full, and nothing was counted.
    pub const UNTRACKED: u32 = sys::STINT_UNTRACKED;
    /// A flag: the table was full, and another key lost its slot.
    pub const REPLACED: u32 = sys::STINT_REPLACED;
    /// A flag: there is no such policy.
    pub const UNKNOWN_POLICY: u32 = sys::STINT_UNKNOWN_POLICY;
    /// A flag: more is used than the policy's `near`.
    pub const NEAR_LIMIT: u32 = sys::STINT_NEAR_LIMIT;
    /// A flag: the request makes no sense.
    pub const BAD_REQUEST: u32 = sys::STINT_BAD_REQUEST;
    /// A flag: the key is banned.
    pub const BANNED: u32 = sys::STINT_BANNED;
    /// A flag: a ban or an override of the key decided.
    pub const OVERRIDDEN: u32 = sys::STINT_OVERRIDDEN;
    /// A flag: `now` was more than two minutes from the clock, which decided instead.
    pub const MISTAKEN_NOW: u32 = sys::STINT_MISTAKEN_NOW;

    /// Let it through.
    pub fn allowed(&self) -> bool {
        self.raw.allowed
    }

    /// Whether it has that flag.
    pub fn has(&self, flag: u32) -> bool {
        self.raw.flags & flag != 0
    }

    /// Most tokens that the key can hold.
    pub fn capacity(&self) -> u32 {
        self.raw.capacity
    }

    /// Tokens taken, those of this request included.
    pub fn used(&self) -> u32 {
        self.raw.used
    }

    /// Tokens left.
    pub fn remaining(&self) -> u32 {
        self.raw.remaining
    }

    /// Tokens that this request took.
    pub fn granted(&self) -> u32 {
        self.raw.granted
    }

    /// The policy that decided; none, if none did.
    pub fn policy(&self) -> Option<PolicyId> {
        (self.raw.policy != u32::MAX).then_some(PolicyId(self.raw.policy))
    }

    /// End of the window charged, ns since the epoch; 0: none was. Of a bucket, when it is full.
    pub fn window(&self) -> u64 {
        self.raw.window
    }

    /// Time to the end of the window, or until the bucket is full.
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.raw.reset_after)
    }

    /// Time until a refused request would fit, or until a reservation's tokens are there; `None`:
    /// it never fits.
    pub fn retry_after(&self) -> Option<Duration> {
        (self.raw.retry_after != sys::STINT_NEVER)
            .then(|| Duration::from_nanos(self.raw.retry_after))
    }

    /// All fields, as C has them.
    pub fn raw(&self) -> &sys::stint_verdict {
        &self.raw
    }

    /// Of the verdicts of one request, the place of the one that says most to the client
    /// (`stint_tightest`); `None` of none.
    pub fn tightest(verdicts: &[Verdict]) -> Option<usize> {
        // SAFETY: a verdict is one of C's.
        let place = unsafe { sys::stint_tightest(verdicts.as_ptr().cast(), verdicts.len()) };
        (!verdicts.is_empty()).then_some(place)
    }
}

/// A request with options (`struct stint_request`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Request {
    raw: sys::stint_request,
}

impl Request {
    /// For so many tokens.
    pub fn new(policy: PolicyId, key: Key, cost: u32) -> Request {
        Request {
            raw: sys::stint_request { key: key.0, policy: policy.0, cost, ..Default::default() },
        }
    }

    /// Looks, takes nothing, counts nothing.
    pub fn peek(self) -> Request {
        self.flag(sys::STINT_PEEK)
    }

    /// Takes what is left if that is less than the cost.
    pub fn partial(self) -> Request {
        self.flag(sys::STINT_PARTIAL)
    }

    /// If the cost does not fit, refuses it and empties the key.
    pub fn drain(self) -> Request {
        self.flag(sys::STINT_DRAIN)
    }

    /// May take tokens ahead. The caller waits [`Verdict::retry_after`] before he does the work.
    pub fn reserve(self) -> Request {
        self.flag(sys::STINT_RESERVE)
    }

    /// Takes the whole cost, whatever is left. With [`peek`](Request::peek) it is the look before.
    pub fn charge(self) -> Request {
        self.flag(sys::STINT_CHARGE)
    }

    /// Takes for work that may come to nothing. Its refusal is nobody's: no first one, no strike.
    pub fn tentative(self) -> Request {
        self.flag(sys::STINT_TENTATIVE)
    }

    /// This request's own limit in place of the policy's.
    pub fn limit(mut self, limit: u32) -> Request {
        self.raw.limit = limit;
        self
    }

    /// Of a token bucket: how many tokens may be used after this request, and with
    /// [`reserve`](Request::reserve) how many of those ahead. At most all that the policy allows.
    pub fn burst(mut self, burst: u32) -> Request {
        self.raw.burst = burst;
        self
    }

    fn flag(mut self, flag: u32) -> Request {
        self.raw.flags |= flag;
        self
    }
}

/// Stops at slices of which one would be too short for C.
fn same_length(requests: &[Request], verdicts: &[Verdict]) {
    assert_eq!(requests.len(), verdicts.len(), "there is a verdict for each request");
}

impl Limiter {
    /// Takes `cost` tokens of a key if they are left in its present window.
    #[inline]
    pub fn take(&self, policy: PolicyId, key: Key, cost: u32) -> Verdict {
        self.take_at(policy, key, cost, sys::STINT_NOW)
    }

    /// [`take`](Limiter::take) at a time that was read before.
    ///   now  ns since the epoch, as [`now`](Limiter::now) tells them, within 60 s; one that is more
    ///        than two minutes off is a mistake, and the clock decides (`MISTAKEN_NOW`)
    #[inline]
    pub fn take_at(&self, policy: PolicyId, key: Key, cost: u32, now: u64) -> Verdict {
        let mut verdict = Verdict::default();
        // SAFETY: the verdict is there to be written.
        unsafe {
            sys::stint_take(self.raw.as_ptr(), policy.0, key.0, cost, now, &mut verdict.raw);
        }
        verdict
    }

    /// [`take`](Limiter::take) without a verdict, which saves the writing.
    #[inline]
    pub fn allows(&self, policy: PolicyId, key: Key, cost: u32) -> bool {
        // SAFETY: no verdict is asked for.
        unsafe {
            sys::stint_take(
                self.raw.as_ptr(),
                policy.0,
                key.0,
                cost,
                sys::STINT_NOW,
                ptr::null_mut(),
            )
        }
    }

    /// [`take`](Limiter::take) with all options.
    #[inline]
    pub fn decide(&self, request: &Request) -> Verdict {
        self.decide_at(request, sys::STINT_NOW)
    }

    /// [`decide`](Limiter::decide) at a time that was read before.
    #[inline]
    pub fn decide_at(&self, request: &Request, now: u64) -> Verdict {
        let mut verdict = Verdict::default();
        // SAFETY: both are valid during the call.
        unsafe {
            sys::stint_decide(self.raw.as_ptr(), &request.raw, now, &mut verdict.raw);
        }
        verdict
    }

    /// Says whether a verdict of this request would have [`BAD_REQUEST`](Verdict::BAD_REQUEST) or
    /// [`UNKNOWN_POLICY`](Verdict::UNKNOWN_POLICY), and why.
    pub fn check(&self, request: &Request) -> Result<()> {
        // SAFETY: both are valid during the call.
        checked(unsafe { sys::stint_request_check(self.raw.as_ptr(), &request.raw) }).map(|_| ())
    }

    /// Decides each request by itself, in order. Their cache misses overlap. Returns how many were
    /// allowed.
    ///
    /// # Panics
    /// If there is not a verdict for each request.
    pub fn decide_batch(&self, requests: &[Request], verdicts: &mut [Verdict]) -> usize {
        same_length(requests, verdicts);
        // SAFETY: both slices have that length, and are of C's structs.
        unsafe {
            sys::stint_decide_batch(
                self.raw.as_ptr(),
                requests.as_ptr().cast(),
                requests.len(),
                sys::STINT_NOW,
                verdicts.as_mut_ptr().cast(),
            )
        }
    }

    /// Decides at most 64 requests as one: all take their tokens, or none does. Two of one key by
    /// one policy make each verdict a [`BAD_REQUEST`](Verdict::BAD_REQUEST): add their costs.
    /// Returns whether all were allowed.
    ///
    /// # Panics
    /// If there is not a verdict for each request.
    pub fn decide_all(&self, requests: &[Request], verdicts: &mut [Verdict]) -> bool {
        same_length(requests, verdicts);
        // SAFETY: as in decide_batch.
        unsafe {
            sys::stint_decide_all(
                self.raw.as_ptr(),
                requests.as_ptr().cast(),
                requests.len(),
                sys::STINT_NOW,
                verdicts.as_mut_ptr().cast(),
            )
        }
    }

    /// Decides many groups of requests, each as [`decide_all`](Limiter::decide_all) does. Returns
    /// how many groups were allowed.
    ///   sizes  how many requests each group has
    ///
    /// # Panics
    /// If there is not a verdict for each request, or if the sizes are not those of all requests.
    pub fn decide_groups(
        &self,
        requests: &[Request],
        sizes: &[usize],
        verdicts: &mut [Verdict],
    ) -> usize {
        same_length(requests, verdicts);
        assert_eq!(sizes.iter().sum::<usize>(), requests.len(), "the groups have all requests");
        // SAFETY: as in decide_batch; no group goes beyond the slices.
        unsafe {
            sys::stint_decide_groups(
                self.raw.as_ptr(),
                requests.as_ptr().cast(),
                requests.len(),
                sizes.as_ptr(),
                sizes.len(),
                sys::STINT_NOW,
                verdicts.as_mut_ptr().cast(),
            )
        }
    }

    /// Gives back tokens for work that was not done, in the window in which they were taken.
    /// Returns how many.
    ///   verdict  of the take: what is given back is taken off [`Verdict::granted`]
    pub fn refund(&self, key: Key, verdict: &mut Verdict) -> u32 {
        let granted = verdict.granted();
        self.refund_tokens(key, verdict, granted)
    }

    /// [`refund`](Limiter::refund) of a part.
    ///   tokens  no more than [`Verdict::granted`] are given back
    pub fn refund_tokens(&self, key: Key, verdict: &mut Verdict, tokens: u32) -> u32 {
        // SAFETY: all may be any numbers.
        unsafe { sys::stint_refund(self.raw.as_ptr(), key.0, &mut verdict.raw, tokens) }
    }

    /// Gives back all that [`decide_all`](Limiter::decide_all) or
    /// [`decide_groups`](Limiter::decide_groups) took. Returns how many tokens.
    ///
    /// # Panics
    /// If there is not a verdict for each request.
    pub fn refund_all(&self, requests: &[Request], verdicts: &mut [Verdict]) -> u64 {
        same_length(requests, verdicts);
        // SAFETY: as in decide_batch.
        unsafe {
            sys::stint_refund_all(
                self.raw.as_ptr(),
                requests.as_ptr().cast(),
                verdicts.as_mut_ptr().cast(),
                requests.len(),
            )
        }
    }

    /// Makes a key as good as new. Returns whether there was anything to forget.
    pub fn reset(&self, policy: PolicyId, key: Key) -> bool {
        // SAFETY: both may be any numbers.
        unsafe { sys::stint_reset(self.raw.as_ptr(), policy.0, key.0) }
    }

    /// Gives a key another limit until an instant: 0 refuses everything, 2^28 nothing. The policy
    /// has `overrides` or `ban=`. (`stint_override`, whose name is a word of Rust's.)
    ///   until  ns since the epoch, by [`now`](Limiter::now), at most 366 days ahead
    pub fn set_override(&self, policy: PolicyId, key: Key, limit: u32, until: u64) -> Result<()> {
        // SAFETY: all may be any numbers.
        let result =
            unsafe { sys::stint_override(self.raw.as_ptr(), policy.0, key.0, limit, until) };
        checked(result).map(|_| ())
    }

    /// The override of a key, or its ban, which has limit 0: the limit, and until when.
    pub fn get_override(&self, policy: PolicyId, key: Key) -> Result<(u32, u64)> {
        let (mut limit, mut until) = (0, 0);
        // SAFETY: both are there to be written.
        let result = unsafe {
            sys::stint_override_get(self.raw.as_ptr(), policy.0, key.0, &mut limit, &mut until)
        };
        checked(result).map(|_| (limit, until))
    }

    /// Ends a key's override, or its ban, now.
    pub fn clear_override(&self, policy: PolicyId, key: Key) -> Result<()> {
        // SAFETY: both may be any numbers.
        checked(unsafe { sys::stint_override_clear(self.raw.as_ptr(), policy.0, key.0) })
            .map(|_| ())
    }

    /// Fetches the cache line that a decision on this key will need.
    #[inline]
    pub fn prefetch(&self, key: Key) {
        // SAFETY: a key may be any number.
        unsafe { sys::stint_prefetch(self.raw.as_ptr(), key.0) }
    }

    /// Reads the limiter's clock: ns since the epoch.
    #[inline]
    pub fn now(&self) -> u64 {
        // SAFETY: it has no other argument.
        unsafe { sys::stint_now(self.raw.as_ptr()) }
    }
}

// ---- Watching ----------------------------------------------------------------------------------

/// A key that has used tokens of a policy (`struct stint_entry`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its hash.
    pub key: Key,
    /// By which it was decided.
    pub policy: PolicyId,
    /// `enum stint_entry_flags`.
    pub flags: u32,
    /// Tokens.
    pub used: u64,
    /// End of its window, ns since the epoch.
    pub end: u64,
    /// Its name, as [`Limiter::label`] left it; empty: none is known.
    pub label: Vec<u8>,
    /// How often it was named.
    pub refused_windows: u32,
    /// Of an override: its limit.
    pub limit: u64,
    /// Of a ban, strikes or a refusal: since when, ns since the epoch; 0: not known.
    pub since: u64,
    /// When it was last named, ns since the epoch; 0: no name is known.
    pub refused_last: u64,
}

/// What [`Limiter::each`] calls, and the panic that stopped it.
struct Visit<'a> {
    callback: &'a mut dyn FnMut(Entry) -> bool,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

type Visitor = unsafe extern "C" fn(*mut c_void, *const sys::stint_entry) -> bool;

unsafe extern "C" fn visit(context: *mut c_void, entry: *const sys::stint_entry) -> bool {
    let (visit, entry) = (&mut *context.cast::<Visit<'_>>(), &*entry);
    let label = if entry.label.is_null() {
        Vec::new()
    } else {
        std::slice::from_raw_parts(entry.label.cast(), entry.label_length as usize).to_vec()
    };
    let entry = Entry {
        key: Key(entry.key),
        policy: PolicyId(entry.policy),
        flags: entry.flags,
        used: entry.used,
        end: entry.end,
        label,
        refused_windows: entry.refused_windows,
        limit: entry.limit,
        since: entry.since,
        refused_last: entry.refused_last,
    };
    // A panic must not unwind through C.
    match catch_unwind(AssertUnwindSafe(|| (visit.callback)(entry))) {
        Ok(more) => more,
        Err(panic) => {
            visit.panic = Some(panic);
            false
        }
    }
}

/// What [`Limiter::metrics`] writes.
#[derive(Clone, Debug, Default)]
pub struct MetricsOptions<'a> {
    /// For all samples: names and values.
    pub labels: &'a [(&'a str, &'a str)],
    /// Leaves `# EOF` out.
    pub no_eof: bool,
    /// Does not look at every slot.
    pub no_scan: bool,
}

/// The fields that [`Limiter::headers`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Style {
    /// Retry-After alone.
    RetryAfter = 0,
    /// RateLimit-Policy and RateLimit.
    Draft = sys::STINT_HEADERS_DRAFT,
    /// X-RateLimit-Limit, -Remaining and -Reset.
    Legacy = sys::STINT_HEADERS_LEGACY,
    /// Both.
    Both = sys::STINT_HEADERS_DRAFT | sys::STINT_HEADERS_LEGACY,
}

impl Limiter {
    /// The counts of the table. Reads every slot.
    pub fn stats(&self) -> Result<sys::stint_stats> {
        // SAFETY: it is a struct of numbers, of which 0 is one.
        let mut stats: sys::stint_stats = unsafe { std::mem::zeroed() };
        stats.size = size_of::<sys::stint_stats>();
        // SAFETY: it has its size.
        checked(unsafe { sys::stint_stats_get(self.raw.as_ptr(), &mut stats) }).map(|_| stats)
    }

    /// The counts of one policy.
    pub fn policy_stats(&self, id: PolicyId) -> Result<sys::stint_policy_stats> {
        // SAFETY: as in stats.
        let mut stats: sys::stint_policy_stats = unsafe { std::mem::zeroed() };
        stats.size = size_of::<sys::stint_policy_stats>();
        // SAFETY: it has its size.
        let result = unsafe { sys::stint_policy_stats_get(self.raw.as_ptr(), id.0, &mut stats) };
        checked(result).map(|_| stats)
    }

    /// Tells of every live key of the table, by each of its policies, in no order, until the
    /// callback returns false.
    pub fn each(&self, mut callback: impl FnMut(Entry) -> bool) -> Result<()> {
        self.visit(&mut callback, |raw, visit, to| {
            // SAFETY: `visit` is given `to`, which nobody else uses meanwhile.
            unsafe { sys::stint_each(raw, visit, to) }
        })
    }

    /// Tells the same of one key, and its strikes, without a look at all others.
    pub fn each_of(&self, key: Key, mut callback: impl FnMut(Entry) -> bool) -> Result<()> {
        self.visit(&mut callback, |raw, visit, to| {
            // SAFETY: as in each.
            unsafe { sys::stint_each_of(raw, key.0, visit, to) }
        })
    }

    fn visit(
        &self,
        callback: &mut dyn FnMut(Entry) -> bool,
        call: impl Fn(*mut sys::stint_limiter, Option<Visitor>, *mut c_void) -> c_int,
    ) -> Result<()> {
        let mut to = Visit { callback, panic: None };
        let result = call(self.raw.as_ptr(), Some(visit), (&mut to as *mut Visit<'_>).cast());
        if let Some(panic) = to.panic {
            resume_unwind(panic);
        }
        checked(result).map(|_| ())
    }

    /// Leaves a key's name for those who look at the table, and counts a window in which it was
    /// refused.
    pub fn label(&self, key: Key, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        // SAFETY: the name can be read.
        let result =
            unsafe { sys::stint_label(self.raw.as_ptr(), key.0, name.as_ptr().cast(), name.len()) };
        checked(result).map(|_| ())
    }

    /// All counts in the OpenMetrics text format.
    pub fn metrics(&self, options: &MetricsOptions<'_>) -> Result<String> {
        let words = options
            .labels
            .iter()
            .flat_map(|(name, value)| [*name, *value])
            .map(|word| c_string(word, "a label"))
            .collect::<Result<Vec<CString>>>()?;
        let mut labels: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        labels.push(ptr::null());
        let raw = sys::stint_metrics_options {
            size: size_of::<sys::stint_metrics_options>(),
            labels: labels.as_ptr(),
            flags: if options.no_eof { sys::STINT_METRICS_NO_EOF } else { 0 }
                | if options.no_scan { sys::STINT_METRICS_NO_SCAN } else { 0 },
            reserved: 0,
        };
        // SAFETY: the labels end in null, and live until the call returns.
        text_of(|buffer, size| unsafe { sys::stint_metrics(self.raw.as_ptr(), &raw, buffer, size) })
    }

    /// The fields of a response that tell of the verdicts of one request, each a line that ends in
    /// CR LF.
    pub fn headers(&self, style: Style, verdicts: &[Verdict]) -> Result<String> {
        // SAFETY: the slice has that length, and is of C's type.
        text_of(|buffer, size| unsafe {
            sys::stint_headers(
                self.raw.as_ptr(),
                style as u32,
                verdicts.as_ptr().cast(),
                verdicts.len(),
                buffer,
                size,
            )
        })
    }
}

/// "MAJOR.MINOR.PATCH" of the library that is running.
pub fn version() -> &'static str {
    // SAFETY: it is text of ASCII that is never freed.
    unsafe { CStr::from_ptr(sys::stint_version()) }.to_str().unwrap_or("")
}
