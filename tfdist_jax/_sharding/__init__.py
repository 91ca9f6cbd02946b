"""Devices with names, and arrays over them: layouts, placement, batches, values per replica, fused reductions."""
