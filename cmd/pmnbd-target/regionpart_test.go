package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist/region"
)

// What an operator does with a region of several parts.
func TestRegionOfParts(t *testing.T) {
	dir := testhost.Memory(t)
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	code, out, errs := ran("region", "create", "big", "--part", a, "--part", b, "--part", c, "--size-per-part", "1M")
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Equal(t, "created region big at "+a+" + "+b+" + "+c+": 3M, class volatile: its contents go with the power, serve needs --allow-volatile\n", out)

	code, out, errs = ran("region", "inspect", a, "--part", b, "--part", c)
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Regexp(t, `parts +3, with stamp 2\n`, out)
	require.Regexp(t, `part 2 +`+c+`, 1M, class volatile; copy 0: good, copy 1: good\n`, out)
	require.Regexp(t, `superblock +version 3, `, out)
	code, out, _ = ran("region", "inspect", "--part", a, "--part", b, "--part", c, "--json")
	require.Zero(t, code)
	var v struct {
		Version int        `json:"version"`
		Parts   *partsView `json:"parts"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Equal(t, 3, v.Version)
	good := [2]string{"good", "good"}
	require.Equal(t, &partsView{Count: 3, Stamp: 2, Parts: []partView{
		{Path: a, Size: 1 << 20, Class: "volatile", Stamp: 2, Copies: good},
		{Path: b, Size: 1 << 20, Start: 1 << 20, Class: "volatile", Stamp: 2, Copies: good},
		{Path: c, Size: 1 << 20, Start: 2 << 20, Class: "volatile", Stamp: 2, Copies: good},
	}}, v.Parts)
	_, out, _ = ran("region", "inspect", a)
	require.Regexp(t, `parts +3, of which this is the first`, out)

	code, out, _ = ran("region", "list", dir)
	require.Zero(t, code)
	require.Regexp(t, `big +3M +volatile +clean +`+a+`\n`, out)
	require.Regexp(t, `[-0-9a-f]{36} +1M +volatile +part 1 of 3 +`+b+`\n`, out)

	for _, wrong := range [][]string{{"inspect", b}, {"inspect", a, "--part", c, "--part", b}, {"clear", a, "--reason", "x"}, {"remove", a}, {"remove", b}} {
		code, _, errs = ran(append([]string{"region"}, wrong...)...)
		require.Equal(t, 1, code, wrong)
		require.Contains(t, errs, "part", wrong)
	}
	for _, usage := range [][]string{
		{"create", "x", "--part", ""}, {"create", "x", "--part", a, "--part", b, "--size", "1M"}, {"create", "x", a, "--size-per-part", "1M"},
		{"create", "x", a, "--part", b, "--size-per-part", "1"}, {"inspect"}, {"remove"}, {"clear", "--reason", "x"},
	} {
		code, _, errs = ran(append([]string{"region"}, usage...)...)
		require.Equal(t, 2, code, errs)
	}

	code, out, errs = ran("region", "clear", a, "--part", b, "--part", c, "--reason", "tried")
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Contains(t, out, "cleared region big")
	code, _, errs = ran("region", "remove", "--part", a, "--part", b, "--part", c)
	require.Equal(t, 1, code)
	require.Contains(t, errs, region.ErrNotClean.Error())
	code, _, errs = ran("region", "remove", "--part", a, "--part", b, "--part", c, "--force")
	require.Zero(t, code, errs)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
