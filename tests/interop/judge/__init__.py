"""The outside judges: peer clients, reference servers and record-by-record checks, independent of the product's code."""
