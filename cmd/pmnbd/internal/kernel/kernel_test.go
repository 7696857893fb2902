package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The bodies of generic netlink messages that Linux 6.12.117 has accepted, recorded with
// strace(1). FF stands for the number of a descriptor. Numbers are in the byte order of the
// host.
const (
	// One connection, from this package.
	connect1 = "01010000" + // CONNECT, version 1
		"0800 0100 00000000" + // index 0
		"0c00 0200 0000001000000000" + // 256 MiB
		"0c00 0300 0002000000000000" + // blocks of 512 bytes
		"0c00 0500 6d0d000000000000" + // server flags
		"0c00 0400 0000000000000000" + // timeout
		"0c00 0800 100e000000000000" + // dead connection timeout, 1 h
		"0c00 0600 0000000000000000" + // client flags
		"2f00 0a00 706d6e62643a35373138383963342d383961622d343966332d623762382d38643134653164333933363900 00" +
		"1000 0780 0c00 0180 0800 0100 FF000000"
	// Two connections and a timeout, and the RECONFIGURE after a restart of the server.
	two = "0800 0100 01000000" +
		"0c00 0200 0000001000000000" +
		"0c00 0300 0002000000000000" +
		"0c00 0500 6d0d000000000000" +
		"0c00 0400 1e00000000000000" +
		"0c00 0800 100e000000000000" +
		"0c00 0600 0000000000000000" +
		"2f00 0a00 706d6e62643a64353439656139352d333464612d346630362d613634352d37336635363864613161643500 00" +
		"1c00 0780 0c00 0180 0800 0100 FF000000 0c00 0180 0800 0100 FF000000"
	connect2     = "01010000" + two
	reconfigure2 = "03010000" + two
	disconnect1  = "02010000 0800 0100 01000000"

	// The same from nbd-client 3.24. Its version is 0, and it sends no attribute that has
	// no value.
	clientConnect = "01000000" +
		"0800 0100 00000000" +
		"0c00 0200 0000000400000000" + // 64 MiB
		"0c00 0300 0002000000000000" +
		"0c00 0500 6d0d000000000000" +
		"1000 0780 0c00 0180 0800 0100 03000000"
	clientDisconnect = "02000000 0800 0100 00000000"
)

// message makes the bytes of a vector, with the numbers of socks.
func message(t *testing.T, vector string, socks ...*os.File) []byte {
	t.Helper()
	vector = strings.ReplaceAll(vector, " ", "")
	for _, f := range socks {
		require.Less(t, f.Fd(), uintptr(256), "the vectors have one byte for it")
		vector = strings.Replace(vector, "FF", hex.EncodeToString([]byte{byte(f.Fd())}), 1)
	}
	b, err := hex.DecodeString(vector)
	require.NoError(t, err)
	return b
}

// files opens n files.
func files(t *testing.T, n int) (all []*os.File) {
	for range n {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		all = append(all, f)
	}
	return all
}

var family = genetlink.Family{ID: 0x23, Version: 1, Name: "nbd"}

// client makes a Client of a fake kernel, which returns err and shows what it gets.
func client(t *testing.T, err error) (c *Client, sent *[]byte) {
	sent = new([]byte)
	c, e := New(genltest.Dial(genltest.ServeFamily(family, func(m genetlink.Message, nm netlink.Message) ([]genetlink.Message, error) {
		require.Equal(t, netlink.HeaderType(family.ID), nm.Header.Type)
		require.Equal(t, netlink.Request|netlink.Acknowledge, nm.Header.Flags)
		*sent = nm.Data
		return []genetlink.Message{{}}, err
	})))
	require.NoError(t, e)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, sent
}

func little(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the vectors are of a little-endian machine")
	}
}

func TestMessages(t *testing.T) {
	little(t)
	c, sent := client(t, nil)
	socks := files(t, 2)
	cfg := Config{
		Size: 256 << 20, BlockSize: 512, Flags: 0x0d6d, DeadConnTimeout: time.Hour,
		Backend: "pmnbd:571889c4-89ab-49f3-b7b8-8d14e1d39369", Sockets: socks[:1],
	}
	require.NoError(t, c.Connect(cfg))
	require.Equal(t, message(t, connect1, socks...), *sent)

	cfg.Index, cfg.Timeout, cfg.Sockets, cfg.Backend = 1, 30*time.Second, socks, "pmnbd:d549ea95-34da-4f06-a645-73f568da1ad5"
	require.NoError(t, c.Connect(cfg))
	require.Equal(t, message(t, connect2, socks...), *sent)
	require.NoError(t, c.Reconfigure(cfg))
	require.Equal(t, message(t, reconfigure2, socks...), *sent)
	require.NoError(t, c.Disconnect(1))
	require.Equal(t, message(t, disconnect1), *sent)
}

