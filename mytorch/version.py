__version__ = "0.1.0"
cuda = hip = git_version = None  # no CUDA is built in: CuPy brings its own
debug = False
