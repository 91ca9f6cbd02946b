# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.summary._kinds import (
    audio as audio,
    histogram as histogram,
    image as image,
    scalar as scalar,
    text as text,
    write as write,
)
from tfdist_jax.compat.tensorflow.summary._recording import (
    record_if as record_if,
    should_record_summaries as should_record_summaries,
)
from tfdist_jax.compat.tensorflow.summary._trace import (
    graph as graph,
    trace_export as trace_export,
    trace_off as trace_off,
    trace_on as trace_on,
)
from tfdist_jax.compat.tensorflow.summary._writer import (
    SummaryWriter as SummaryWriter,
    create_file_writer as create_file_writer,
    create_noop_writer as create_noop_writer,
    flush as flush,
)
from tfdist_jax.compat.tensorflow.summary import (
    experimental as experimental,
)
