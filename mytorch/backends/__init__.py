"""What touches a vendor library, the C allocator or a thread pool."""
