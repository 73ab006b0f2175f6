"""What touches a vendor library, the C allocator or a thread pool."""

from .flags import cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum
