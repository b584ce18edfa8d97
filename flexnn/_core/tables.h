/* The operators' lists as tables that Cython can walk. */
#ifndef FLEXNN_TABLES_H
#define FLEXNN_TABLES_H

#include "flexnn/kernels.h"
#include "flexnn/ops.h"

static const char *const fx_enumerations[] = {
#define FX_ENUMERATION_NAME(E, e, list) #e,
    FX_ENUMS(FX_ENUMERATION_NAME)
#undef FX_ENUMERATION_NAME
        NULL};

static const char *const fx_levels[] = {
#define FX_LEVEL_NAME(level) #level,
    FX_LEVELS(FX_LEVEL_NAME) NULL};
#undef FX_LEVEL_NAME

#endif
