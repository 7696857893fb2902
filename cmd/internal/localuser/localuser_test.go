package localuser

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
)

const stranger = 65533 // a uid that is nobody's, and not the overflow uid

func TestTold(t *testing.T) { require.LessOrEqual(t, len(Told), rdma.MaxPrivateData) }

// accepted is a connection to a listener at addr, made by a socket of uid: a socket
// belongs to the user as whom the thread that made it acts on files.
func accepted(t *testing.T, uid int, at netip.AddrPort, mapped bool) (client *os.File, local, remote netip.AddrPort, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Skipf("listen on %v: %v", at, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	port := l.Addr().(*net.TCPAddr).Port

	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: port, Addr: at.Addr().As16()}) // maps IPv4
	if at.Addr().Is4() && !mapped {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: at.Addr().As4()}
	}
	runtime.LockOSThread()
	if uid != os.Geteuid() {
		require.NoError(t, unix.Setfsuid(uid))
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if uid != os.Geteuid() {
		require.NoError(t, unix.Setfsuid(os.Geteuid()))
	}
	runtime.UnlockOSThread()
	require.NoError(t, err)
	client = os.NewFile(uintptr(fd), "client")
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, unix.Connect(fd, to))

	server, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return client, server.LocalAddr().(*net.TCPAddr).AddrPort(), server.RemoteAddr().(*net.TCPAddr).AddrPort(), server
}

var (
	loopback4 = netip.MustParseAddrPort("127.0.0.1:0")
	loopback6 = netip.MustParseAddrPort("[::1]:0")
)

// The kernel names the user of the other end, over each kind of loopback.
func TestUserOf(t *testing.T) {
	for name, c := range map[string]struct {
		at     netip.AddrPort
		mapped bool
	}{
		"IPv4":                   {at: loopback4},
		"IPv4, another of them":  {at: netip.MustParseAddrPort("127.1.2.3:0")},
		"IPv6":                   {at: loopback6},
		"IPv4 by an IPv6 socket": {at: loopback4, mapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, local, remote, _ := accepted(t, os.Geteuid(), c.at, c.mapped)
			uid, err := userOf(remote, local)
			require.NoError(t, err)
			require.EqualValues(t, os.Geteuid(), uid)
			mapped := netip.AddrPortFrom(netip.AddrFrom16(remote.Addr().As16()), remote.Port())
			uid, err = userOf(mapped, local)
			require.NoError(t, err)
			require.EqualValues(t, os.Geteuid(), uid)

			if os.Geteuid() != 0 {
				return
			}
			_, local, remote, _ = accepted(t, stranger, c.at, c.mapped)
			uid, err = userOf(remote, local)
			require.NoError(t, err)
			require.EqualValues(t, stranger, uid)
		})
	}
}

// Root and the process's own user are let in, and nobody else.
func TestAllow(t *testing.T) {
	_, local, remote, _ := accepted(t, os.Geteuid(), loopback4, false)
	require.NoError(t, New().Allow(local, remote))
	if os.Geteuid() != 0 {
		t.Skip("sockets of other users need root")
	}
	_, local, remote, _ = accepted(t, stranger, loopback4, false)
	err := New().Allow(local, remote)
	require.ErrorIs(t, err, ErrOther)
	require.ErrorContains(t, err, "uid 65533, and without keys only root and uid 0 are served")
	require.ErrorContains(t, err, "--key-file")
	require.ErrorContains(t, err, "--insecure-no-auth")
	as := New()
	as.own = stranger
	require.NoError(t, as.Allow(local, remote))
	as.overflow = stranger
	require.ErrorIs(t, as.Allow(local, remote), ErrUnknown)

	_, local, remote, _ = accepted(t, int(New().overflow), loopback4, false)
	err = New().Allow(local, remote)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "--key-file")
	as = New()
	as.own = as.overflow
	require.ErrorIs(t, as.Allow(local, remote), ErrUnknown, "it could be anybody")
}

// What the kernel does not know, or knows no longer, lets nobody in: of a socket that
// was closed it says that it is root's.
func TestUnknown(t *testing.T) {
	uid := os.Geteuid()
	if uid == 0 {
		uid = stranger
	}
	_, local, remote, _ := accepted(t, uid, loopback4, false)
	require.ErrorIs(t, New().Allow(local, netip.AddrPortFrom(remote.Addr(), local.Port())), ErrUnknown, "a listener, which is not connected")
	require.ErrorIs(t, New().Allow(local, netip.MustParseAddrPort("192.0.2.1:7204")), ErrUnknown, "another machine")
	require.ErrorIs(t, New().Allow(netip.AddrPort{}, netip.AddrPort{}), ErrUnknown)

	client, local, remote, server := accepted(t, uid, loopback4, false)
	require.NoError(t, client.Close())
	_, err := server.Read(make([]byte, 1))
	require.Error(t, err, "the end of the stream has come")
	require.ErrorIs(t, New().Allow(local, remote), ErrUnknown)

	p := New()
	p.userOf = func(netip.AddrPort, netip.AddrPort) (uint32, error) { return 0, errors.New("no netlink") }
	err = p.Allow(local, remote)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "no netlink")
	require.ErrorContains(t, err, "--key-file")
}

