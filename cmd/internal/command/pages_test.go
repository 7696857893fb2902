package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var paged = Command{Name: "pr-og", Help: "pr-og does it.\n.and so on\n", Commands: []Command{
	{Name: "go", Help: "Goes \\ there.\n", Run: func(call *Call) error {
		call.Flags.Int("far", 3, "how far, `N`")
		return call.Parse()
	}},
	{Name: "key", Help: "Keys.\n", Commands: []Command{{Name: "new", Help: "New.\n", Run: func(call *Call) error { return call.Parse() }}}},
}}

func TestMan(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, paged.Main([]string{"man"}, &out, &out))
	page := out.String()
	for _, s := range []string{`.TH PR\-OG 8 `, "\npr\\-og \\- does it\n", "\n\\&.and so on\n", ".SH PR\\-OG KEY NEW\n", "Goes \\e there.", "\\fB\\-\\-far\\fR N\nhow far, N\n(default 3)\n"} {
		require.Contains(t, page, s)
	}
}

// The script completes in a real bash.
func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	var out bytes.Buffer
	require.Zero(t, paged.Main([]string{"completion"}, &out, &out))
	script := filepath.Join(t.TempDir(), "pr-og")
	require.NoError(t, os.WriteFile(script, out.Bytes(), 0o600))
	for words, want := range map[string]string{
		"pr-og k": "key\n", "pr-og go --f": "--far\n", "pr-og key n": "new\n", "pr-og go --far 3 --h": "--help\n", "pr-og key new --f": "",
	} {
		cmd := exec.Command(bash, "-c", `. "$0"; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _pr_og; printf '%s\n' "${COMPREPLY[@]}" | grep . || :`, script, words)
		got, err := cmd.CombinedOutput()
		require.NoError(t, err, string(got))
		require.Equal(t, want, string(got), words)
	}
}
