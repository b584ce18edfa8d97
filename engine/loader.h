/* The loader's state: what its readers share. */
#ifndef FLEXNN_ENGINE_LOADER_H
#define FLEXNN_ENGINE_LOADER_H

#include "read.h"

#define FX_READERS 3  /* readers past the page cache: the device has a request even while a reader waits for a CPU */
#define FX_REQUESTS 8 /* begun and not yet retired */

/* A part of a load that one read brings (fx_request_bytes). */
typedef struct fx_request {
    int64_t turn;      /* the run */
    uint32_t index;    /* of the load */
    int64_t at, bytes; /* of the load */
    char *target;
    fx_file file;
    int64_t file_offset;
    int64_t begun_ns; /* when tracing */
    int64_t ready_ns; /* throttle: it arrives then; else 0 */
    int is_whole;     /* it is whole chunks, which the thread that reads them checks: their bytes lie in its cache */
    int has_arrived;
    int is_left;    /* begun by a compute thread, which would have to wait for the device: a reader's to read */
    int is_pinned;  /* of no run: fx_loader_read asked for it */
    fx_error error; /* status FX_OK: none */
} fx_request;

typedef struct fx_reader {
    struct fx_engine *engine;
    pthread_t thread;
    fx_jitter jitter;
    int is_brisk; /* its last wait was short: it looks for a while before it sleeps */
} fx_reader;

/* Guarded by the mutex; while the loader rests, next_turn, next_index, next_at and error are the caller's. */
typedef struct fx_loader {
    pthread_mutex_t mutex;
    int64_t next_turn;   /* what is read next: of this run */
    uint32_t next_index; /* this load, */
    int64_t next_at;     /* from this byte of it on */
    /* A ring: requests number retired to begun - 1, each at its number % FX_REQUESTS. */
    fx_request requests[FX_REQUESTS];
    int64_t begun;
    _Atomic int64_t retired;
    int is_retiring, has_failed, retired_is_wanted;
    _Atomic int left;   /* requests that are left to the readers */
    int helpers;        /* compute threads that hold a request */
    fx_checker check;   /* of the oldest request's load */
    int64_t ended_ns;   /* when tracing: of the last load retired */
    int64_t read_at_ns; /* throttle: when the device is free */
    fx_error error;     /* why it failed */
    int resting;        /* readers that hold no request and wait to be resumed */
    int threads;
    int is_waiting;          /* reads wait for the device and take little CPU time */
    int64_t spin_ns;         /* that threads look before they sleep; 0: others need the CPU, or the device is slow */
    _Atomic int is_shared;   /* compute threads read what the page cache holds, readers the rest */
    _Atomic int64_t changes; /* when shared: counts what may let a request begin */
    _Atomic int has_slept;   /* the thread that read the last request waited for the device */
    fx_request pinned;
    _Atomic int is_asked; /* `pinned` is to be read */
    _Atomic int gone;     /* readers that have stopped */
    int is_abandoned;     /* the last of them frees the engine */
    fx_reader readers[FX_READERS];
} fx_loader;

#endif
