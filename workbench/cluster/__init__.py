"""WHERE it runs: schedulers, workers, security (dask)."""
