package keyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

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

func TestRead(t *testing.T) {
	key := func(last byte) wire.Key {
		k := wire.Key(strings.Repeat("\xa0", wire.MinKey-1))
		return append(k, last)
	}
	path := write(t, "# keys\n\n"+alice+" "+hexKey+"\n"+strings.ToUpper(alice)+"\t"+hexKey+"ff # the next one\n  "+bob+"  "+hexKey+"\r\n", 0o400)
	keys, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, map[[16]byte][]wire.Key{
		uuid.MustParse(alice): {key(1), append(key(1), 0xff)},
		uuid.MustParse(bob):   {key(1)},
	}, keys)
	own, err := Own(path, uuid.MustParse(alice))
	require.NoError(t, err)
	require.Equal(t, append(key(1), 0xff), own, "the last one")
	_, err = Own(path, uuid.New())
	require.ErrorContains(t, err, "has no key of this initiator: add a line that begins with ")
}

func TestReadErrors(t *testing.T) {
	line := alice + " " + hexKey + "\n"
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"others may read":   {line, 0o644, "has mode 0644, so others may know the keys"},
		"the group may":     {line, 0o640, "has mode 0640"},
		"others may write":  {line, 0o602, "has mode 0602"},
		"empty":             {"# nothing\n", 0o600, "has no key"},
		"a key alone":       {"\n" + hexKey + "\n", 0o600, ":2: 1 words"},
		"three words":       {line + alice + " " + hexKey + " x", 0o600, ":2: 3 words"},
		"no id":             {"me " + hexKey, 0o600, "not the id of an initiator"},
		"the nil id":        {uuid.Nil.String() + " " + hexKey, 0o600, "not the id of an initiator"},
		"not hexadecimal":   {alice + " " + hexKey[1:] + "g", 0o600, "not hexadecimal"},
		"too short":         {alice + " " + hexKey[2:], 0o600, "the key has 31 bytes"},
		"no randomness":     {alice + " " + strings.Repeat("00", 32), 0o600, "one byte many times"},
		"three keys of one": {line + line + line, 0o600, ":3: initiator " + alice + " has more than 2 keys"},
		"too large":         {strings.Repeat("#", maxSize+1), 0o600, "has more than 1048576 bytes"},
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
