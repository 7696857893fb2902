package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/internal/endpoint"
)

// The URI says which target is meant, and the file which key that one has. The file can change, but not
// so that a target is left without its key.
func TestKeysOfTargets(t *testing.T) {
	id := uuid.New()
	path := filepath.Join(t.TempDir(), "keys")
	put := func(names ...string) {
		text := ""
		for i, name := range names {
			text += id.String() + " " + name + " " + strings.Repeat("0123456789abcde"+string('0'+rune(i)), 4) + "\n"
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	name := func(k *keys, uri string) (string, error) {
		e, err := endpoint.ParseTarget(uri)
		require.NoError(t, err)
		return k.target(e)
	}
	for _, tt := range []struct {
		title string
		file  []string
		uri   string
		want  string // empty: there is no such key
	}{
		{"the host", []string{"pm1", "pm2"}, "iwarp://pm2/log", "pm2"},
		{"a name", []string{"pm1", "pm2"}, "iwarp://pm1@192.0.2.1/log", "pm1"},
		{"a name that is not the host", []string{"pm1", "pm2"}, "iwarp://pm1@pm2/log", "pm1"},
		{"an address that is a name", []string{"pm1", "192.0.2.1"}, "iwarp://192.0.2.1/log", "192.0.2.1"},
		{"the only one", []string{"pm1"}, "iwarp://[::1]/log", "pm1"},
		{"none of several", []string{"pm1", "pm2"}, "iwarp://192.0.2.1/log", ""},
		{"a name without a key", []string{"pm1"}, "iwarp://pm2@192.0.2.1/log", ""},
		{"capital letters", []string{"pm1", "pm2"}, "iwarp://PM1/log", ""},
	} {
		t.Run(tt.title, func(t *testing.T) {
			put(tt.file...)
			k, err := readKeys(path, id)
			require.NoError(t, err)
			got, err := name(k, tt.uri)
			if tt.want == "" {
				require.ErrorContains(t, err, "has no key of this initiator and target ")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			require.NotEmpty(t, k.get(got))
		})
	}
	t.Run("read again", func(t *testing.T) {
		put("pm1", "pm2")
		k, err := readKeys(path, id)
		require.NoError(t, err)
		_, err = name(k, "iwarp://pm2/log")
		require.NoError(t, err)
		put("pm1")
		_, err = readKeys(path, id, "pm2")
		require.ErrorContains(t, err, "has no key of this initiator and target pm2, but of pm1")
		put("pm2")
		next, err := readKeys(path, id, "pm2")
		require.NoError(t, err)
		require.NotEqual(t, k.get("pm2"), next.get("pm2"))
		require.Nil(t, next.get("pm1"))
	})
	put("pm1")
	_, err := readKeys(path, uuid.New())
	require.ErrorContains(t, err, "has no key of this initiator: add a line that begins with ")
}
