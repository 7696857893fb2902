package main

import "pmnbd/cmd/internal/configfile"

// fileSettings has every key. A test compares it with config.
var fileSettings = configfile.Settings{
	"listen":               {Takes: `a list of addresses: listen = ["iwarp://127.0.0.1:7204"]`, Kinds: configfile.List, Items: configfile.Text},
	"key-file":             {Takes: `a path in quotes: key-file = "/etc/pmnbd/keys"`, Kinds: configfile.Text},
	"name":                 {Takes: `a name in quotes: name = "pm1"`, Kinds: configfile.Text},
	"insecure-no-auth":     {Takes: "true or false, without quotes", Kinds: configfile.Boolean},
	"allow-volatile":       {Takes: "true or false, without quotes", Kinds: configfile.Boolean},
	"direct-write-to-pmem": {Takes: "true or false, without quotes", Kinds: configfile.Boolean},
	"relaxed-ordering":     {Takes: "true or false, without quotes", Kinds: configfile.Boolean},
	"battery-command":      {Takes: `a command in quotes: battery-command = "upsc ups@localhost"`, Kinds: configfile.Text},
	"numa":                 {Takes: `"auto", "off" or the number of a node: numa = "auto"`, Kinds: configfile.Number},
	"spin":                 {Takes: `a duration in quotes: spin = "50us"`, Kinds: configfile.Text},
	"control":              {Takes: `a socket in quotes: control = "unix:/run/pmnbd/target.sock"`, Kinds: configfile.Text},
	"metrics":              {Takes: `a port, or an address in quotes: metrics = "127.0.0.1:9204"`, Kinds: configfile.Number},
	"log-level":            {Takes: `a level in quotes: log-level = "debug"`, Kinds: configfile.Text},
	"region":               {Takes: "a table for each region, under a line [[region]]", Kinds: configfile.Tables, Items: configfile.Table},
	"region.name":          {Takes: `a name in quotes: name = "log"`, Kinds: configfile.Text},
	"region.path":          {Takes: `a path in quotes: path = "/var/lib/pmnbd-target/log"`, Kinds: configfile.Text},
	"region.parts":         {Takes: `a list of paths, the first part's first: parts = ["/dev/dax0.0", "/dev/dax1.0"]`, Kinds: configfile.List, Items: configfile.Text},
	"region.size":          {Takes: `a size in quotes, or bytes: size = "8G"`, Kinds: configfile.Number},
	"region.save":          {Takes: `a directory in quotes: save = "/var/lib/pmnbd-target/saved"`, Kinds: configfile.Text},
	"region.encrypted":     {Takes: "true or false, without quotes", Kinds: configfile.Boolean},
	"region.allow":         {Takes: `a list of ids: allow = ["6f9619ff-8b86-d011-b42d-00c04fc964ff"]`, Kinds: configfile.List, Items: configfile.Text},
}

// load reads the configuration file at path.
func (c *config) load(path string) error {
	if err := fileSettings.Load(path, c); err != nil {
		return err
	}
	for i := range c.Regions {
		if err := c.Regions[i].whole(); err != nil {
			return err
		}
	}
	return nil
}
