"""Frames: complete ones from any pieces, in both directions."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kgroup.errors import ConnectionLostError, ProtocolError
from kgroup.wire.byte_streams import FrameStream


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(
    bodies=st.lists(st.binary(min_size=4, max_size=20), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 100), max_size=8),
)
def test_frames_are_found_in_any_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    """However the stream is cut, the same frames arrive in order, and nothing is left."""

    async def run() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)

        async def send() -> None:
            for piece in in_pieces(data, cuts):
                await theirs.send_all(piece)
                await trio.testing.wait_all_tasks_blocked()
            await theirs.aclose()

        frames = FrameStream(ours, "peer")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert [await frames.receive() for _ in bodies] == bodies
            assert frames.unread == 0
            with pytest.raises(ConnectionLostError, match="closed the connection cleanly"):
                await frames.receive()

    trio.run(run)


async def test_a_cancelled_receive_keeps_what_has_arrived() -> None:
    """A server may stop waiting for a frame and continue later."""
    ours, theirs = trio.testing.memory_stream_pair()
    frames = FrameStream(ours, "peer")
    await theirs.send_all(b"\0\0\0\x04ab")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.receive)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert frames.unread == 6
    await theirs.send_all(b"cd")
    assert await frames.receive() == b"abcd"


async def test_sending_into_a_closed_stream_is_a_lost_connection() -> None:
    """If either side was closed, the error names the peer."""
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.aclose()
    with pytest.raises(ConnectionLostError, match="lost the connection to peer"):
        await FrameStream(ours, "peer").send(b"body")
    with pytest.raises(ConnectionLostError, match="lost the connection to me"):
        await FrameStream(theirs, "me").send(b"body")


async def test_the_limit_is_the_longest_frame_that_is_read() -> None:
    """A frame of exactly the limit is read, one byte more is refused before it has arrived."""
    ours, theirs = trio.testing.memory_stream_pair()
    frames = FrameStream(ours, "peer", max_frame=4)
    await theirs.send_all(b"\0\0\0\x04abcd\0\0\0\x05")
    assert await frames.receive() == b"abcd"
    with pytest.raises(ProtocolError, match="peer announced a frame of 5 bytes, the limit is 4"):
        await frames.receive()


async def test_what_a_cut_frame_has_left_is_released() -> None:
    """Of a stream that is read no more, only the beginning is kept, which says what was sent."""
    ours, theirs = trio.testing.memory_stream_pair()
    frames = FrameStream(ours, "peer")
    await theirs.send_all(b"\0\x10\0\0" + bytes(100_000))
    await theirs.aclose()
    with pytest.raises(ConnectionLostError, match="100004 bytes of a response"):
        await frames.receive()
    frames.discard()
    assert (frames.unread, frames.beginning) == (4, b"\0\x10\0\0")
