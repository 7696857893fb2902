package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/configfile"
	"pmnbd/cmd/internal/flags"
)

// notInFile are the flags that the file of --config does not have. The last five are what a person
// decides for one start: in a file each start would decide it again.
var notInFile = []string{"config", "check", "target", "export", "accept-loss", "takeover", "degraded", "without-arbiter", "degraded-single"}

// fileSettings returns every key of the file: the flags of serve, and the tables [[export]].
func fileSettings(set *pflag.FlagSet) configfile.Settings {
	all := configfile.Settings{
		"export":        {Takes: "a table for each export, under a line [[export]]", Kinds: configfile.Tables, Items: configfile.Table},
		"export.name":   {Takes: `a name in quotes: name = "log"`, Kinds: configfile.Text},
		"export.target": {Takes: `an address in quotes: target = "iwarp://pm1/log", or a list of a mirror's members`, Kinds: slices.Concat(configfile.Text, configfile.List), Items: configfile.Text},
	}
	set.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notInFile, f.Name) {
			all[f.Name] = settingOf(f)
		}
	})
	return all
}

// settingOf says what the file takes for a flag.
func settingOf(f *pflag.Flag) configfile.Setting {
	switch f.Value.Type() {
	case "bool":
		return configfile.Setting{Takes: "true or false, without quotes", Kinds: configfile.Boolean}
	case "int":
		return configfile.Setting{Takes: "a number: " + f.Name + " = " + f.DefValue, Kinds: configfile.Number[1:]}
	case "stringArray":
		example := "unix:/run/pmnbd.sock"
		if f.Name == "ublk" {
			example = "log=/dev/ublkb0"
		}
		return configfile.Setting{Takes: "a list in quotes: " + f.Name + ` = ["` + example + `"]`, Kinds: configfile.List, Items: configfile.Text}
	case "duration":
		return configfile.Setting{Takes: "a duration in quotes: " + f.Name + ` = "30s"`, Kinds: configfile.Text}
	case "SIZE":
		return configfile.Setting{Takes: "a size in quotes, or bytes: " + f.Name + ` = "64M"`, Kinds: configfile.Number}
	case "[HOST:]PORT":
		return configfile.Setting{Takes: "a port, or an address in quotes: " + f.Name + ` = "127.0.0.1:9204"`, Kinds: configfile.Number}
	}
	return configfile.Setting{Takes: "a text in quotes: " + f.Name + ` = "…"`, Kinds: configfile.Text}
}

// load reads the file of --config into the flags that the command line does not have, and into u. If
// that has a target, the file's exports do not count.
func load(path string, call *command.Call, u *unread) error {
	keys := fileSettings(call.Flags)
	var all map[string]any
	if err := keys.Load(path, &all); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	lines := keys.Lines(b)
	var wrong []error
	for key, value := range all {
		name := strings.ToLower(key)
		if name == "export" {
			if !call.Flags.Changed("target") {
				wrong = append(wrong, u.export(path, value))
			}
			continue
		}
		if call.Flags.Changed(name) {
			continue
		}
		u.filed = append(u.filed, name)
		for _, v := range texts(value) {
			if err := call.Set(name, v); err != nil {
				wrong = append(wrong, flags.Usagef("%s:%d: %v", path, lines[name], err))
			}
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return errors.Join(wrong...)
}

// export reads the tables [[export]] of the file at path.
func (u *unread) export(path string, tables any) error {
	all, _ := tables.([]any)
	named := false
	for i, t := range all {
		table := make(map[string]any)
		for key, value := range t.(map[string]any) { // the kinds are checked
			table[strings.ToLower(key)] = value
		}
		name, _ := table["name"].(string)
		targets := texts(table["target"])
		if len(targets) == 0 {
			return flags.Usagef("%s: export %d, %q, has no target: write target = \"iwarp://HOST:PORT/REGION\" below its [[export]]", path, i+1, name)
		}
		u.targets, u.names = append(u.targets, strings.Join(targets, ",")), append(u.names, name)
		named = named || name != ""
	}
	if !named {
		u.names = nil
	}
	return nil
}

// texts returns a value of the file as flags take it: several of a list.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case nil:
	case []any:
		for _, item := range v {
			all = append(all, texts(item)...)
		}
	case bool:
		all = append(all, strconv.FormatBool(v))
	default:
		all = append(all, fmt.Sprint(v))
	}
	return all
}
