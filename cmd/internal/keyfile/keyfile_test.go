package keyfile

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/wire"
)

const (
	alice = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	bob   = "a1a2a3a4-b1b2-4c1c-9d1d-e1e2e3e4e5e6"
)

var hexKey = strings.Repeat("a0", wire.MinKey-1) + "01"

func write(t *testing.T, text string, mode os.FileMode) string {
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

// keyLine is a line of alice's, with a key that ends with last.
func keyLine(target string, last byte) (line string, key wire.Key) {
	key = append(bytes.Repeat([]byte{0xa0}, wire.MinKey-1), last)
	return alice + " " + target + " " + hex.EncodeToString(key) + "\n", key
}

func TestRead(t *testing.T) {
	one, first := keyLine("pm1", 1)
	two, second := keyLine("pm1", 2)
	other, third := keyLine("PM-2.example.org", 3)
	bobs := bob + "  pm1  " + hexKey + "ff\r\n"
	path := write(t, "# keys\n\n"+one+strings.ToUpper(alice)+"\t"+strings.TrimPrefix(two, alice+" ")[:len(two)-len(alice)-2]+" # the next one\n"+other+"  "+bobs, 0o400)
	f, err := Read(path)
	require.NoError(t, err)
	a, b := [16]byte(uuid.MustParse(alice)), [16]byte(uuid.MustParse(bob))
	fourth := append(bytes.Clone(first), 0xff)
	require.Equal(t, File{
		{wire.Ends{Initiator: a, Target: "pm1"}, first}, {wire.Ends{Initiator: a, Target: "pm1"}, second},
		{wire.Ends{Initiator: a, Target: "PM-2.example.org"}, third}, {wire.Ends{Initiator: b, Target: "pm1"}, fourth},
	}, f)
	require.Equal(t, map[[16]byte][]wire.Key{a: {first, second}, b: {fourth}}, f.OfTarget("pm1"))
	require.Equal(t, map[[16]byte][]wire.Key{a: {third}}, f.OfTarget("PM-2.example.org"))
	require.Empty(t, f.OfTarget("pm-2.example.org"), "names are exact")
	require.Equal(t, map[string]wire.Key{"pm1": second, "PM-2.example.org": third}, f.OfInitiator(a), "the last of each")
	require.Empty(t, f.OfInitiator(uuid.New()))
	require.Equal(t, []string{"PM-2.example.org", "pm1"}, f.Targets())
}

func TestReadErrors(t *testing.T) {
	line, _ := keyLine("pm1", 1)
	again, _ := keyLine("pm2", 1)
	two, _ := keyLine("pm1", 2)
	three, _ := keyLine("pm1", 3)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"others may read":       {line, 0o644, "has mode 0644, so others may know the keys"},
		"the group may":         {line, 0o640, "has mode 0640"},
		"others may write":      {line, 0o602, "has mode 0602"},
		"empty":                 {"# nothing\n", 0o600, "has no key: each line is INITIATOR-ID TARGET-NAME KEY"},
		"a key alone":           {"\n" + hexKey + "\n", 0o600, ":2: the number of words is 1: "},
		"the old format":        {line + alice + " " + hexKey, 0o600, ":2: a line of the old format, which names no target: "},
		"two words":             {line + alice + " pm1", 0o600, ":2: the number of words is 2: use INITIATOR-ID TARGET-NAME KEY"},
		"four words":            {line + line[:len(line)-1] + " x", 0o600, ":2: the number of words is 4: "},
		"no id":                 {"me pm1 " + hexKey, 0o600, "not the id of an initiator"},
		"the nil id":            {uuid.Nil.String() + " pm1 " + hexKey, 0o600, "not the id of an initiator"},
		"no name":               {alice + " p/m " + hexKey, 0o600, "not the name of a target"},
		"a key for a name":      {alice + " " + hexKey + " " + hexKey, 0o600, "not the name of a target"},
		"not hexadecimal":       {alice + " pm1 " + hexKey[1:] + "g", 0o600, "not hexadecimal"},
		"too short":             {alice + " pm1 " + hexKey[2:], 0o600, "the key has 31 bytes"},
		"no randomness":         {alice + " pm1 " + strings.Repeat("00", 32), 0o600, "one byte many times"},
		"three keys of a pair":  {line + two + three, 0o600, ":3: initiator " + alice + " and target pm1 share more than 2 keys"},
		"a key for two targets": {line + again, 0o600, ":2: the key of line 1 again"},
		"a line twice":          {line + "\n" + line, 0o600, ":3: the key of line 1 again"},
		"too large":             {strings.Repeat("#", maxSize+1), 0o600, "has more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(write(t, c.text, c.mode))
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), hexKey[4:20])
		})
	}
	_, err := Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Read(t.TempDir())
	require.ErrorContains(t, err, "is a directory")
}

