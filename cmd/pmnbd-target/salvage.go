package main

import (
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// salvage returns the regions that a configuration file with mistakes names, as far as they matter to
// a save. It reads line by line, and leaves out what it does not understand. Whether there are such
// regions and images, the save finds.
func salvage(file string) []servedRegion {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	all := []servedRegion{{}} // the lines above the first table
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(strings.TrimSpace(line), "[") {
			all = append(all, servedRegion{})
			continue
		}
		var said struct{ Name, Path, Save any }
		if toml.Unmarshal([]byte(line), &said) != nil {
			continue
		}
		r := &all[len(all)-1]
		for _, key := range []struct {
			value any
			to    *string
		}{{said.Name, &r.Name}, {said.Path, &r.Path.string}, {said.Save, &r.Save.string}} {
			if text, ok := key.value.(string); ok {
				*key.to = text
			}
		}
	}
	return all[1:]
}
