package e2e

import (
	"os/exec"
	"testing"
)

// Debian's Python has python3-libnbd. Another Python in the PATH may not.
var python = peer{"/usr/bin/python3", "python3-libnbd"}

// prelude does what nbdsh does, and defines the names that the scripts use.
const prelude = `
import nbd, sys
h = nbd.NBD()
uri, size = sys.argv[1], 32 << 20
def fails(errno, f, *args):
    try:
        f(*args)
    except nbd.Error as e:
        assert e.errno == errno, (e.errno, errno, e.string)
    else:
        assert False, "it should fail with " + errno
def extents(offset, length, flags=0):
    seen = []
    h.block_status(length, offset, lambda ctx, off, e, err: seen.append((ctx, off, e)), flags)
    return seen
`

// libnbd runs a script with libnbd on an export of 32 MiB.
func libnbd(t *testing.T, script string, more ...string) {
	t.Helper()
	need(t, python)
	if out, err := exec.Command(python.program, "-P", "-c", "import nbd; nbd.NBD").CombinedOutput(); err != nil {
		t.Skipf("Python has no libnbd: install the package %s: %s", python.pkg, out)
	}
	h := newHost(t)
	_, uri := h.target(t, "sh="+h.region(t, "sh", "32M"))
	_, unix, _ := h.initiator(t, uri, "sh", more...)
	python.run(t, "-c", prelude+script, unix)
}

// libnbdScripts run on an export of 32 MiB, after prelude.
var libnbdScripts = []struct{ name, script string }{
	{"properties of the export", `
h.set_full_info(True)
h.add_meta_context("base:allocation")
h.connect_uri(uri)
assert h.get_protocol() == "newstyle-fixed" and h.get_structured_replies_negotiated()
assert h.get_size() == size
assert h.get_canonical_export_name() == "sh" and "class file" in h.get_export_description()
assert h.get_block_size(nbd.SIZE_MINIMUM) == 1 and h.get_block_size(nbd.SIZE_MAXIMUM) == 16 << 20
for can in (h.can_cache, h.can_df, h.can_fast_zero, h.can_flush, h.can_fua, h.can_multi_conn, h.can_trim, h.can_zero):
    assert can() == 1, can
assert h.can_meta_context("base:allocation") and not h.is_read_only() and not h.is_rotational()
`},
	{"a READ is one chunk, with DF and without", `
h.connect_uri(uri)
data = bytes(range(256)) * 4096
h.pwrite(data, 513)
for flags in (0, nbd.CMD_FLAG_DF):
    chunks = []
    got = h.pread_structured(len(data), 513, lambda *chunk: chunks.append((bytes(chunk[0]),) + chunk[1:3]), flags)
    assert got == data and chunks == [(data, 513, nbd.READ_DATA)]
`},
	{"all is data", `
h.add_meta_context("base:allocation")
h.connect_uri(uri)
h.zero(1 << 20, 0)
h.trim(1 << 20, 2 << 20)
assert extents(0, size) == [("base:allocation", 0, [size, 0])]
assert extents(4096, 512) == [("base:allocation", 4096, [512, 0])]
assert extents(4096, 512, nbd.CMD_FLAG_REQ_ONE) == [("base:allocation", 4096, [512, 0])]
`},
	{"zeroes, with every flag", `
h.connect_uri(uri)
h.pwrite(b"x" * 65536, 0)
FAST, NO_HOLE, FUA = nbd.CMD_FLAG_FAST_ZERO, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FUA
for i, flags in enumerate((0, FAST, NO_HOLE, FUA, FAST | NO_HOLE | FUA)):
    h.zero(4096, i * 8192, flags)
    assert h.pread(8192, i * 8192) == bytes(4096) + b"x" * 4096
h.zero(size, 0)
assert h.pread(1 << 20, 0) == bytes(1 << 20)
`},
	{"hints change nothing", `
h.connect_uri(uri)
h.pwrite(b"x" * 65536, 0, nbd.CMD_FLAG_FUA)
h.trim(65536, 0, nbd.CMD_FLAG_FUA)
h.cache(size, 0)
h.flush()
assert h.pread(65536, 0) == b"x" * 65536
`},
	{"errors do not end the connection", `
h.connect_uri(uri)
h.set_strict_mode(0)
h.pwrite(b"x" * 512, size - 512)
fails("EINVAL", h.pread, 512, size)
fails("ENOSPC", h.pwrite, b"y" * 513, size - 512)
fails("ENOSPC", h.zero, 513, size - 512)
fails("EINVAL", h.trim, 513, size - 512)
fails("EINVAL", h.cache, 513, size - 512)
fails("EOVERFLOW", h.pread, (16 << 20) + 1, 0)
fails("EINVAL", h.pwrite, bytes((16 << 20) + 1), 0)
fails("EINVAL", h.block_status, 512, 0, lambda *args: 0)
fails("EINVAL", h.pread, 512, 0, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(512, size - 512) == b"x" * 512
`},
	{"a client without structured replies", `
h.set_request_structured_replies(False)
h.add_meta_context("base:allocation")
h.connect_uri(uri)
assert not h.get_structured_replies_negotiated()
assert not h.can_df() and not h.can_meta_context("base:allocation")
h.pwrite(b"x" * 512, 0)
assert h.pread(512, 0) == b"x" * 512
h.set_strict_mode(0)
fails("EINVAL", h.pread, (16 << 20) + 1, 0)
fails("EINVAL", h.pread, 512, 0, nbd.CMD_FLAG_DF)
`},
	{"an old client", `
h.set_handshake_flags(0)
h.connect_uri(uri)
assert h.get_protocol() == "newstyle" and h.get_size() == size and h.can_flush()
h.pwrite(b"x" * 512, 0, nbd.CMD_FLAG_FUA)
assert h.pread(512, 0) == b"x" * 512
`},
	{"options by hand", `
h.set_opt_mode(True)
h.connect_uri(uri)
names = []
h.opt_list(lambda name, description: names.append(name))
assert names == ["sh"]
contexts = []
h.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ["base:allocation"]
h.set_export_name("other")
fails("ENOENT", h.opt_info)
fails("ENOENT", h.opt_go)
h.set_export_name("")
h.opt_info()
assert h.get_size() == size
h.opt_go()
assert h.pread(512, 0) == bytes(512)
`},
	{"many requests at a time", `
h.connect_uri(uri)
block = 65536
for i in range(size // block):
    h.aio_pwrite(bytes([i % 251 + 1]) * block, i * block)
h.aio_flush()
while h.aio_in_flight() > 0:
    h.poll(-1)
for i in range(0, size // block, 16):
    assert h.pread(block, i * block) == bytes([i % 251 + 1]) * block
h.shutdown()
`},
}

func TestLibnbd(t *testing.T) {
	t.Parallel()
	for _, tt := range libnbdScripts {
		t.Run(tt.name, func(t *testing.T) { libnbd(t, tt.script) })
	}
}

func TestLibnbdReadOnly(t *testing.T) {
	t.Parallel()
	libnbd(t, `
h.add_meta_context("base:allocation")
h.connect_uri(uri)
assert h.is_read_only() and h.can_multi_conn() and h.can_flush() and h.can_cache() and h.can_df()
assert not h.can_zero() and not h.can_trim() and not h.can_fast_zero()
h.set_strict_mode(0)
fails("EPERM", h.pwrite, b"x" * 512, 0)
fails("EPERM", h.zero, 512, 0)
fails("EPERM", h.trim, 512, 0)
h.flush()
assert h.pread(512, 0) == bytes(512)
assert extents(0, size) == [("base:allocation", 0, [size, 0])]
`, "--read-only")
}
