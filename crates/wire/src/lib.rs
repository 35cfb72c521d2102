//! Wire codecs, one module for each protocol.
