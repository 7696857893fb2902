package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
)

const mirrorDiscardHelp = `Gives up what a member wrote that went its own way, so that the mirror can have it back. LEG is the URI of that
member, one of --target. Give --target the members to keep as well: they must be reached, and must agree. Without
--force it only shows what would be lost. With --force the next pmnbd serve of the mirror copies everything to
the member.

Copy out what you need before: pmnbd serve --target LEG --degraded-single --read-only.

Usage:
  pmnbd mirror discard --target iwarp://HOST:PORT/REGION,… LEG [--force]
`

// discardMember runs `pmnbd mirror discard`.
func discardMember(call *command.Call) (err error) {
	var who identity
	var targets []string
	set := call.Flags
	set.StringArrayVar(&targets, "target", nil, "the members of the mirror, `iwarp://HOST:PORT/REGION` with commas between")
	force := set.Bool("force", false, "do it: the member's own writes are lost")
	who.declare(set)
	if err := call.Parse("LEG"); err != nil {
		return err
	}
	at, err := parseTargets(targets)
	if err != nil {
		return err
	}
	if len(at) < 2 {
		return flags.Usagef("name all members in --target, those to keep and the one to discard")
	}
	leg, err := flags.ParseTarget(set.Arg(0))
	if err != nil {
		return flags.Usagef("LEG: %v", err)
	}
	member := 1 + slices.IndexFunc(at, leg.Same)
	if member == 0 {
		return flags.Usagef("%s is none of the targets", leg)
	}
	cfg, err := who.config(at)
	if err != nil {
		return err
	}
	cfg.Log = daemon.Slog(daemon.Log(call.Stderr))
	ctx, stop := daemon.UntilSignal()
	defer stop()
	x, err := remote.FindDiscard(ctx, cfg, member)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	by := ""
	if x.Holder != uuid.Nil {
		by = fmt.Sprintf(", by initiator %s", x.Holder)
	}
	writes := fmt.Sprintf("all that was written in its own generations up to %s on %s", x.Generation, x.F)
	if x.Torn {
		writes = fmt.Sprintf("a half-made copy of what %s has in generation %s, and the record that says so", x.F, x.Generation)
	}
	what := fmt.Sprintf("member %s, %s: %s%s. Generation %s stays, which %s has", x.Member, at[member-1], writes, by, x.Kept, x.KeptBy)
	if x.Also != "" {
		what += fmt.Sprintf(". %s may have such writes, too, and is copied to as well when it comes back", x.Also)
	}
	if !*force {
		return fmt.Errorf("this would give up what %s; --force does it", what)
	}
	if err := x.Do(ctx); err != nil {
		return err
	}
	next := "the next pmnbd serve copies everything to it: pmnbd serve --target " + uris(at)
	if x.Served {
		next = "a pmnbd serves the mirror, and copies everything to it after its next start"
	}
	_, err = fmt.Fprintf(call.Stdout, "given up: %s\n%s\n", what, next)
	return err
}
