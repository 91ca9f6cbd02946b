"""Run a program under real TensorFlow with the processor split: `on_logical_devices.py N script.py [args]`."""

import os
import runpy
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # With it, TensorFlow 2.21 crashes in the gradient of some poolings.

import tensorflow as tf

(processor,) = tf.config.list_physical_devices("CPU")
parts = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv[1])
tf.config.set_logical_device_configuration(processor, parts)
sys.argv = sys.argv[2:]
sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
runpy.run_path(sys.argv[0], run_name="__main__")
