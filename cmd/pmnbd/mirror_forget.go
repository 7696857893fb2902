package main

import (
	"errors"
	"fmt"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
)

const mirrorForgetHelp = `Has the etcd that is the arbiter of a mirror forget which generation the mirror is in. Use it when you have
decided to go on with members that are not in sync by what etcd holds: those that are will not come back, or
etcd was restored from a backup. Name in --target members that can be reached. Without --force it only shows
what etcd holds. With --force the next start needs --degraded and --arbiter: it begins with what the members
have, and tells etcd. What only members have that are away is lost to the mirror then.

It is refused while a pmnbd has the mirror.

Usage:
  pmnbd mirror forget --target iwarp://HOST:PORT/REGION,… --arbiter etcd://HOST:PORT [--force]
`

// forgetMirror runs `pmnbd mirror forget`.
func forgetMirror(call *command.Call) (err error) {
	var who identity
	var targets []string
	var arbitrated arbiterSpec
	set := call.Flags
	set.StringArrayVar(&targets, "target", nil, "members of the mirror, `iwarp://HOST:PORT/REGION` with commas between")
	force := set.Bool("force", false, "do it: the mirror then goes on with what the members have")
	arbitrated.declare(set)
	who.declare(set)
	if err := call.Parse(); err != nil {
		return err
	}
	if err := arbitrated.parse(set); err != nil {
		return err
	}
	at, err := parseTargets(targets)
	if err != nil {
		return err
	}
	if len(at) == 0 || arbitrated.uri == "" {
		return flags.Usagef("name members of the mirror with --target, and the etcd with --arbiter")
	}
	cfg, err := who.config(at)
	if err != nil {
		return err
	}
	etcd, err := arbitrated.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	cfg.Arbiter, cfg.Log = etcd, daemon.Slog(daemon.Log(call.Stderr))
	ctx, stop := daemon.UntilSignal()
	defer stop()
	x, err := remote.FindForgetting(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	members := fmt.Sprintf("the members that were reached know generation %s, with %s in sync", x.Newest, x.NewestF)
	switch {
	case x.Held == "":
		_, err = fmt.Fprintf(call.Stdout, "etcd holds nothing of mirror %s; %s\n", x.Set, members)
		return err
	case !*force:
		return fmt.Errorf("etcd holds generation %s of mirror %s, with %s in sync; %s. --force has etcd forget it", x.Held, x.Set, x.F, members)
	}
	if err := x.Do(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(call.Stdout, "etcd has forgotten generation %s of mirror %s, with %s in sync; %s\n"+
		"the next start begins with those: pmnbd serve --target %s --degraded --arbiter %s\n", x.Held, x.Set, x.F, members, uris(at), arbitrated.uri)
	return err
}
