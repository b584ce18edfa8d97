/* How a caller cancels what takes long. */
#ifndef FLEXNN_INTERRUPT_H
#define FLEXNN_INTERRUPT_H

/* is_wanted(arg) is called by the calling thread at least every 20 ms or so; non-zero cancels. */
typedef struct fx_interrupt {
    int (*is_wanted)(void *arg);
    void *arg;
} fx_interrupt;

#endif
