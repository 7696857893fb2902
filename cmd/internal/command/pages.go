package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"pmnbd/internal/release"
)

// generate runs the two commands that packages are built with: man prints a manual page, completion
// what bash completes. Both are made of the same commands and flags as the help.
func (c *Command) generate(what string, w io.Writer) error {
	text := c.man()
	if what == "completion" {
		text = c.completion()
	}
	_, err := io.WriteString(w, text)
	return err
}

// each calls f with c and all commands below it, and their flags.
func (c *Command) each(name string, f func(name string, c *Command, set *pflag.FlagSet)) {
	call := NewCall([]string{"--help"}, io.Discard, io.Discard)
	if c.Run != nil {
		_ = c.Run(call) // declares the flags, and returns pflag.ErrHelp
	}
	f(name, c, call.Flags)
	for i := range c.Commands {
		c.Commands[i].each(name+" "+c.Commands[i].Name, f)
	}
}

// man is the manual page, in section 8, since these are programs of administrators.
func (c *Command) man() string {
	var b strings.Builder
	first, _, _ := strings.Cut(c.Help, "\n")
	what := strings.TrimRight(strings.TrimPrefix(strings.TrimPrefix(first, c.Name+" "), "is a "), ".:")
	fmt.Fprintf(&b, ".TH %s 8 \"\" \"pmnbd %s\" \"System Administration\"\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(c.Name)), release.Version, roff(c.Name), roff(what))
	c.each(c.Name, func(name string, c *Command, set *pflag.FlagSet) {
		fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", roff(strings.ToUpper(name)), roff(strings.TrimSpace(c.Help)))
		set.VisitAll(func(f *pflag.Flag) {
			value, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, ".TP\n\\fB\\-\\-%s\\fR %s\n%s\n", roff(f.Name), roff(value), roff(usage))
			if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && !strings.Contains(usage, "(default") {
				fmt.Fprintf(&b, "(default %s)\n", roff(f.DefValue))
			}
		})
	})
	return b.String()
}

// roff escapes text for a manual page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "'", `\(aq`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// completion is a script for bash: it completes commands and flags, and otherwise files.
func (c *Command) completion() string {
	var b strings.Builder
	fn := "_" + strings.ReplaceAll(c.Name, "-", "_")
	fmt.Fprintf(&b, "# bash completion of %s\n%s() {\n\tlocal path=%s word\n\tfor word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n\t\tcase \"$path $word\" in\n", c.Name, fn, c.Name)
	var words strings.Builder
	c.each(c.Name, func(name string, c *Command, set *pflag.FlagSet) {
		var all []string
		for _, sub := range c.Commands {
			all = append(all, sub.Name)
		}
		set.VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
		if strings.Contains(name, " ") {
			fmt.Fprintf(&b, "\t\t%q) path=%q ;;\n", name, name)
		}
		fmt.Fprintf(&words, "\t%q) word=%q ;;\n", name, strings.Join(append(all, "--help"), " "))
	})
	fmt.Fprintf(&b, "\t\tesac\n\tdone\n\tcase $path in\n%s\tesac\n\tmapfile -t COMPREPLY < <(compgen -W \"$word\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n}\ncomplete -o default -F %s %s\n", words.String(), fn, c.Name)
	return b.String()
}
