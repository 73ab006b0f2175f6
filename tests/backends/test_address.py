"""The address of an array is that in its array interface."""

import numpy as np
import pytest

from mytorch.backends import address

whole = np.zeros((3, 4, 5), np.float32)
frozen = np.zeros(3)
frozen.flags.writeable = False
ARRAYS = {
    "whole": whole, "transposed": whole.T, "part": whole[1:, 2], "backwards": whole[::-1, :, ::-2],
    "no dims": np.zeros(()), "no elements": np.zeros((0, 3)), "view of no elements": whole[3:],
    "read only": frozen, "broadcast": np.broadcast_to(frozen, (2, 3)), "half": np.zeros(3, np.float16),
    "subclass": np.zeros(3).view(np.recarray),
}


@pytest.mark.parametrize("read", [address.address_of, address._from_header, address._from_interface])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_it_is_what_numpy_says(array, read):
    assert read(array) == array.__array_interface__["data"][0] == array.ctypes.data
