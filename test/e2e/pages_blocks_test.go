package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A step is one command of a page, with what the page says that it prints.
type step struct {
	line     int    // of the page
	terminal string // which types the command: NAME of a prompt "NAME$ "; "" for "$ "
	command  string // of one or several lines; "^C" ends the command before it
	prints   []string
	promised bool // it stands in a console block, and so has to run
}

// stays reports whether the command keeps its terminal: it serves, until ^C or the end of the page.
func (s step) stays() bool {
	for _, line := range s.prints {
		if strings.HasPrefix(line, "ready ") {
			return true
		}
	}
	return false
}

var (
	prompt  = regexp.MustCompile(`^([a-z][a-z0-9]*)?[$#] (.*)$`)
	heredoc = regexp.MustCompile(`<<'?([A-Z]+)'?`)
	// tools are the programs by which a line of an indented block is known to be a command.
	tools = regexp.MustCompile(`^(?:bin/)?(?:pmnbd|pmnbd-target|pmnbd-bench|make|go|nbdinfo|nbdcopy|nbdsh|nbd-client|qemu-io|qemu-img|` +
		`qemu-nbd|fio|mkfs\.\w+|mount|umount|mdadm|curl|etcdctl|install|runuser|systemctl|zpool|docker|podman|promtool|apt|dpkg|rpm|cp|ip|psql|virsh)\s`)
)

// steps returns the commands of a page. A block fenced as console has prompts, and between them
// what the commands print. In an indented block each line that begins with one of tools is a
// command, unless it has an ellipsis: then it shows a form. Such a block says nothing of what a
// command prints.
func steps(page string) (all []step) {
	lines := strings.Split(page, "\n")
	fence := ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if fence == "" {
				fence = "```" + after
			} else {
				fence = ""
			}
			continue
		}
		s := step{line: i + 1}
		switch text, indented := strings.CutPrefix(line, "    "); {
		case fence == "```console":
			m := prompt.FindStringSubmatch(line)
			if m == nil {
				if n := len(all); n > 0 && line != "" {
					all[n-1].prints = append(all[n-1].prints, line)
				}
				continue
			}
			s.terminal, s.command, s.promised = m[1], m[2], true
		case fence == "" && indented && tools.MatchString(strings.TrimSpace(text)) && !strings.Contains(text, "…"):
			s.command = strings.TrimSpace(text)
		default:
			continue
		}
		end := heredoc.FindStringSubmatch(s.command)
		for i+1 < len(lines) && (end != nil || strings.HasSuffix(s.command, `\`)) {
			i++
			s.command += "\n" + lines[i]
			if end != nil && lines[i] == end[1] {
				break
			}
		}
		all = append(all, s)
	}
	return all
}

// printed reports whether out has the lines, in this order, perhaps with others between them. In a
// line of the page any run of blanks is like any other, and an ellipsis stands for anything.
func printed(out string, lines []string) (missing string, ok bool) {
	rest := strings.Split(out, "\n")
	for _, want := range lines {
		var parts []string
		for _, part := range strings.Split(want, "…") {
			var words []string
			for _, w := range strings.Fields(part) {
				words = append(words, regexp.QuoteMeta(w))
			}
			parts = append(parts, strings.Join(words, `\s+`))
		}
		line := regexp.MustCompile(`^\s*` + strings.Join(parts, `.*`) + `\s*$`)
		for len(rest) > 0 && !line.MatchString(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return want, false
		}
		rest = rest[1:]
	}
	return "", true
}

func TestBlocksOfPages(t *testing.T) {
	t.Parallel()
	got := steps(strings.Join([]string{
		"Text, and `pmnbd status`.", "", "```console", "$ pmnbd id", "6f9…", "pm1# cat >f <<EOF", "$ x", "EOF", "app$ serve \\", "  --now", "ready a", "app$ ^C", "```", "",
		"    pmnbd status   # a form has no end", "    pmnbd serve …", "    what it prints", "", "```toml", "listen = 1", "```",
	}, "\n"))
	require.Equal(t, []step{
		{line: 4, command: "pmnbd id", prints: []string{"6f9…"}, promised: true},
		{line: 6, terminal: "pm1", command: "cat >f <<EOF\n$ x\nEOF", promised: true},
		{line: 9, terminal: "app", command: "serve \\\n  --now", prints: []string{"ready a"}, promised: true},
		{line: 12, terminal: "app", command: "^C", promised: true},
		{line: 15, command: "pmnbd status   # a form has no end"},
	}, got)
	require.True(t, got[2].stays())
	for _, tt := range []struct {
		name, out string
		lines     []string
		missing   string
	}{
		{"nothing is asked for", "x", nil, ""},
		{"others between them", "a\nb\nc", []string{"a", "c"}, ""},
		{"another order", "c\na", []string{"a", "c"}, "c"},
		{"an ellipsis", "took 3 ms in all", []string{"took … ms …"}, ""},
		{"blanks", "a    b", []string{" a b"}, ""},
		{"a part of a line", "ab", []string{"a"}, "a"},
	} {
		missing, ok := printed(tt.out, tt.lines)
		require.Equal(t, tt.missing, missing, tt.name)
		require.Equal(t, tt.missing == "", ok, tt.name)
	}
}
