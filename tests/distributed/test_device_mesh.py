"""Device meshes: coordinates, slices, groups, as PyTorch's, on each rank of a world of any size."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh as of_torch
from torch.testing._internal.distributed.fake_pg import FakeStore

import mytorch
import mytorch.distributed as dist

MESHES = {
    (8,): ("world",), (2, 4): ("dp", "tp"), (2, 2, 2): ("dp", "pp", "tp"), (2, 3): None, (1, 4): ("a", "b"),
}


@contextlib.contextmanager
def world(rank, size):
    """A fake world in both libraries."""
    dist.init_process_group("fake", rank=rank, world_size=size, store=object())
    torch.distributed.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        torch.distributed.destroy_process_group()


def slices(names):
    """Names, pairs of names, and all."""
    return [] if names is None else [*names, *itertools.combinations(names, 2), names]


def described(mesh, dist):
    groups = [dist.get_process_group_ranks(group) for group in mesh.get_all_groups()]
    local = [mesh.get_local_rank(dim) for dim in range(mesh.ndim)]
    text = str(mesh).replace("()", "4")  # a stride that says nothing, of a dim of one rank
    place = mesh.get_coordinate()
    return text, tuple(mesh.shape), mesh.ndim, mesh.size(), mesh.mesh.tolist(), (*place,), groups, local


@pytest.mark.filterwarnings("ignore:Slicing a flattened dim")
@pytest.mark.parametrize("shape", MESHES)
def test_each_rank_has_pytorchs_mesh(shape):
    names, size = MESHES[shape], int(np.prod(shape))
    for rank in range(size):
        with world(rank, size):
            found = dist.init_device_mesh("cpu", shape, mesh_dim_names=names)
            wanted = of_torch("cpu", shape, mesh_dim_names=names)
            assert described(found, dist) == described(wanted, torch.distributed)
            assert found.get_rank() == rank
            for part in slices(names):
                assert described(found[part], dist) == described(wanted[part], torch.distributed), part
            if names is not None and len(names) > 1:
                ours, theirs = found[names[:2]]._flatten("both"), wanted[names[:2]]._flatten("both")
                assert described(ours, dist) == described(theirs, torch.distributed)
                assert described(found["both"], dist) == described(wanted["both"], torch.distributed)
                assert [*found.get_group("both").ranks] == ours.mesh.tolist()


def test_meshes_are_equal_by_what_they_are():
    with world(0, 4):
        one, two = (dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")) for _ in range(2))
        assert one == two and hash(one) == hash(two) and one["a"] == two["a"] and one["a"] != one["b"]
        assert one != dist.init_device_mesh("cpu", (4,)) and one["a", "b"] is one
        with one:
            assert dist.device_mesh.current_mesh() is one
        assert dist.device_mesh.current_mesh() is None


def test_of_groups_that_there_are():
    with world(2, 4):
        group = dist.new_group([0, 2])
        assert dist.DeviceMesh.from_group(group, "cpu", mesh_dim_names=("a",)).mesh.tolist() == [0, 2]
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        groups, names = mesh.get_all_groups(), {"mesh_dim_names": ("a", "b")}
        again = dist.DeviceMesh.from_group(groups, "cpu", [[0, 1], [2, 3]], **names)
        assert again == mesh and again.get_group("a") is mesh.get_group("a")
        with pytest.raises(ValueError, match="doesn't fit"):
            dist.DeviceMesh.from_group(groups[::-1], "cpu", mesh.mesh, **names)


ORDERS = [[5, 4, 3], [2, 1, 0]], [[5, 1], [2, 0]]


@pytest.mark.parametrize("ranks", ORDERS)
def test_of_ranks_in_any_order_and_of_some_of_them(ranks):
    for rank in range(6):
        with world(rank, 6):
            found = dist.DeviceMesh("cpu", ranks, mesh_dim_names=("a", "b"))
            wanted = torch.distributed.DeviceMesh("cpu", ranks, mesh_dim_names=("a", "b"))
            for mesh, of in ((found, dist), (wanted, torch.distributed)):
                if rank not in np.array(ranks):
                    assert mesh.get_coordinate() is None
                    for call in (mesh.get_group, lambda dim, mesh=mesh: mesh.get_all_groups()):
                        with pytest.raises(IndexError):
                            call("b")
                else:
                    assert described(mesh, of) == described(wanted, torch.distributed)
            assert rank in np.array(ranks) or found.get_local_rank("b") == -1


def of(*shape, **names):
    return dist.init_device_mesh("cpu", shape, **names)


def test_what_is_wrong_is_said():
    with world(0, 4):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        wrong = {
            "2 dims": (RuntimeError, mesh.get_group), "no dim 2": (KeyError, lambda: mesh.get_group(2)),
            "'c'": (KeyError, lambda: mesh["c"]), "each once": (KeyError, lambda: mesh["a", "a"]),
            "mesh's order": (KeyError, lambda: mesh["b", "a"]),
            "unique": (RuntimeError, lambda: of(2, 2, mesh_dim_names=("a", "a"))),
            "same length": (RuntimeError, lambda: of(4, mesh_dim_names=("a", "b"))),
            "device type": (RuntimeError, lambda: dist.init_device_mesh("cuda:0", (4,))),
            "doesn't fit 4 ranks": (RuntimeError, lambda: of(8)),
            r"ranks \[\] doesn't fit": (RuntimeError, lambda: of(0)),
            "without mesh_dim_names": (RuntimeError, lambda: of(4)["a"]),
        }
        for text, (kind, call) in wrong.items():
            with pytest.raises(kind, match=text):
                call()


def test_collectives_along_the_dims_of_a_world_of_threads():
    def ranks():
        mesh = dist.init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
        found = []
        for name in ("dp", "tp"):
            x = mytorch.tensor([float(dist.get_rank())])
            dist.all_reduce(x, group=mesh.get_group(name))
            found.append(x.item())
        return found, mesh.get_coordinate()

    ranks = dist.worlds.run(6, ranks)
    grid = np.arange(6).reshape(2, 3)
    for rank, (found, place) in enumerate(ranks):
        row, column = divmod(rank, 3)
        assert found == [grid[:, column].sum(), grid[row].sum()] and place == (row, column)


def test_a_rank_of_a_large_world_knows_the_shapes():
    with_rank = {"backend": "fake", "rank": 1234, "world_size": 4096, "store": object()}
    dist.init_process_group(**with_rank)
    try:
        mesh = dist.init_device_mesh("cpu", (64, 8, 8), mesh_dim_names=("dp", "pp", "tp"))
        assert mesh.get_coordinate() == (19, 2, 2)
        x, group = mytorch.zeros(16, 3, device="meta"), mesh.get_group("tp")
        whole, part = mytorch.zeros(128, 3, device="meta"), mytorch.zeros(2, 3, device="meta")
        dist.all_reduce(x, group=group)
        dist.all_gather_into_tensor(whole, x, group=group)
        dist.reduce_scatter_tensor(part, x, group=group)
        dist.all_to_all_single(x, x.clone(), group=group)
        assert x.is_meta and whole.shape == (128, 3) and part.shape == (2, 3)
        with pytest.raises(ValueError, match="don't fit"):
            dist.all_gather_into_tensor(part, x, group=group)
    finally:
        dist.destroy_process_group()
