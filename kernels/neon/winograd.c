#include "../vec/winograd.h"
