#include "gemv.h"
