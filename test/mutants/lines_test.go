package mutants

// lines are mutants of the assembly that writes cache lines back. Tests that replace that code
// cannot see them.
var lines = []mutant{
	{
		name: "every other line is written back", rule: "§3.3 every line of a range",
		in:  "internal/flush.clwb",
		old: "CLWB (AX)\nADDQ $64, AX", new: "CLWB (AX)\nADDQ $128, AX",
		pkg: "./internal/flush", run: "^TestInstructions$", needs: "qemu-x86_64-static", few: true,
	}, {
		name: "no fence after the lines", rule: "§3.3 a fence on the same core",
		in:  "internal/flush.clwb",
		old: "CLWB (AX)\nADDQ $64, AX\nDECQ CX\ntest:\nTESTQ CX, CX\nJG    next\nSFENCE",
		new: "CLWB (AX)\nADDQ $64, AX\nDECQ CX\ntest:\nTESTQ CX, CX\nJG    next",
		pkg: "./internal/flush", run: "^TestInstructions$", needs: "qemu-x86_64-static",
	}, {
		name: "no DSB after the lines", rule: "§3.3 a fence on the same core",
		in:  "internal/flush.dccvap",
		old: "BGT next\nDSB $15", new: "BGT next",
		pkg: "./internal/flush", run: "^TestInstructions$", needs: "qemu-aarch64-static",
	}, {
		name: "lines are cleaned to the point of coherency", rule: "§3.3 DC CVAC is no substitute",
		in:  "internal/flush.dccvap",
		old: "DC  CVAP, R0", new: "DC  CVAC, R0",
		pkg: "./internal/flush", run: "^TestInstructions$", needs: "qemu-aarch64-static",
	},
}
