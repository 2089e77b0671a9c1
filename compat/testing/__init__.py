"""Parts of mx.test_utils: assertions, checks of symbols and blocks, random arrays, data sets."""
