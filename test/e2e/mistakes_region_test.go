package e2e

// regionMistakes are mistakes with pmnbd-target region.
var regionMistakes = []mistake{
	{
		name: "region: no command", code: 2,
		line: "pmnbd-target region",
		says: "a command is missing: use create, inspect, list, remove or clear, or --help",
	},
	{
		name: "region: unknown command", code: 2,
		line: "pmnbd-target region make",
		says: `unknown command "make": use create, inspect, list, remove or clear, or --help`,
	},
	{
		name: "region: unknown flag", code: 2,
		line: "pmnbd-target region inspect --sise 1",
		says: "unknown flag: --sise (flags here: …)",
	},
	{
		name: "region: no flags", code: 2,
		line: "pmnbd-target region list --json {disk}",
		says: "unknown flag: --json (there are no flags here but --help)",
	},
	{
		name: "create: no path", code: 2,
		line: "pmnbd-target region create r",
		says: "PATH is missing: name the region's file or device, or all of its parts with --part",
	},
	{
		name: "create: no size", code: 1,
		line: "pmnbd-target region create r {new}",
		says: "{new}: no region size: there is no such file, and a new region needs a size: use --size",
	},
	{
		name: "create: an invalid size", code: 2,
		line: "pmnbd-target region create r {new} --size much",
		says: `--size: "much" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "create: a size between blocks", code: 2,
		line: "pmnbd-target region create r {new} --size 4097",
		says: "--size 4097: region size 4097 bytes: use a positive multiple of 4096",
	},
	{
		name: "create: a size of zero", code: 2,
		line: "pmnbd-target region create r {new} --size 0",
		says: "--size 0: region size 0 bytes: use a positive multiple of 4096",
	},
	{
		name: "create: more than the disk has", code: 1,
		line: "pmnbd-target region create r {new} --size 4000000T",
		says: "{new}: no room for 4398046511106097152 bytes, … are free: no space left on device",
	},
	{
		name: "create: an invalid name", code: 2,
		line: "pmnbd-target region create a/b {new} --size 16M",
		says: `region name "a/b": use letters, digits, '.', '_' and '-', and begin with a letter or digit`,
	},
	{
		name: "create: an existing region", code: 1,
		line: "pmnbd-target region create free {free} --size 16M",
		says: "{free}: not empty: it holds data; --force discards all of it",
	},
	{
		name: "create: a region that is served", code: 1,
		line: "pmnbd-target region create good {good} --size 16M --force",
		says: "{good}: region is in use: a pmnbd-target serves or changes it",
	},
	{
		name: "create: other data", code: 1,
		line: "pmnbd-target region create r {data} --size 16M",
		says: "{data}: not empty: it holds data; --force discards all of it",
	},
	{
		name: "create: a directory", code: 1,
		line: "pmnbd-target region create r {disk} --size 16M",
		says: "open {disk}: is a directory",
	},
	{
		name: "create: a missing directory", code: 1,
		line: "pmnbd-target region create r {disk}/none/r --size 16M",
		says: "open {disk}/none/r: no such file or directory",
	},
	{
		name: "create: a missing device", code: 1,
		line: "pmnbd-target region create log /dev/dax9.9",
		says: "/dev/dax9.9: no such device: use a device that exists, or a path outside /dev",
	},
	{
		name: "create: an invalid device", code: 1,
		line: "pmnbd-target region create log /dev/null",
		says: "/dev/null: memory refused: a character device: put the region on ext4, xfs or f2fs (class file), or on tmpfs (class volatile)",
	},
	{
		name: "create: anonymous memory", code: 1,
		line: "pmnbd-target region create log memfd: --size 16M",
		says: "memory refused: anonymous memory exists only while pmnbd-target serves it: `serve --region NAME=memfd:,size=SIZE` makes it",
	},
	{
		name: "create: where we may not write", code: 1, nobody: true,
		line: "pmnbd-target region create r /var/lib/pmnbd-nothing --size 16M",
		says: "open /var/lib/pmnbd-nothing: permission denied",
	},
	{
		name: "inspect: no file", code: 1,
		line: "pmnbd-target region inspect {new}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "inspect: no region", code: 1,
		line: "pmnbd-target region inspect {zeroes}",
		says: "{zeroes}: no pmnbd superblock: make a region with `pmnbd-target region create`",
	},
	{
		name: "inspect: a directory", code: 1,
		line: "pmnbd-target region inspect {disk}",
		says: "{disk}: no pmnbd superblock: memory refused: not a regular file",
	},
	{
		name: "list: no directory", code: 1,
		line: "pmnbd-target region list {new}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "list: a file", code: 1,
		line: "pmnbd-target region list {free}",
		says: "open {free}: not a directory",
	},
	{
		name: "list: no region", code: 1,
		line: "pmnbd-target region list {empty}",
		says: "no region found",
	},
	{
		name: "remove: no file", code: 1,
		line: "pmnbd-target region remove {new}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "remove: no region", code: 1,
		line: "pmnbd-target region remove {zeroes}",
		says: "{zeroes}: not removed: no pmnbd superblock",
	},
	{
		name: "remove: a region that is served", code: 1,
		line: "pmnbd-target region remove {good}",
		says: "{good}: region is in use: a pmnbd-target serves or changes it",
	},
	{
		name: "clear: no reason", code: 2,
		line: "pmnbd-target region clear {free}",
		says: "--reason is missing: say why, such as --reason 'disk replaced, fsck clean'",
	},
	{
		name: "clear: a region that is served", code: 1,
		line: "pmnbd-target region clear {good} --reason test",
		says: "{good}: region is in use: a pmnbd-target serves or changes it",
	},
	{
		name: "create: no name", code: 2,
		line: "pmnbd-target region create",
		says: "NAME is missing: give NAME [PATH]",
	},
	{
		name: "create: surplus words", code: 2,
		line: "pmnbd-target region create r {new} 4M",
		says: `"4M" is one argument too many: give NAME [PATH]`,
	},
	{
		name: "create: another class", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --class volatile",
		says: `--class "volatile": only class protected is declared; leave the flag out for the others, which are found out`,
	},
	{
		name: "create: an empty class", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --class=",
		says: "--class is empty: give it a value, or leave the flag out",
	},
	{
		name: "create: protected, and no image", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --class protected",
		says: "--save is missing: class protected needs a directory for its image, on a disk",
	},
	{
		name: "create: an image without the class", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --save {empty}",
		says: "--save and --save-within are for class protected: add --class protected, or leave them out",
	},
	{
		name: "create: a time to save without the class", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --save-within 5m",
		says: "--save and --save-within are for class protected: add --class protected, or leave them out",
	},
	{
		name: "create: no time to save", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --class protected --save {empty} --save-within 0s",
		says: "--save-within 0s: use a time such as 2m",
	},
	{
		name: "create: a time to save without a unit", code: 2,
		line: "pmnbd-target region create r {new} --size 4M --class protected --save {empty} --save-within 2",
		says: `--save-within: "2" has no unit: use 2s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "create: an image in a missing directory", code: 1,
		line: "pmnbd-target region create r {new} --size 4M --class protected --save {disk}/none",
		says: "open {disk}/none/r.save: no such file or directory",
	},
	{
		name: "create: protected on a disk", code: 1,
		line: "pmnbd-target region create r {new} --size 4M --class protected --save {empty}",
		says: "memory refused: class protected is for files on tmpfs or hugetlbfs",
	},
	{
		name: "create: a size per part of one", code: 2,
		line: "pmnbd-target region create r {new} --size-per-part 4M",
		says: "--size-per-part is for a region of several parts: use --size",
	},
	{
		name: "create: a size of several parts", code: 2,
		line: "pmnbd-target region create r --part {new} --part {new}2 --size 4M",
		says: "--size is for a region of one part: use --size-per-part",
	},
	{
		name: "create: an invalid size per part", code: 2,
		line: "pmnbd-target region create r --part {new} --part {new}2 --size-per-part 5",
		says: "--size-per-part 5: region size 5 bytes: use a positive multiple of 4096",
	},
	{
		name: "create: no size per part", code: 1,
		line: "pmnbd-target region create r --part {new} --part {new}2",
		says: "part 0: {new}: no region size: there is no such file, and a new part needs a size: use --size-per-part",
	},
	{
		name: "create: a part twice", code: 1,
		line: "pmnbd-target region create r --part {new} --part {new} --size-per-part 4M",
		says: "part 1: {new}: wrong parts: it is part 0 already",
	},
	{
		name: "create: an empty part", code: 2,
		line: "pmnbd-target region create r --part {new} --part= --size-per-part 4M",
		says: "--part names no file or device",
	},
	{
		name: "create: a part with other data", code: 1,
		line: "pmnbd-target region create r --part {new} --part {data} --size-per-part 4M",
		says: "part 1, {data}: {data}: not empty: it holds data; --force discards all of it",
	},
	{
		name: "inspect: no path", code: 2,
		line: "pmnbd-target region inspect",
		says: "PATH is missing: name the region's file or device, or all of its parts with --part",
	},
	{
		name: "inspect: surplus words", code: 2,
		line: "pmnbd-target region inspect {free} {good}",
		says: `"{good}" is one argument too many: give [PATH]`,
	},
	{
		name: "inspect: no image", code: 1,
		line: "pmnbd-target region inspect {free} --save {empty}",
		says: "open {empty}/free.save: no such file or directory",
	},
	{
		name: "inspect: an empty image's directory", code: 2,
		line: "pmnbd-target region inspect {free} --save=",
		says: "--save is empty: give it a value, or leave the flag out",
	},
	{
		name: "inspect: parts of a region that has none", code: 1,
		line: "pmnbd-target region inspect --part {free} --part {zeroes}",
		says: "{free}: wrong parts: region free has 1, and 2 were named: name all of them in their order, as in --region free=A,part=B",
	},
	{
		name: "inspect: no control socket", code: 2,
		line: "pmnbd-target region inspect {free} --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "inspect: another user's file", code: 1, nobody: true,
		line: "pmnbd-target region inspect {free}",
		says: "open {free}: permission denied",
	},
	{
		name: "list: no directory named", code: 2,
		line: "pmnbd-target region list",
		says: "DIR is missing: give DIR […]",
	},
	{
		name: "list: another user's directory", code: 1, nobody: true,
		line: "pmnbd-target region list {rootonly}",
		says: "open {rootonly}: permission denied",
	},
	{
		name: "remove: no path", code: 2,
		line: "pmnbd-target region remove",
		says: "PATH is missing: name the region's file or device, or all of its parts with --part",
	},
	{
		name: "remove: surplus words", code: 2,
		line: "pmnbd-target region remove {free} {good}",
		says: `"{good}" is one argument too many: give [PATH]`,
	},
	{
		name: "remove: a directory", code: 1,
		line: "pmnbd-target region remove {disk}",
		says: "open {disk}: is a directory",
	},
	{
		name: "remove: an image of a region of another class", code: 1,
		line: "pmnbd-target region remove {free} --save {empty}",
		says: "{free}: save refused: the region is of class file and has no image: leave save out",
	},
	{
		name: "remove: parts of a region that has none", code: 1,
		line: "pmnbd-target region remove --part {free} --part {zeroes}",
		says: "{free}: not removed: wrong parts: region free has 1, and 2 were named: name all of them in their order, as in --region free=A,part=B",
	},
	{
		name: "remove: one part of several", code: 1,
		line: "pmnbd-target region remove {split}",
		says: "{split}: not removed: wrong parts: region split has 2: name the further ones with --part",
	},
	{
		name: "clear: no path", code: 2,
		line: "pmnbd-target region clear --reason test",
		says: "PATH is missing: name the region's file or device, or all of its parts with --part",
	},
	{
		name: "clear: an empty reason", code: 2,
		line: "pmnbd-target region clear {free} --reason=",
		says: "--reason is missing: say why, such as --reason 'disk replaced, fsck clean'",
	},
	{
		name: "clear: no file", code: 1,
		line: "pmnbd-target region clear {new} --reason test",
		says: "open {new}: no such file or directory",
	},
	{
		name: "clear: no region", code: 1,
		line: "pmnbd-target region clear {zeroes} --reason test",
		says: "{zeroes}: no pmnbd superblock: make a region with `pmnbd-target region create`",
	},
	{
		name: "clear: an image of a region of another class", code: 1,
		line: "pmnbd-target region clear {free} --reason test --save {empty}",
		says: "{free}: save refused: the region is of class file and has no image: leave save out",
	},
	{
		name: "clear: an image and parts", code: 2,
		line: "pmnbd-target region clear --part {split} --part {split2} --reason test --save {empty}",
		says: "--save and --part: a region of class protected has no parts",
	},
	{
		name: "clear: parts of a region that has none", code: 1,
		line: "pmnbd-target region clear --part {free} --part {zeroes} --reason test",
		says: "{free}: wrong parts: region free has 1, and 2 were named: name all of them in their order, as in --region free=A,part=B",
	},
	{
		name: "create: unknown flag", code: 2,
		line: "pmnbd-target region create r {new} --sise 4K",
		says: "unknown flag: --sise (flags here: …)",
	},
	{
		name: "create: an empty file and no size", code: 1,
		line: "pmnbd-target region create r {nothing}",
		says: "{nothing}: region size: the file has 0 bytes, and a region needs at least 2101248: give a size",
	},
	{
		name: "create: where no files can be made", code: 1,
		line: "pmnbd-target region create r /proc/r --size 4M",
		says: "open /proc/r: no such file or directory",
	},
	{
		name: "inspect: an empty file", code: 1,
		line: "pmnbd-target region inspect {nothing}",
		says: "{nothing}: no pmnbd superblock: make a region with `pmnbd-target region create`",
	},
	{
		name: "remove: forced, and no region", code: 1,
		line: "pmnbd-target region remove {zeroes} --force",
		says: "{zeroes}: not removed: no pmnbd superblock",
	},
}
