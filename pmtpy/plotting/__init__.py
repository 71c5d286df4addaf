"""Pictures of recordings and of comparisons."""