// Each attribute that nbd-client sends is among those that this package sends.
func TestMessagesOfNBDClient(t *testing.T) {
	little(t)
	c, sent := client(t, nil)
	socks := files(t, 1)
	theirs := message(t, clientConnect)
	theirs[len(theirs)-4] = byte(socks[0].Fd())
	require.NoError(t, c.Connect(Config{Size: 64 << 20, BlockSize: 512, Flags: 0x0d6d, Sockets: socks}))
	ours, err := netlink.UnmarshalAttributes((*sent)[4:])
	require.NoError(t, err)
	want, err := netlink.UnmarshalAttributes(theirs[4:])
	require.NoError(t, err)
	for _, a := range want {
		require.Contains(t, ours, a)
	}

	require.NoError(t, c.Disconnect(0))
	require.Equal(t, message(t, clientDisconnect)[4:], (*sent)[4:])
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		errno int
		want  error
	}{
		{"not root", int(unix.EPERM), ErrPermission},
		{"attached or open", int(unix.EBUSY), ErrInUse},
		{"anything else", int(unix.EINVAL), unix.EINVAL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := client(t, genltest.Error(tc.errno))
			for what, err := range map[string]error{
				"attach /dev/nbd7":      c.Connect(Config{Index: 7}),
				"reconfigure /dev/nbd7": c.Reconfigure(Config{Index: 7}),
				"detach /dev/nbd7":      c.Disconnect(7),
			} {
				require.ErrorIs(t, err, tc.want)
				require.ErrorContains(t, err, what)
			}
		})
	}
}

func TestNoModule(t *testing.T) {
	_, err := New(genltest.Dial(func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return nil, genltest.Error(int(unix.ENOENT))
	}))
	require.ErrorIs(t, err, ErrNoModule)
	_, err = New(genltest.Dial(func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return nil, genltest.Error(int(unix.EINVAL))
	}))
	require.ErrorIs(t, err, unix.EINVAL)
}

func TestParseDevice(t *testing.T) {
	for path, index := range map[string]int{
		"/dev/nbd0": 0, "/dev/nbd15": 15, "/dev/nbd1048575": 1048575,
		"/dev/nbd1048576": -1, "/dev/nbd": -1, "/dev/nbd0p1": -1, "/dev/nbd00": -1, "/dev/nbd+1": -1, "/dev/nbd-1": -1,
		"nbd0": -1, "/dev/sda": -1, "": -1, "/dev/nbd0/": -1, "/dev/../dev/nbd0": -1,
	} {
		d, err := ParseDevice(path)
		if index < 0 {
			require.ErrorContains(t, err, "use /dev/nbd0", path)
			continue
		}
		require.NoError(t, err, path)
		require.Equal(t, Device{uint32(index), "/"}, d)
		require.Equal(t, path, d.String())
	}
}

// write makes a file of a device, below the root of the test.
func write(t *testing.T, d Device, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(d.sysfs(name)), 0o755))
	require.NoError(t, os.WriteFile(d.sysfs(name), []byte(content), 0o644))
}

func TestState(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  State
		err   error
	}{
		{name: "no such device"},
		{name: "not attached", files: map[string]string{"size": "0\n"}},
		{name: "by netlink, with an identifier", files: map[string]string{"pid": "12\n", "backend": "pmnbd:x\n"}, want: State{true, 12, "pmnbd:x"}},
		{name: "by netlink, without", files: map[string]string{"pid": "12\n", "backend": "\n"}, want: State{true, 12, ""}},
		{name: "by ioctl", files: map[string]string{"pid": "12\n"}, want: State{true, 12, ""}},
		{name: "nonsense", files: map[string]string{"pid": "x\n"}, err: strconv.ErrSyntax},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Device{3, t.TempDir()}
			for name, content := range tc.files {
				write(t, d, name, content)
			}
			s, err := d.State()
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, s)
		})
	}
}

func TestLimitRequests(t *testing.T) {
	d := Device{0, t.TempDir()}
	require.ErrorIs(t, d.LimitRequests(1<<20), fs.ErrNotExist)
	for _, tc := range []struct {
		now  string
		size uint32
		want string
	}{
		{"1280\n", 1 << 20, "1024"},
		{"1280\n", 16 << 20, "1280\n"},
		{"1280\n", 1 << 31, "1280\n"},
	} {
		write(t, d, "queue/max_sectors_kb", tc.now)
		require.NoError(t, d.LimitRequests(tc.size))
		b, err := os.ReadFile(d.sysfs("queue/max_sectors_kb"))
		require.NoError(t, err)
		require.Equal(t, tc.want, string(b))
		largest, err := d.LargestRequest()
		require.NoError(t, err)
		require.Equal(t, uint64(min(tc.size, 1280<<10)), largest)
	}
}

// A device whose state cannot be read does not count as detached.
func TestStateUnreadable(t *testing.T) {
	for _, name := range []string{"pid", "backend"} {
		d := Device{3, t.TempDir()}
		write(t, d, "pid", "1\n")
		write(t, d, "backend", "ours\n")
		require.NoError(t, os.Remove(d.sysfs(name)))
		require.NoError(t, os.Mkdir(d.sysfs(name), 0o755)) // EISDIR
		_, err := d.State()
		require.ErrorIs(t, err, unix.EISDIR)
		require.Error(t, d.WaitReleased(t.Context(), "ours"))
	}
}
