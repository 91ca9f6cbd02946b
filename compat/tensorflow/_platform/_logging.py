"""`tf.get_logger` and `tf.compat.v1.logging`: Python's logger "tensorflow"."""

import logging
from typing import Any

DEBUG, INFO, WARN, ERROR, FATAL = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL


def get_logger() -> logging.Logger:
    """Return the logger that programs of TensorFlow write to."""
    return logging.getLogger("tensorflow")


def get_verbosity() -> int:
    """Return the level from which on messages are shown."""
    return get_logger().getEffectiveLevel()


def set_verbosity(v: Any) -> None:
    """Show messages from a level on."""
    get_logger().setLevel(v)


def log(level: Any, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log a message at a level."""
    get_logger().log(level, msg, *args, **kwargs)


def debug(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log a message for finding errors."""
    get_logger().debug(msg, *args, **kwargs)


def info(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log a message about what goes on."""
    get_logger().info(msg, *args, **kwargs)


def warning(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log a warning."""
    get_logger().warning(msg, *args, **kwargs)


warn = warning


def error(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log an error."""
    get_logger().error(msg, *args, **kwargs)


def fatal(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log an error that ends the program; it does not end it."""
    get_logger().critical(msg, *args, **kwargs)


def vlog(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log a message of a verbosity, 0 being `debug`."""
    get_logger().log(max(1, DEBUG - level), msg, *args, **kwargs)


def log_if(level: Any, msg: Any, condition: Any, *args: Any) -> None:
    """Log a message if a condition holds."""
    if condition:
        log(level, msg, *args)


def flush() -> None:
    """Write out what handlers keep."""
    for handler in get_logger().handlers:
        handler.flush()
