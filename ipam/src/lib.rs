//! Address management: pools, blocks, affinities, handles, and the allocator that owns them.
