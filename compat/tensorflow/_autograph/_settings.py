"""What `tf.autograph` offers besides conversion; diastatic-malt's own."""

from malt.core.converter import Feature as Feature
from malt.lang.directives import set_loop_options as set_loop_options
from malt.utils.ag_logging import set_verbosity as set_verbosity, trace as trace
