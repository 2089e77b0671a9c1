"""Parts of mx.test_utils: data sets, statistics of random generators, matrices."""
