#include "winograd.h"
