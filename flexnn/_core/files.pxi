# Descriptors that an object owns, so that no interrupt between opening and keeping one can lose it.
import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno

cdef extern from "<fcntl.h>" nogil:
    int AT_FDCWD, O_CLOEXEC
    int openat(int folder, const char *path, int flags, int mode)
cdef extern from "<unistd.h>" nogil:
    int _close "close"(int fd)
cdef extern from "<sys/vfs.h>" nogil:
    cdef struct _statfs "statfs":
        unsigned long f_type
    int fstatfs(int fd, _statfs *out)

cdef tuple _MEMORY_SYSTEMS = (0x01021994, 0x858458F6, 0x958458F6)  # tmpfs, ramfs, hugetlbfs


def is_memory_file(int fd):
    """Whether the file system of an open file keeps files in memory. OSError."""
    cdef _statfs found
    if fstatfs(fd, &found):
        raise OSError(errno, os.strerror(errno))
    return (found.f_type & 0xFFFFFFFF) in _MEMORY_SYSTEMS


cdef class OpenFile:
    """A file or folder, opened as os.open does; a relative ``path`` is one in the folder ``dir_fd``. It closes with its
    last user. ``fd`` is -1 once it is closed. OSError."""

    cdef readonly int fd

    def __init__(self, path, int flags, int mode=0o666, *, int dir_fd=AT_FDCWD):
        cdef bytes raw = os.fsencode(path)
        cdef const char *name = raw
        cdef int fd = -1
        cdef int error
        if self.fd >= 0:
            raise RuntimeError("the file is open already")
        if b"\0" in raw:
            raise ValueError("embedded null byte")
        while fd < 0:
            with nogil:
                fd = openat(dir_fd, name, flags | O_CLOEXEC, mode)
            error = errno
            if fd < 0 and error != EINTR:
                raise OSError(error, os.strerror(error), path)
            if fd < 0:
                PyErr_CheckSignals()
        self.fd = fd

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        self.close()

    def fileno(self):
        """The descriptor."""
        return self.fd

    cpdef close(self):
        """Close the file; twice is fine."""
        cdef int fd = self.fd
        self.fd = -1
        if fd >= 0:
            _close(fd)
