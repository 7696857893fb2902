package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"pmnbd/cmd/internal/flags"
)

// A setting is what a key of the configuration file takes. The decoder's own errors would name
// Go types, or no line.
type setting struct {
	takes string // for people, with an example
	kinds []unstable.Kind
	items []unstable.Kind // of a list
}

var (
	text    = []unstable.Kind{unstable.String}
	number  = []unstable.Kind{unstable.String, unstable.Integer}
	boolean = []unstable.Kind{unstable.Bool}
	array   = []unstable.Kind{unstable.Array}
)

// fileSettings has every key. A test compares it with config.
var fileSettings = map[string]setting{
	"listen":               {`a list of addresses: listen = ["iwarp://127.0.0.1:7204"]`, array, text},
	"key-file":             {`a path in quotes: key-file = "/etc/pmnbd/keys"`, text, nil},
	"name":                 {`a name in quotes: name = "pm1"`, text, nil},
	"insecure-no-auth":     {"true or false, without quotes", boolean, nil},
	"allow-volatile":       {"true or false, without quotes", boolean, nil},
	"direct-write-to-pmem": {"true or false, without quotes", boolean, nil},
	"relaxed-ordering":     {"true or false, without quotes", boolean, nil},
	"numa":                 {`"auto", "off" or the number of a node: numa = "auto"`, number, nil},
	"spin":                 {`a duration in quotes: spin = "50us"`, text, nil},
	"control":              {`a socket in quotes: control = "unix:/run/pmnbd/target.sock"`, text, nil},
	"metrics":              {`a port, or an address in quotes: metrics = "127.0.0.1:9204"`, number, nil},
	"log-level":            {`a level in quotes: log-level = "debug"`, text, nil},
	"region":               {"a table for each region, under a line [[region]]", []unstable.Kind{unstable.ArrayTable, unstable.Array}, []unstable.Kind{unstable.InlineTable}},
	"region.name":          {`a name in quotes: name = "log"`, text, nil},
	"region.path":          {`a path in quotes: path = "/var/lib/pmnbd-target/log"`, text, nil},
	"region.size":          {`a size in quotes, or bytes: size = "8G"`, number, nil},
	"region.encrypted":     {"true or false, without quotes", boolean, nil},
	"region.allow":         {`a list of ids: allow = ["6f9619ff-8b86-d011-b42d-00c04fc964ff"]`, array, text},
}

// load reads the configuration file at path.
func (c *config) load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if line, err := checkKinds(b); err != nil {
		return flags.Usagef("%s:%d: %v", path, line, err)
	}
	d := toml.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err = d.Decode(c)
	var unknown *toml.StrictMissingError
	var broken *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		e := &unknown.Errors[0]
		line, _ := e.Position()
		return flags.Usagef("%s:%d: unknown key %q: docs/configuration.md has all of them", path, line, strings.Join(e.Key(), "."))
	case errors.As(err, &broken):
		line, _ := broken.Position()
		says := strings.TrimPrefix(broken.Error(), "toml: ")
		key := strings.ToLower(strings.Join(broken.Key(), "."))
		if table, _, _ := strings.Cut(key, "."); strings.HasPrefix(says, "cannot ") && fileSettings[table].takes != "" {
			says = takes(table).Error() // a key below one that is no table
		} else if key != "" {
			says = key + ": " + says
		}
		return flags.Usagef("%s:%d: %s", path, line, says)
	case err != nil:
		return flags.Usagef("%s: %v", path, err)
	}
	return nil
}

// checkKinds looks for a key with a value of the wrong kind, and returns its line. It leaves
// unknown keys, and what is not TOML, to the decoder.
func checkKinds(file []byte) (line int, err error) {
	var p unstable.Parser
	p.Reset(file)
	table := ""
	for err == nil && p.NextExpression() {
		e := p.Expression()
		key, at := keyOf(&p, e)
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = key
			if s, known := fileSettings[key]; known && !slices.Contains(s.kinds, e.Kind) {
				return at, takes(key)
			}
		case unstable.KeyValue:
			line, err = checkValue(&p, join(table, key), at, e.Value())
		}
	}
	return line, err
}

// checkValue checks the value of key, and the values inside that.
func checkValue(p *unstable.Parser, key string, at int, v *unstable.Node) (line int, err error) {
	s, known := fileSettings[key]
	if !known {
		return at, nil
	}
	negative := v.Kind == unstable.Integer && bytes.HasPrefix(v.Data, []byte("-"))
	if negative || !slices.Contains(s.kinds, v.Kind) {
		return at, takes(key)
	}
	if v.Kind != unstable.Array {
		return at, nil
	}
	for items := v.Children(); items.Next(); {
		item := items.Node()
		if !slices.Contains(s.items, item.Kind) {
			return at, takes(key)
		}
		if item.Kind == unstable.InlineTable {
			for pairs := item.Children(); pairs.Next(); {
				inner, at := keyOf(p, pairs.Node())
				if line, err = checkValue(p, join(key, inner), at, pairs.Node().Value()); err != nil {
					return line, err
				}
			}
		}
	}
	return at, nil
}

func takes(key string) error { return fmt.Errorf("%s takes %s", key, fileSettings[key].takes) }

// keyOf returns the key of an expression, and its line.
func keyOf(p *unstable.Parser, e *unstable.Node) (key string, line int) {
	parts := e.Key()
	for parts.Next() {
		n := parts.Node()
		if key == "" {
			line = p.Shape(n.Raw).Start.Line
		}
		key = join(key, strings.ToLower(string(n.Data)))
	}
	return key, line
}

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}