func TestOverflowUID(t *testing.T) {
	for text, want := range map[string]uint32{"65534\n": 65534, "99\n": 99, "": defaultOverflow, "-1": defaultOverflow} {
		path := filepath.Join(t.TempDir(), "overflowuid")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.Equal(t, want, overflowUID(path), "%q", text)
	}
	require.EqualValues(t, defaultOverflow, overflowUID("/nonexistent"))
}

// answer is an inet_diag_msg.
func answer(family, state byte, at, to string, uid, inode uint32) []byte {
	b := make([]byte, answerSize)
	b[0], b[1] = family, state
	from, peer := netip.MustParseAddrPort(at), netip.MustParseAddrPort(to)
	binary.BigEndian.PutUint16(b[4:], from.Port())
	binary.BigEndian.PutUint16(b[6:], peer.Port())
	copy(b[8:24], from.Addr().AsSlice())
	copy(b[24:40], peer.Addr().AsSlice())
	binary.NativeEndian.PutUint32(b[uidAt:], uid)
	binary.NativeEndian.PutUint32(b[inodeAt:], inode)
	return b
}

// What the kernel's answers mean.
func TestAnswers(t *testing.T) {
	const at, to = "127.0.0.1:34732", "127.0.0.1:36203"
	const listen, finWait2 = 10, 5
	for name, c := range map[string]struct {
		b   []byte
		uid uint32
		bad bool
	}{
		"a user's":               {b: answer(unix.AF_INET, established, at, to, 1000, 1), uid: 1000},
		"with attributes":        {b: append(answer(unix.AF_INET, established, at, to, 1000, 1), 5, 0, 8, 0, 0, 0, 0, 0), uid: 1000},
		"IPv4 in IPv6":           {b: answer(unix.AF_INET6, established, "[::ffff:127.0.0.1]:34732", "[::ffff:127.0.0.1]:36203", 1000, 1), uid: 1000},
		"a listener":             {b: answer(unix.AF_INET, listen, at, "0.0.0.0:0", 1000, 1), bad: true},
		"a listener's state":     {b: answer(unix.AF_INET, listen, at, to, 0, 1), bad: true},
		"half closed":            {b: answer(unix.AF_INET, finWait2, at, to, 0, 0), bad: true},
		"without an inode":       {b: answer(unix.AF_INET, established, at, to, 0, 0), bad: true},
		"another port":           {b: answer(unix.AF_INET, established, "127.0.0.1:34733", to, 0, 1), bad: true},
		"another peer's port":    {b: answer(unix.AF_INET, established, at, "127.0.0.1:36204", 0, 1), bad: true},
		"another address":        {b: answer(unix.AF_INET, established, "127.0.0.2:34732", to, 0, 1), bad: true},
		"another peer's address": {b: answer(unix.AF_INET, established, at, "127.0.0.2:36203", 0, 1), bad: true},
		"the other end":          {b: answer(unix.AF_INET, established, to, at, 0, 1), bad: true},
		"another family":         {b: answer(unix.AF_UNIX, established, at, to, 0, 1), bad: true},
		"cut off":                {b: answer(unix.AF_INET, established, at, to, 0, 1)[:answerSize-1], bad: true},
		"nothing":                {bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			uid, err := user(c.b, netip.MustParseAddrPort(at), netip.MustParseAddrPort(to))
			if c.bad {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.uid, uid)
		})
	}
}

// The request, as strace shows that of ss.
func TestRequest(t *testing.T) {
	b := request(netip.MustParseAddrPort("127.0.0.1:34732"), netip.MustParseAddrPort("127.0.0.1:36203"))
	want := make([]byte, 0, requestSize)
	want = append(want, unix.AF_INET, unix.IPPROTO_TCP, 0, 0)
	want = binary.NativeEndian.AppendUint32(want, 1<<1)
	want = append(want, 0x87, 0xac, 0x8d, 0x6b, 127, 0, 0, 1)
	want = append(want, make([]byte, 12)...)
	want = append(want, 127, 0, 0, 1)
	want = append(want, make([]byte, 12)...)
	want = append(want, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	require.Equal(t, want, b)
	require.EqualValues(t, unix.AF_INET6, request(netip.MustParseAddrPort("[::1]:1"), netip.MustParseAddrPort("[::1]:2"))[0])
}

// FuzzUser: no answer names a user unless it is that of the very connection, open.
func FuzzUser(f *testing.F) {
	const at, to = "127.0.0.1:34732", "127.0.0.1:36203"
	f.Add(answer(unix.AF_INET, established, at, to, 1000, 1))
	f.Add(answer(unix.AF_INET6, established, "[::ffff:127.0.0.1]:34732", "[::ffff:127.0.0.1]:36203", 1000, 1))
	f.Add(answer(unix.AF_INET, 10, at, "0.0.0.0:0", 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		socket, peer := netip.MustParseAddrPort(at), netip.MustParseAddrPort(to)
		if _, err := user(b, socket, peer); err != nil {
			return
		}
		require.GreaterOrEqual(t, len(b), answerSize)
		require.EqualValues(t, established, b[1])
		require.Equal(t, request(socket, peer)[8:12], b[4:8], "ports")
		require.NotZero(t, binary.NativeEndian.Uint32(b[inodeAt:]))
	})
}
