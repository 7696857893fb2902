package e2e

// servedRegionMistakes are mistakes with --region of pmnbd-target serve.
var servedRegionMistakes = []mistake{
	{
		name: "target: a region without a path", code: 2,
		line: "pmnbd-target serve --region r",
		says: `--region: region "r": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted]`,
	},
	{
		name: "target: a region with an empty path", code: 2,
		line: "pmnbd-target serve --region r=",
		says: `region "r": it has no path`,
	},
	{
		name: "target: a region without a name", code: 2,
		line: "pmnbd-target serve --region ={good}",
		says: `region "": region name has 0 bytes: use 1 to 255`,
	},
	{
		name: "target: a name with a slash", code: 2,
		line: "pmnbd-target serve --region a/b={good}",
		says: `region "a/b": region name "a/b": use letters, digits, '.', '_' and '-', and begin with a letter or digit`,
	},
	{
		name: "target: a misspelt option", code: 2,
		line: "pmnbd-target serve --region v={new},alow={id},size=16M --listen iwarp://127.0.0.1:0",
		says: `--region: region "v": unknown option "alow": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted], and double quotes around a PATH with a comma in it`,
	},
	{
		name: "target: a path with a comma", code: 2,
		line: "pmnbd-target serve --region v={new},b",
		says: `--region: region "v": unknown option "b": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted], and double quotes around a PATH with a comma in it`,
	},
	{
		name: "target: an unterminated quotation", code: 2,
		line: `pmnbd-target serve --region v="{new},b`,
		says: `--region: region "v": "{new},b: the quotation mark at its beginning has no other at the end`,
	},
	{
		name: "target: an invalid size", code: 2,
		line: "pmnbd-target serve --region v={new},size=big",
		says: `--region: region "v": "big" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "target: a size with a wrong unit", code: 2,
		line: "pmnbd-target serve --region v={new},size=16MB",
		says: `--region: region "v": "16MB" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "target: a size between blocks", code: 2,
		line: "pmnbd-target serve --region v={new},size=4097",
		says: `--region: region "v": region size 4097 bytes: use a positive multiple of 4096`,
	},
	{
		name: "target: an invalid id", code: 2,
		line: "pmnbd-target serve --region v={new},allow=me",
		says: `--region: region "v": allow: "me" is not the id of an initiator: use a UUID, as in the file initiator-id of its state directory`,
	},
	{
		name: "target: anonymous memory without a size", code: 2,
		line: "pmnbd-target serve --region r=memfd:",
		says: `region "r": anonymous memory needs a size`,
	},
	{
		name: "target: anonymous memory, volatile", code: 1,
		line: "pmnbd-target serve --region r=memfd:,size=16M --listen iwarp://127.0.0.1:0",
		says: "region r: memfd:: region is volatile: it loses its contents with the power; --allow-volatile permits that",
	},
	{
		name: "target: another size", code: 1,
		line: "pmnbd-target serve --region free={free},size=32M --listen iwarp://127.0.0.1:0",
		says: "region free: {free}: region size: it has 4194304 bytes, not 33554432: a region keeps its size, so leave the size out, or name another path",
	},
	{
		name: "target: a missing device, with a size", code: 1,
		line: "pmnbd-target serve --region r=/dev/dax9.9,size=16M --listen iwarp://127.0.0.1:0",
		says: "region r: /dev/dax9.9: no such device: use a device that exists, or a path outside /dev",
	},
	{
		name: "target: a missing directory", code: 1,
		line: "pmnbd-target serve --region r={disk}/none/r,size=16M --listen iwarp://127.0.0.1:0",
		says: "region r: open {disk}/none/r: no such file or directory",
	},
	{
		name: "target: an empty region", code: 2,
		line: "pmnbd-target serve --region=",
		says: `--region: region "": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted]`,
	},
	{
		name: "target: a comma behind a region", code: 2,
		line: "pmnbd-target serve --region r={good},",
		says: `--region: region "r": unknown option "": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted], and double quotes around a PATH with a comma in it`,
	},
	{
		name: "target: a size twice", code: 2,
		line: "pmnbd-target serve --region r={new},size=4M,size=8M",
		says: `--region: region "r": its size is given twice`,
	},
	{
		name: "target: an empty size", code: 2,
		line: "pmnbd-target serve --region r={new},size=",
		says: `--region: region "r": "" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "target: a size of zero", code: 2,
		line: "pmnbd-target serve --region r={new},size=0",
		says: `--region: region "r": region size 0 bytes: use a positive multiple of 4096`,
	},
	{
		name: "target: a second id that is none", code: 2,
		line: "pmnbd-target serve --region r={good},allow={id},allow=me",
		says: `--region: region "r": allow: "me" is not the id of an initiator: use a UUID, as in the file initiator-id of its state directory`,
	},
	{
		name: "target: the nil UUID", code: 2,
		line: "pmnbd-target serve --region r={good},allow=00000000-0000-0000-0000-000000000000",
		says: `--region: region "r": allow: "00000000-0000-0000-0000-000000000000" is not the id of an initiator: use a UUID, as in the file initiator-id of its state directory`,
	},
	{
		name: "target: a name with a plus", code: 2,
		line: "pmnbd-target serve --region a+b={good}",
		says: `region "a+b": region name "a+b": use letters, digits, '.', '_' and '-', and begin with a letter or digit`,
	},
	{
		name: "target: encrypted, and no address is", code: 2,
		line: "pmnbd-target serve --region r={good},encrypted",
		says: `region "r": it is encrypted, and no address is: add --listen iwarps://HOST`,
	},
	{
		name: "target: encrypted with a value", code: 2,
		line: "pmnbd-target serve --region r={good},encrypted=no",
		says: `--region: region "r": encrypted has no value: use ,encrypted`,
	},
	{
		name: "target: a part without a path", code: 2,
		line: "pmnbd-target serve --region r={good},part=",
		says: `--region: region "r": part names no file or device`,
	},
	{
		name: "target: a part without a value", code: 2,
		line: "pmnbd-target serve --region r={good},part",
		says: `--region: region "r": unknown option "part": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted], and double quotes around a PATH with a comma in it`,
	},
	{
		name: "target: a part twice", code: 2,
		line: "pmnbd-target serve --region r={good},part={free},part={free}",
		says: `region "r": part {free} is named twice`,
	},
	{
		name: "target: the path for a part", code: 2,
		line: "pmnbd-target serve --region r={good},part={good}",
		says: `region "r": part {good} is named twice`,
	},
	{
		name: "target: anonymous memory for a part", code: 2,
		line: "pmnbd-target serve --region r={good},part=memfd:",
		says: `region "r": anonymous memory cannot be a part`,
	},
	{
		name: "target: parts with a size", code: 2,
		line: "pmnbd-target serve --region r={good},part={free},size=4M",
		says: "region \"r\": a region of several parts is not made by serve: leave size out, and make it with `pmnbd-target region create r --part PATH --part PATH --size-per-part SIZE`",
	},
	{
		name: "target: parts with an image", code: 2,
		line: "pmnbd-target serve --region r={good},part={free},save={empty}",
		says: `region "r": a region of class protected cannot have several parts`,
	},
	{
		name: "target: a missing part", code: 1,
		line: "pmnbd-target serve --region free={free},part={new} --listen iwarp://127.0.0.1:0",
		says: "region free: part 1 of the region: open {new}: no such file or directory: without it the region cannot be served: bring the file or device back",
	},
	{
		name: "target: a part of a region that has none", code: 1,
		line: "pmnbd-target serve --region free={free},part={zeroes} --listen iwarp://127.0.0.1:0",
		says: "region free: {free}: wrong parts: region free has 1, and 2 were named: name all of them in their order, as in --region free=A,part=B",
	},
	{
		name: "target: a region without its parts", code: 1,
		line: "pmnbd-target serve --region split={split} --listen iwarp://127.0.0.1:0",
		says: "region split: {split}: wrong parts: region split has 2, and 1 were named: name all of them in their order, as in --region split=A,part=B",
	},
	{
		name: "target: parts in another order", code: 1,
		line: "pmnbd-target serve --region split={split2},part={split} --listen iwarp://127.0.0.1:0",
		says: "region split: {split2}: further part of a region: part 1 of 2 (from 0) of the region with UUID …: name the region's first part first, then this one with --part or part=",
	},
	{
		name: "target: an image's directory without a path", code: 2,
		line: "pmnbd-target serve --region r={good},save=",
		says: `--region: region "r": save names no directory`,
	},
	{
		name: "target: an image's directory without a value", code: 2,
		line: "pmnbd-target serve --region r={good},save",
		says: `--region: region "r": unknown option "save": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted], and double quotes around a PATH with a comma in it`,
	},
	{
		name: "target: an image's directory twice", code: 2,
		line: "pmnbd-target serve --region r={good},save={empty},save={empty}",
		says: `--region: region "r": save is given twice`,
	},
	{
		name: "target: an image's directory, not quoted at the end", code: 2,
		line: `pmnbd-target serve --region r={good},save="{empty}`,
		says: `--region: region "r": "{empty}: the quotation mark at its beginning has no other at the end`,
	},
	{
		name: "target: an image and a size", code: 2,
		line: "pmnbd-target serve --region r={new},save={empty},size=4M",
		says: `region "r": save and size exclude each other: leave size out if the region exists, or make it first: pmnbd-target region create r PATH --class protected --save DIR --size SIZE`,
	},
	{
		name: "target: an image of anonymous memory", code: 2,
		line: "pmnbd-target serve --region r=memfd:,save={empty}",
		says: `region "r": anonymous memory has no image: leave save out, or make a region with an image: pmnbd-target region create r PATH --class protected --save DIR --size SIZE`,
	},
	{
		name: "target: an image of a region of another class", code: 1,
		line: "pmnbd-target serve --region free={free},save={empty} --listen iwarp://127.0.0.1:0",
		says: "region free: {free}: save refused: the region is of class file and has no image: leave save out",
	},
	{
		name: "target: no image", code: 1,
		line: "pmnbd-target serve --region r={new},save={empty} --listen iwarp://127.0.0.1:0",
		says: "region r: save refused: open {empty}/r.save: no such file or directory: region \"r\" has no image there: mount the disk that has it; if it is gone for good, discard the contents with `pmnbd-target region create --force --class protected --save DIR`",
	},
	{
		name: "target: protected memory at another path", code: 1,
		line: "pmnbd-target serve --region live={live}.typo,save={saved} --listen iwarp://127.0.0.1:0",
		says: "region live: {live}.typo: save refused: there is no memory, but that of this region lies at {live}: name that path; if it is not to be used, remove it",
	},
	{
		name: "target: a read-only file", code: 1, nobody: true,
		line: "pmnbd-target serve --region read={readonly} --listen iwarp://127.0.0.1:0",
		says: "region read: open {readonly}: permission denied: it belongs to uid 0, its mode is 0444, and this process runs as uid 65534: run pmnbd-target as its owner, or give that user access",
	},
}
