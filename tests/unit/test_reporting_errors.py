"""What is said of a call that Redis did not carry out."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from stream_dedup.errors import ServiceError
from stream_dedup.index.connection import reporting_errors


def test_a_call_of_a_pipeline_is_not_quoted() -> None:
    call = "FCALL stream_dedup_2_register 2 sd:{0}: (\x01\n) document-17"

    with pytest.raises(ServiceError) as raised, reporting_errors():
        raise ResponseError(f"Command # 1 ({call}) of pipeline caused error: it is loading")

    said = str(raised.value)
    assert said.startswith("Redis did not carry out a call (it is loading). ")
    assert "document-17" not in said
