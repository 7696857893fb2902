// Package configfile reads configuration files. It exists so that both daemons take TOML in the
// same way, and find everything that is wrong with a file at once, each with its line: the TOML
// decoder ends at the first mistake, and names types of the program. The package imports flags.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"pmnbd/cmd/internal/flags"
)

// A Kind is the kind of a value in a file.
type Kind = unstable.Kind

// What keys take. Number also takes a text with a unit, such as "64M".
var (
	Text    = []Kind{unstable.String}
	Number  = []Kind{unstable.String, unstable.Integer}
	Boolean = []Kind{unstable.Bool}
	List    = []Kind{unstable.Array}
	Tables  = []Kind{unstable.ArrayTable, unstable.Array}
	Table   = []Kind{unstable.InlineTable} // an item of Tables in one line
)

// A Setting is what a key takes.
type Setting struct {
	Takes string // for people, with an example
	Kinds []Kind
	Items []Kind // of a list
}

// Settings has every key of a file, in lower case; those of tables have their table's name and a
// dot in front.
type Settings map[string]Setting

// Load reads the file at path into v, as the TOML decoder does. Its error has a flags.ErrUsage for
// each mistake that it finds.
func (s Settings) Load(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	w := walk{path: path, settings: s, seen: make(map[string]spelling)}
	w.file(b)
	if len(w.wrong) > 0 && w.p.Error() == nil {
		return errors.Join(w.wrong...)
	}
	// What is no TOML ends the walk, and the decoder says why.
	if err := s.decode(path, b, v); err != nil && !slices.ContainsFunc(w.wrong, func(e error) bool { return e.Error() == err.Error() }) {
		w.wrong = append(w.wrong, err)
	}
	return errors.Join(w.wrong...)
}

func (s Settings) decode(path string, b []byte, v any) error {
	d := toml.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var unknown *toml.StrictMissingError
	var broken *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		e := &unknown.Errors[0]
		line, _ := e.Position()
		return flags.Usagef("%s:%d: %v", path, line, errUnknown(strings.Join(e.Key(), ".")))
	case errors.As(err, &broken):
		line, _ := broken.Position()
		says := strings.TrimPrefix(broken.Error(), "toml: ")
		key := strings.ToLower(strings.Join(broken.Key(), "."))
		if table, _, _ := strings.Cut(key, "."); strings.HasPrefix(says, "cannot ") && s[table].Takes != "" {
			says = s.takes(table).Error() // a key below one that is no table
		} else if key != "" {
			says = key + ": " + says
		}
		return flags.Usagef("%s:%d: %s", path, line, says)
	case err != nil:
		return flags.Usagef("%s: %v", path, err)
	}
	return nil
}

// Lines returns the lines of a file on which its keys stand first.
func (s Settings) Lines(file []byte) map[string]int {
	w := walk{settings: s, seen: make(map[string]spelling), lines: make(map[string]int)}
	w.file(file)
	return w.lines
}

func (s Settings) takes(key string) error { return fmt.Errorf("%s takes %s", key, s[key].Takes) }

func errUnknown(key string) error {
	return fmt.Errorf("unknown key %q: docs/configuration.md has all of them", key)
}

// A walk looks for keys that nobody knows, for keys in two spellings, and for values of the wrong
// kind.
type walk struct {
	path     string
	settings Settings
	p        unstable.Parser
	seen     map[string]spelling // by key, of the file and of the tables that the walk is in
	lines    map[string]int      // nil: not wanted
	wrong    []error
}

// A spelling is how a key stands in the file.
type spelling struct {
	text string
	line int
}

func (w *walk) say(line int, err error) {
	w.wrong = append(w.wrong, flags.Usagef("%s:%d: %v", w.path, line, err))
}

func (w *walk) file(b []byte) {
	w.p.Reset(b)
	table, known := "", true
	for w.p.NextExpression() {
		e := w.p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, at := w.keyOf("", e)
			w.begin(key)
			table = key
			known = w.key(key, at, e.Kind)
		case unstable.KeyValue:
			if known {
				key, at := w.keyOf(table, e)
				w.value(key, at, e.Value())
			}
		}
	}
}

// key checks key, whose value is of kind. It reports false if what is in the value does not matter
// any more.
func (w *walk) key(key string, at int, kind Kind) bool {
	if _, is := w.lines[key]; !is && w.lines != nil {
		w.lines[key] = at
	}
	s, known := w.settings[key]
	switch {
	case known && slices.Contains(s.Kinds, kind):
		return true
	case known:
		w.say(at, w.settings.takes(key))
		return false
	}
	for above := key; strings.Contains(above, "."); {
		above = above[:strings.LastIndex(above, ".")]
		if s, known := w.settings[above]; known && !slices.Equal(s.Kinds, Tables) {
			w.say(at, w.settings.takes(above)) // key is below one that is no table
			return false
		}
	}
	w.say(at, errUnknown(key))
	return false
}

// value checks the value of key, and the values inside that.
func (w *walk) value(key string, at int, v *unstable.Node) {
	kind := v.Kind
	if kind == unstable.Integer && bytes.HasPrefix(v.Data, []byte("-")) {
		kind = unstable.Float // no key takes a negative number
	}
	if !w.key(key, at, kind) {
		return
	}
	if kind == unstable.String && len(v.Data) == 0 {
		// Decoded, it would be as if the key were not there.
		w.say(at, fmt.Errorf("%s is empty: it takes %s", key, w.settings[key].Takes))
		return
	}
	if kind != unstable.Array {
		return
	}
	for items := v.Children(); items.Next(); {
		item := items.Node()
		if !slices.Contains(w.settings[key].Items, item.Kind) {
			w.say(at, w.settings.takes(key))
			return
		}
		if item.Kind == unstable.InlineTable {
			w.begin(key)
			for pairs := item.Children(); pairs.Next(); {
				inner, at := w.keyOf(key, pairs.Node())
				w.value(inner, at, pairs.Node().Value())
			}
		}
	}
}

// keyOf returns the key of an expression in table, and its line.
func (w *walk) keyOf(table string, e *unstable.Node) (key string, line int) {
	key = table
	parts := e.Key()
	for parts.Next() {
		n := parts.Node()
		if line == 0 {
			line = w.p.Shape(n.Raw).Start.Line
		}
		above := key
		key = join(above, strings.ToLower(string(n.Data)))
		w.spelt(key, spelling{join(above, string(n.Data)), line})
	}
	return key, line
}

// begin forgets the keys of the table before, which may have the same name.
func (w *walk) begin(table string) {
	maps.DeleteFunc(w.seen, func(key string, _ spelling) bool { return strings.HasPrefix(key, table+".") })
}

// spelt refuses a second spelling of a key. The decoder refuses only a key that it has seen in the
// same spelling: of two it would keep both, or the last one.
func (w *walk) spelt(key string, now spelling) {
	first, seen := w.seen[key]
	switch _, known := w.settings[key]; {
	case !known:
	case !seen:
		w.seen[key] = now
	case first.text != now.text:
		w.say(now.line, fmt.Errorf("%s is another spelling of %s on line %d: keys are not case-sensitive, so keep one of the two", now.text, first.text, first.line))
	}
}

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}
