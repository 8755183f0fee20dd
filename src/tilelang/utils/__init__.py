"""`tilelang.utils`: targets by name, and tensors for tests."""
