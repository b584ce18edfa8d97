# The end of a session that nobody closed.


@cython.no_gc_clear
cdef class Ending:
    """Gives back what a session has when this goes, without a line of Python's, in which what a signal handler raises
    would be lost: it closes ``engine`` and then ``files``. Give it to nobody but the session. Of a session of a pool:
    ``leave`` says what goes to which list instead, to be closed by a later call of the pool."""

    cdef Engine engine
    cdef tuple files
    cdef list leaving
    cdef object run

    def __init__(self, Engine engine, tuple files=()):
        self.engine, self.files = engine, files

    def leave(self, run, list leaving):
        """Have ``run`` added to the list first."""
        self.run, self.leaving = run, leaving

    def stay(self):
        """Add nothing to a list: the run was closed, or is in it."""
        self.run = self.leaving = None

    def __dealloc__(self):
        cdef OpenFile file
        if self.leaving is not None:
            self.leaving.append(self.run)
        if self.engine is None or self.engine.busy:
            return
        self.engine.watch = None  # which may lead back to the engine
        self.engine.close(self.files)
        for file in self.files:
            file.close()
