"""A server: the rooms put together."""

from hoglab.app.server import HTTP_GRACE_S as HTTP_GRACE_S
from hoglab.app.server import Hoglab as Hoglab
from hoglab.app.server import JoiningProcess as JoiningProcess
from hoglab.app.server import NotPreparedError as NotPreparedError
from hoglab.app.server import calm_garbage_collector as calm_garbage_collector
