/* The names of <stdint.h> that the sources use: NVRTC has no system headers. */
#ifndef SSM_UPDATE_STDINT_H
#define SSM_UPDATE_STDINT_H

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#endif
