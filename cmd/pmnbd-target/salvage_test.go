package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// A mistake in the file is found at the shutdown, when nobody is there to mend it. Every region that can be
// found in the file all the same is saved, in whichever form it is written.
func TestSaveOfAFileWithMistakes(t *testing.T) {
	memory, disk := testhost.Memory(t), testhost.Disk(t)
	quoted := strconv.Quote
	keys := make(map[string][]string) // of a region, as they stand in the file
	for _, name := range []string{"a", "b,b"} {
		name, path := name[:1], filepath.Join(memory, name)
		code, _, errs := ran("region", "create", name, path, "--size", "4M", "--class", "protected", "--save", disk)
		require.Zero(t, code, errs)
		keys[name] = []string{"name = " + quoted(name), "path = " + quoted(flags.QuotePath(path)), "save = " + quoted(disk)}
	}
	nowhere := []string{`path = "/nowhere"`, "save = " + quoted(disk)}
	forms := map[string]func(regions [][]string) string{
		"tables": func(regions [][]string) (file string) {
			for _, r := range regions {
				file += "[[region]]\n" + strings.Join(r, "\n") + "\n"
			}
			return file
		},
		"one line": func(regions [][]string) string {
			var items []string
			for _, r := range regions {
				items = append(items, "{"+strings.Join(r, ", ")+"}")
			}
			return "region = [" + strings.Join(items, ", ") + "]\n"
		},
		"a line each": func(regions [][]string) string {
			file := "region = [\n"
			for _, r := range regions {
				file += "  { " + strings.Join(r, ", ") + " },\n"
			}
			return file + "]\n"
		},
		"a line for each key": func(regions [][]string) string { // is no TOML before its version 1.1
			file := "region = [\n"
			for _, r := range regions {
				file += "  {\n    " + strings.Join(r, ",\n    ") + "\n  },\n"
			}
			return file + "]\n"
		},
	}
	for name, c := range map[string]struct {
		line   string   // of the file
		region []string // a third one, beside a and b
		more   string   // a key of b
		says   string
	}{
		"an unknown key":             {line: "lisen = 5", says: `lisen"`},
		"a value":                    {line: `spin = "soon"`, says: "spin"},
		"an empty value":             {line: `key-file = ""`, says: "key-file"},
		"a key twice":                {line: "spin = \"1us\"\nspin = \"2us\"", says: "spin"},
		"no TOML":                    {line: `listen = ["iwarp://127.0.0.1:7204"`, says: "target.toml:"},
		"no TOML, with the name":     {line: "name = \"pm1\"\nspin = 5us", says: "target.toml:"},
		"no TOML in a region":        {region: append([]string{`name = "c`}, nowhere...), says: "target.toml:"},
		"an unknown key in a region": {region: append([]string{`name = "c"`, "sise = 5"}, nowhere...), says: "target.toml:"},
		"a wrong type in a region":   {region: append([]string{"name = 5"}, nowhere...), says: "name"},
		"an empty path":              {region: []string{`name = "c"`, `path = ""`, "save = " + quoted(disk)}, says: "path"},
		"no quotation marks":         {region: append([]string{`name = "c"`, "size = 4M"}, nowhere...), says: "target.toml:"},
		"nobody may have one":        {more: "allow = []", says: `region "b": nobody is allowed`},
		"a size beside its image":    {more: `size = "4M"`, says: `region "b": save and size`},
		"a region twice":             {region: keys["a"], says: "region a is named twice"},
		"a name twice":               {region: append([]string{`name = "a"`}, nowhere...), says: "region a is named twice"},
	} {
		for form, write := range forms {
			regions := [][]string{keys["a"], keys["b"]}
			if c.more != "" {
				regions[1] = append([]string{c.more}, keys["b"]...)
			}
			texts := map[string]string{"behind": write(regions) + c.line + "\n", "before": c.line + "\n" + write(regions)}
			if c.region != nil {
				texts = map[string]string{"behind": write(append(regions, c.region)), "before": write([][]string{c.region, keys["a"], keys["b"]})}
			}
			for place, text := range texts {
				t.Run(name+" "+place+" "+form, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "target.toml")
					require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
					code, out, errs := ran("save", "--config", path)
					require.Equal(t, 2, code, errs)
					if form != "a line for each key" { // where that is what is wrong
						require.Contains(t, errs, c.says)
					}
					require.Equal(t, 1, strings.Count(out, "region a saved: "), out)
					require.Equal(t, 1, strings.Count(out, "region b saved: "), out)
				})
			}
		}
	}
	require.Empty(t, salvage(filepath.Join(disk, "nowhere")))
}

