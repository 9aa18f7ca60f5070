"""Ranks get places, or a refusal with the numbers and a way out."""

import pytest

from workbench.cluster.placement import Place, Room, place
from workbench.errors import ClusterError

CPU = Room(host="a", cores=4)


def test_ranks_share_the_cores():
    places = place(2, (CPU,), backend="gloo", oversubscribe=False)

    assert places == (Place(room=0, device="cpu", threads=2),) * 2


def test_more_ranks_than_cores_are_refused_with_the_numbers():
    with pytest.raises(ClusterError) as caught:
        place(8, (CPU,), backend="gloo", oversubscribe=False)

    assert caught.value.message == "8 ranks were asked for, a has 4 CPU cores"
    assert (
        caught.value.hint
        == "ask for 4 ranks, or pass oversubscribe=True to share cores"
    )


def test_cores_can_be_shared_on_request():
    places = place(8, (CPU,), backend="gloo", oversubscribe=True)

    assert len(places) == 8


def test_neighbours_live_together():
    rooms = (CPU, Room(host="b", cores=4))

    places = place(8, rooms, backend="gloo", oversubscribe=False)

    assert [each.room for each in places] == [0] * 4 + [1] * 4


def test_two_ranks_never_share_a_gpu():
    rooms = (Room(host="a", cores=64, devices=("GPU-1", "GPU-2")),)

    places = place(2, rooms, backend="nccl", oversubscribe=True)

    assert [each.device for each in places] == ["GPU-1", "GPU-2"]
    with pytest.raises(ClusterError, match="3 ranks were asked for, a has 2 GPUs"):
        place(3, rooms, backend="nccl", oversubscribe=True)