// What key new prints, both ends can read, and key show shows no key.
func TestCommands(t *testing.T) {
	host := func() (string, error) { return "here", nil }
	run := func(run func(*command.Call) error, args ...string) (string, error) {
		var out bytes.Buffer
		err := run(command.NewCall(args, &out, io.Discard))
		return out.String(), err
	}
	made := func(args ...string) (string, error) {
		return run(func(c *command.Call) error { return New(c, host) }, args...)
	}
	one, err := made("--initiator", alice, "--target", "pm1")
	require.NoError(t, err)
	two, err := made("--initiator", strings.ToUpper(alice))
	require.NoError(t, err)
	f, at, err := parse(one + two)
	require.NoError(t, err, at)
	require.Equal(t, []string{"here", "pm1"}, f.Targets())
	require.Len(t, f[0].Key, wire.MinKey)

	path := write(t, one+two, 0o600)
	out, err := run(ShowCommand("pmnbd").Run, path)
	require.NoError(t, err)
	require.Equal(t, "INITIATOR                             TARGET  FINGERPRINT\n"+
		alice+"  pm1     "+f[0].Key.Fingerprint(f[0].Ends)+"\n"+
		alice+"  here    "+f[1].Key.Fingerprint(f[1].Ends)+"\n", out)

	for _, args := range [][]string{nil, {"--initiator", "me"}, {"--initiator", uuid.Nil.String()}, {"--initiator", alice, "--target", "a b"}} {
		out, err := made(args...)
		require.ErrorIs(t, err, flags.ErrUsage)
		require.Empty(t, out)
	}
}

// Whatever is in a file, reading it ends with an error or with lines that are good, and an error
// does not show what could be a key.
func FuzzParse(f *testing.F) {
	line, _ := keyLine("pm1", 1)
	f.Add(line + "# " + alice + "\n" + bob + " pm2 " + hexKey + "ff\r\n")
	f.Add(alice + " " + hexKey)
	f.Add(alice + " pm1 " + hexKey[1:])
	f.Add("\x00\n\xff \u2028 \u0085")
	f.Fuzz(func(t *testing.T, text string) {
		file, at, err := parse(text)
		if err != nil {
			require.Positive(t, at)
			require.LessOrEqual(t, at, 1+strings.Count(text, "\n"))
			require.Empty(t, file)
			for _, word := range strings.Fields(text) {
				if len(word) >= 2*wire.MinKey {
					require.NotContains(t, err.Error(), word)
				}
			}
			return
		}
		pairs := make(map[wire.Ends]int)
		var again strings.Builder
		for _, l := range file {
			require.NotZero(t, l.Initiator)
			require.NoError(t, wire.CheckTarget(l.Target))
			require.GreaterOrEqual(t, len(l.Key), wire.MinKey)
			pairs[l.Ends]++
			require.LessOrEqual(t, pairs[l.Ends], maxKeys)
			_, _ = fmt.Fprintln(&again, uuid.UUID(l.Initiator), l.Target, hex.EncodeToString(l.Key))
		}
		same, _, err := parse(again.String())
		require.NoError(t, err)
		require.Equal(t, file, same)
	})
}
