"""Settings and facts of the process: devices, errors, logging, the version, the strategy whose scope is open."""
