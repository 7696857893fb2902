package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// What peers say reaches a reader of the log as text, and a program as it was said.
func TestLogIsPlain(t *testing.T) {
	const hostile = "\x1b[2J\u009b31m\x7f\u202e"
	var out bytes.Buffer
	Log(&out).Info("a client left", zap.Error(errors.New(hostile)), zap.String("name", hostile))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Equal(t, -1, strings.IndexFunc(out.String(), func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }), "%q", out.String())
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, hostile, line["error"])
	require.Equal(t, hostile, line["name"])
}
