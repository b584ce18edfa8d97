#include "read.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* 1.25 MiB take 28 ms on a slow card, and reach full speed on other devices. */
#define REQUEST_BYTES_MAX ((int64_t)5 << 18)
/* Of copies out of the page cache: 25 us, so a caller that waits for a load waits for less than that at its end. */
#define PART_BYTES ((int64_t)256 << 10)

fx_error fx_read(const fx_file *file, char *target, int64_t bytes, int64_t offset) {
    int direct = file->direct_fd >= 0;
    while (bytes > 0) {
        int is_direct = direct && !((offset | bytes | (int64_t)(intptr_t)target) % FX_DIRECT_ALIGN);
        ssize_t n = pread(is_direct ? file->direct_fd : file->fd, target, (size_t)bytes, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && is_direct && errno == EINVAL) {
            direct = 0; /* a file system that accepts the flag but not the read */
            continue;
        }
        if (n <= 0)
            return (fx_error){
                .status = n < 0 ? FX_ERR_IO : FX_ERR_EOF, .os_error = n < 0 ? errno : 0, .file_offset = offset};
        target += n;
        offset += n;
        bytes -= n;
    }
    return (fx_error){.status = FX_OK};
}

int fx_read_cached(const fx_file *file, char *target, int64_t bytes, int64_t offset) {
#ifdef SYS_preadv2
    enum { NOWAIT = 8 }; /* RWF_NOWAIT, which old headers lack, as old libraries do preadv2 */
    struct iovec part = {target, (size_t)bytes};
    return syscall(SYS_preadv2, file->fd, &part, 1L, (long)offset, 0L, (long)NOWAIT) == bytes;
#else
    (void)file, (void)target, (void)bytes, (void)offset;
    return 0;
#endif
}

int64_t fx_request_bytes(const fx_load *load, int64_t at) {
    int64_t count = (load->bytes + REQUEST_BYTES_MAX - 1) / REQUEST_BYTES_MAX;
    int64_t bytes = fx_direct_down(load->bytes / count + FX_DIRECT_ALIGN);
    return load->bytes - at < bytes ? load->bytes - at : bytes;
}

int64_t fx_part_bytes(const fx_load *load, int64_t at, int waits) {
    const int64_t chunk = load->chunk_bytes, left = load->bytes - at, wanted = waits ? REQUEST_BYTES_MAX : PART_BYTES;
    if (load->check_lead || load->check_bytes < load->bytes || chunk > REQUEST_BYTES_MAX)
        return 0;
    const int64_t chunks = (load->bytes + chunk - 1) / chunk, most = chunk < wanted ? wanted / chunk : 1;
    const int64_t parts = (chunks + most - 1) / most, bytes = (chunks + parts - 1) / parts * chunk;
    return left < bytes ? left : bytes;
}

fx_checker fx_check_start(fx_crc_path path, const uint32_t *crcs, const fx_load *load, const char *memory) {
    return (fx_checker){.expected = crcs + load->crc_first,
                        .data = memory + load->address + load->check_lead,
                        .chunk_bytes = load->chunk_bytes,
                        .bytes = load->check_bytes,
                        .path = path};
}

fx_error fx_check_to(fx_checker *c, const fx_load *load, int64_t available) {
    int64_t end = available - load->check_lead < c->bytes ? available - load->check_lead : c->bytes;
    while (c->done < end) {
        int64_t chunk = c->done / c->chunk_bytes, chunk_end = (chunk + 1) * c->chunk_bytes;
        if (chunk_end > c->bytes)
            chunk_end = c->bytes;
        int64_t n = (end < chunk_end ? end : chunk_end) - c->done;
        c->crc = fx_crc32c_by(c->path, c->crc, c->data + c->done, (size_t)n);
        c->done += n;
        if (c->done == chunk_end) {
            if (c->crc != c->expected[chunk])
                return (fx_error){.status = FX_ERR_CHECKSUM,
                                  .file_offset = load->file_offset + load->check_lead + c->done};
            c->crc = 0;
        }
    }
    return (fx_error){.status = FX_OK};
}
