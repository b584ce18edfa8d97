# Layouts of the records that Python fills, from C's own tables.
from flexnn._core.c_engine cimport fx_engine_records
from flexnn._core.c_record cimport fx_record

RECORDS = {}
"""Of each record: bytes, and (name, C type, offset, elements of an array or 0) of each field."""


cdef int _add_records(const fx_record *table) except -1:
    """Add a table of records, which ends with one that has no name."""
    cdef Py_ssize_t i = 0, j
    while table[i].name != NULL:
        fields = []
        j = 0
        while table[i].fields[j].name != NULL:
            fields.append((table[i].fields[j].name.decode(), table[i].fields[j].type.decode(),
                           table[i].fields[j].offset, table[i].fields[j].count))
            j += 1
        RECORDS[table[i].name.decode()] = (table[i].bytes, tuple(fields))
        i += 1
    return 0


_add_records(fx_engine_records)
