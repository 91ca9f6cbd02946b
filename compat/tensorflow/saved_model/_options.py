"""`tf.saved_model.SaveOptions` and `LoadOptions`."""

from collections.abc import Mapping, Sequence
from typing import Any, final


@final
class SaveOptions:
    """Drop-in for `tf.saved_model.SaveOptions`.

    Differs from TensorFlow: `extra_tags` counts; the other options are about TensorFlow's graphs and files, and accepted.
    Ref: https://www.tensorflow.org/api_docs/python/tf/saved_model/SaveOptions
    """

    def __init__(
        self,
        namespace_whitelist: Sequence[str] | None = None,
        save_debug_info: bool = False,
        function_aliases: Mapping[str, Any] | None = None,
        experimental_debug_stripper: bool = False,
        experimental_io_device: str | None = None,
        experimental_variable_policy: Any = None,
        experimental_custom_gradients: bool = True,
        experimental_image_format: bool = False,
        experimental_skip_saver: bool = False,
        experimental_sharding_callback: Any = None,
        extra_tags: Sequence[str] | None = None,
    ) -> None:
        """Keep the options.

        Args:
            namespace_whitelist: Accepted.
            save_debug_info: Accepted.
            function_aliases: Accepted.
            experimental_debug_stripper: Accepted.
            experimental_io_device: Accepted.
            experimental_variable_policy: Accepted: a variable has one value, whatever strategy has made it.
            experimental_custom_gradients: Accepted: the gradients of functions are saved.
            experimental_image_format: Accepted.
            experimental_skip_saver: Accepted.
            experimental_sharding_callback: Accepted.
            extra_tags: What `load` may be asked for besides "serve".
        """
        self.namespace_whitelist = namespace_whitelist
        self.save_debug_info = save_debug_info
        self.function_aliases = dict(function_aliases or {})
        self.experimental_debug_stripper = experimental_debug_stripper
        self.experimental_io_device = experimental_io_device
        self.experimental_variable_policy = experimental_variable_policy
        self.experimental_custom_gradients = experimental_custom_gradients
        self.experimental_image_format = experimental_image_format
        self.experimental_skip_saver = experimental_skip_saver
        self.experimental_sharding_callback = experimental_sharding_callback
        self.extra_tags = extra_tags


@final
class LoadOptions:
    """Drop-in for `tf.saved_model.LoadOptions`.

    Differs from TensorFlow: all variables are loaded, whole.
    Ref: https://www.tensorflow.org/api_docs/python/tf/saved_model/LoadOptions
    """

    def __init__(
        self,
        allow_partial_checkpoint: bool = False,
        experimental_io_device: str | None = None,
        experimental_skip_checkpoint: bool = False,
        experimental_variable_policy: Any = None,
        experimental_load_function_aliases: bool = False,
    ) -> None:
        """Keep the options.

        Args:
            allow_partial_checkpoint: Accepted: no value of a saved model is ever missing.
            experimental_io_device: Accepted.
            experimental_skip_checkpoint: Not supported.
            experimental_variable_policy: Accepted.
            experimental_load_function_aliases: Not supported.

        Raises:
            NotImplementedError: If an option is not supported.
        """
        if experimental_skip_checkpoint:
            raise NotImplementedError(
                "Variables are loaded with their values: leave `experimental_skip_checkpoint` out, and assign other values to them."
            )
        if experimental_load_function_aliases:
            raise NotImplementedError(
                "Aliases of functions are not saved: leave `experimental_load_function_aliases` out, and take functions by name."
            )
        self.allow_partial_checkpoint = allow_partial_checkpoint
        self.experimental_io_device = experimental_io_device
        self.experimental_skip_checkpoint = experimental_skip_checkpoint
        self.experimental_variable_policy = experimental_variable_policy
        self.experimental_load_function_aliases = experimental_load_function_aliases
