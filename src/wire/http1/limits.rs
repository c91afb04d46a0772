//! The limits of the reader. Each bounds memory or work that a peer could otherwise choose; reaching one is an
//! error of its own category, never a cut.

/// Bytes of one response head, its status line and blank line included. Gateways with large cookies and policies
/// send some 10 KiB; curl and nginx stop at similar sizes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Header fields of one head, and trailer fields of one trailer section. CDNs send about 60; 100 is a common limit
/// of other clients and has been reached in practice.
pub const FIELDS_MAX: usize = 256;

/// Bytes of one trailer section. Trailers hold checksums and timings; the bound is the head's.
pub const TRAILER_BYTES_MAX: usize = HEAD_BYTES_MAX;

/// Interim (1xx) responses before the final one. RFC 9110 15.2 sets no bound; other clients stop at 5 to 8, and
/// progress reports (102) of slow servers justify more.
pub const INTERIM_MAX: u32 = 16;

/// Bytes of a chunk-size line before its extensions: 16 hex digits hold every size, the rest is room for the
/// leading zeros of servers that print fixed widths.
pub const CHUNK_SIZE_BYTES_MAX: u32 = 64;

/// Bytes of one line's chunk extensions. RFC 9112 7.1.1 asks for a bound; signatures of proxies take some 200.
pub const CHUNK_EXTENSION_BYTES_MAX: u32 = 4 * 1024;
