/* Records that C and numpy share. The fields of each are listed once:
 *
 *     #define FX_PAIR_FIELDS(F, A, R) F(R, int64_t, first) A(R, int32_t, others, 2)
 *     FX_RECORD(fx_pair, FX_PAIR_FIELDS);
 *
 * F is a field of a type, A an array of so many. The list makes the struct, and a table of names, types and offsets
 * from which flexnn._core makes the numpy dtype: so every offset in Python is the compiler's. */
#ifndef FLEXNN_RECORD_H
#define FLEXNN_RECORD_H

#include <stddef.h>

typedef struct fx_record_field {
    const char *name;
    const char *type; /* name in C of a number ("int32_t") or of a record before this one */
    size_t offset;
    size_t count; /* elements of an array; 0: no array */
} fx_record_field;

/* Tables of records, and of fields, end with an entry whose name is NULL. */
typedef struct fx_record {
    const char *name;
    size_t bytes;
    const fx_record_field *fields;
} fx_record;

/* The struct. Padding is an error, as nobody would set its bytes. */
#define FX_RECORD(record, FIELDS)                                                                                      \
    typedef struct record {                                                                                            \
        FIELDS(FX_RECORD_MEMBER, FX_RECORD_MEMBERS, record)                                                            \
    } record;                                                                                                          \
    _Static_assert(sizeof(record) == 0 FIELDS(FX_RECORD_BYTES, FX_RECORD_BYTES_OF, record), #record " has padding")
#define FX_RECORD_MEMBER(record, type, name) type name;
#define FX_RECORD_MEMBERS(record, type, name, count) type name[count];
#define FX_RECORD_BYTES(record, type, name) +sizeof(type)
#define FX_RECORD_BYTES_OF(record, type, name, count) +sizeof(type) * (count)

/* The table of a record's fields, and its entry in a table of records. */
#define FX_RECORD_TABLE(record, FIELDS)                                                                                \
    static const fx_record_field record##_fields[] = {                                                                 \
        FIELDS(FX_RECORD_ROW, FX_RECORD_ROW_OF, record){NULL, NULL, 0, 0}};
#define FX_RECORD_ROW(record, type, name) {#name, #type, offsetof(record, name), 0},
#define FX_RECORD_ROW_OF(record, type, name, count) {#name, #type, offsetof(record, name), count},
#define FX_RECORD_ENTRY(record, FIELDS) {#record, sizeof(record), record##_fields},

#endif
