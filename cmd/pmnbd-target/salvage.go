package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// salvage returns the regions that a configuration file with mistakes names, as far as they matter to
// a save. Whether there are such regions and images, the save finds.
func salvage(file string) []servedRegion {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var whole any
	if toml.Unmarshal(b, &whole) == nil {
		return regionsIn(whole)
	}
	return regionsAmong(string(b))
}

// regionsIn finds regions in what the decoder made of a file. It looks into every table: the mistake may
// be in the name of one.
func regionsIn(v any) (all []servedRegion) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			all = append(all, regionsIn(item)...)
		}
	case map[string]any:
		var r servedRegion
		for _, key := range slices.Sorted(maps.Keys(v)) { // capitals first: of two spellings the one in the documentation counts
			r.take(key, v[key])
			all = append(all, regionsIn(v[key])...)
		}
		all = append(all, r)
	}
	return all
}

// marks matches what regionsAmong looks at: comments, the beginning and the end of tables, and keys with a
// text.
var marks = regexp.MustCompile(`(?m)#.*|^[ \t]*\[|[{}]|` +
	`["']?[\w-]+["']?[ \t]*=[ \t]*("""(?s:.*?)"""|'''(?s:.*?)'''|"([^"\\\n]|\\.)*"|'[^'\n]*')`)

// regionsAmong finds regions in a file that is no TOML. A key that it cannot read costs no other key.
func regionsAmong(file string) []servedRegion {
	all := []servedRegion{{}}
	for _, mark := range marks.FindAllString(file, -1) {
		r := &all[len(all)-1]
		if strings.ContainsAny(mark[len(mark)-1:], "[{}") && mark[0] != '#' {
			all = append(all, servedRegion{})
			continue
		}
		var said map[string]any
		if toml.Unmarshal([]byte(mark), &said) != nil {
			continue
		}
		if r.Name != "" && r.Path.string != "" && r.Save.string != "" {
			// Nothing of it is missing, so the beginning of another one is.
			all = append(all, servedRegion{})
			r = &all[len(all)-1]
		}
		for key, value := range said {
			r.take(key, value)
		}
	}
	return all
}

// take takes over a key that matters to a save.
func (r *servedRegion) take(key string, value any) {
	text, ok := value.(string)
	if !ok {
		return
	}
	switch strings.ToLower(key) {
	case "name":
		r.Name = text
	case "path":
		r.Path.take(text)
	case "save":
		r.Save.take(text)
	}
}

// take takes over a path, as it stands if quotes are missing.
func (p *regionPath) take(text string) {
	if p.UnmarshalText([]byte(text)) != nil {
		p.string = text
	}
}
