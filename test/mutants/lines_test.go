package mutants

// lines is of the assembly that writes cache lines back. The tests that replace it see
// nothing of it.
var lines = []mutant{
	{
		name: "every other line is written back", rule: "§3.3 every line of a range",
		file: "persist/flush/flush_amd64.s", old: "	CLWB (AX)\n	ADDQ $64, AX\n", new: "	CLWB (AX)\n	ADDQ $128, AX\n",
		pkg: "./persist/flush", run: "^TestInstructions$", needs: "qemu-x86_64-static", few: true,
	}, {
		name: "no fence behind the lines", rule: "§3.3 a fence on the same core",
		file: "persist/flush/flush_amd64.s",
		old:  "	CLWB (AX)\n	ADDQ $64, AX\n	DECQ CX\n\ntest:\n	TESTQ CX, CX\n	JG    next\n	SFENCE\n",
		new:  "	CLWB (AX)\n	ADDQ $64, AX\n	DECQ CX\n\ntest:\n	TESTQ CX, CX\n	JG    next\n",
		pkg:  "./persist/flush", run: "^TestInstructions$", needs: "qemu-x86_64-static",
	}, {
		name: "no DSB behind the lines", rule: "§3.3 a fence on the same core",
		file: "persist/flush/flush_arm64.s", old: "	BGT next\n	DSB $15         // SY\n", new: "	BGT next\n",
		pkg: "./persist/flush", run: "^TestInstructions$", needs: "qemu-aarch64-static",
	}, {
		name: "cleaned to the point of coherency", rule: "§3.3 DC CVAC is no substitute",
		file: "persist/flush/flush_arm64.s", old: "DC  CVAP, R0", new: "DC  CVAC, R0",
		pkg: "./persist/flush", run: "^TestInstructions$", needs: "qemu-aarch64-static",
	},
}
