"""Servers and workers in processes of their own: what they are told, and how they do it, whatever carries the messages."""

from tfdist_jax._servers._connect import connect as connect
from tfdist_jax._servers._plan import (
    Call as Call,
    ExportedPart as ExportedPart,
    Message as Message,
    Part as Part,
    Plan as Plan,
    Round as Round,
    ServerCall as ServerCall,
    load_part as load_part,
)
from tfdist_jax._servers._runner import Ask as Ask, BeforeChanges as BeforeChanges, Outcome as Outcome, Runner as Runner
from tfdist_jax._servers._serve import serve as serve
from tfdist_jax._servers._server import (
    Answer as Answer,
    Caller as Caller,
    Sender as Sender,
    Server as Server,
    StaleSenderError as StaleSenderError,
)