// What salvage finds in files that are wrong in other ways.
func TestSalvage(t *testing.T) {
	const a, b = "name = 'a'\npath = '/a'\nsave = '/s'\n", "NAME = \"b\"\npath = '/b'\nsave = '/s'\n"
	for name, c := range map[string]struct{ file, want string }{
		"no table":               {a, "a=/a"},
		"another table":          {"[[regoin]]\n" + a + "[region]\n" + b, "a=/a b=/b"},
		"a table in a table":     {"[[x.y]]\n" + a, "a=/a"},
		"no line between two":    {"[[region]]\n" + a + b, "a=/a b=/b"},
		"half a line":            {"[[region]]\n" + a + "[[region\n" + b, "a=/a b=/b"},
		"a comment":              {"x = \n#[[region]]\n#" + strings.ReplaceAll(a, "\n", "\n#") + "\n[[region]]\n" + b, "b=/b"},
		"a comment that is none": {"x = \nbattery-command = 'a # [{'\n[[region]] # x\n" + a, "a=/a"},
		"long texts":             {"x = \n[[region]]\nname = \"\"\"\na\"\"\"\npath = '''/a'''\nsave = '/s'", "a=/a"},
		"quoted keys":            {"x = \n[[region]]\n\"name\" = 'a'\n'path' = '/a'\nsave = '/s'", "a=/a"},
		"escapes":                {"x = \n[[region]]\nname = \"\\u0061\"\npath = \"/\\\"a\"\nsave = '/s'", `a=/"a`},
		"a comma":                {"x = \n[[region]]\nname = 'a'\npath = '/a,b'\nsave = '/s'", "a=/a,b"},
		"a key twice":            {"[[region]]\nname = 'a'\npath = '/x'\npath = '/a'\nsave = '/s'", "a=/a"},
		"keys in two spellings":  {"[[region]]\nname = 'a'\nNAME = 'x'\npath = '/a'\nPath = '/x'\nPATH = '/x'\nsave = '/s'\nSave = '/x'\nSAVE = '/x'", "a=/a"},
		"nothing":                {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "target.toml")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			var found []string
			for _, r := range salvage(path) {
				if r.Save.string != "" {
					found = append(found, r.Name+"="+r.Path.string)
				}
			}
			slices.Sort(found)
			require.Equal(t, c.want, strings.Join(found, " "))
		})
	}
}

// A region whose memory is not there, and whose image is not whole, is not saved: its filesystem may have
// been unmounted too early.
func TestSaveWithoutMemory(t *testing.T) {
	testhost.CanLock(t, region.DataOffset+4<<20)
	memory, disk := testhost.Memory(t), testhost.Disk(t)
	path, file := filepath.Join(memory, "fast"), filepath.Join(t.TempDir(), "target.toml")
	code, _, errs := ran("region", "create", "fast", path, "--size", "4M", "--class", "protected", "--save", disk)
	require.Zero(t, code, errs)
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[[region]]\nname = \"fast\"\npath = %q\nsave = %q\n", path, disk), 0o600))
	away := path + ".away"
	require.NoError(t, os.Rename(path, away))
	code, out, errs := ran("save", "--config", file)
	require.Zero(t, code, errs)
	require.Equal(t, "region fast has no memory: its image stays as it is\n", out)

	// The disk with the image may be away, too.
	image := region.ImagePath(disk, "fast")
	require.NoError(t, os.Rename(image, image+".away"))
	code, out, _ = ran("save", "--config", file)
	require.Equal(t, 1, code)
	require.Contains(t, out, "region fast NOT SAVED: "+path+" is not there, and nobody knows what the image has")
	require.NoError(t, os.Rename(image+".away", image))

	require.NoError(t, os.Rename(away, path))
	r, err := region.Open(path, region.OpenOptions{Name: "fast", Save: disk})
	require.NoError(t, err)
	require.NoError(t, r.Zero(persist.Range{Len: 4096}))
	require.NoError(t, r.Close())
	require.NoError(t, os.Rename(path, away))
	code, out, _ = ran("save", "--config", file)
	require.Equal(t, 1, code)
	require.Equal(t, "region fast NOT SAVED: "+path+" is not there, and the image lacks what it had: mount it again, or the region is lost\n", out)

	require.NoError(t, os.Rename(away, path))
	code, out, errs = ran("save", "--config", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, "region fast saved: ")
}
