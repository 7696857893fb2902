package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInsert(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":     {"package p\n\nfunc f() { g() }\n", ""},
		"a lock":      {"package p\n\nfunc f() {\n\tm.Lock()\n}\n", "package p; import \"pmnbd/internal/delay\"\n\nfunc f() {\n\t delay.Now(); m.Lock()\n}\n"},
		"a goroutine": {"package p\n\nfunc f() { go func() { g() }() }\n", "package p; import \"pmnbd/internal/delay\"\n\nfunc f() { go func() { delay.Now();  g() }() }\n"},
		"of a group":  {"package p\n\nfunc f() { w.Go(func() { g() }) }\n", "package p; import \"pmnbd/internal/delay\"\n\nfunc f() { w.Go(func() { delay.Now();  g() }) }\n"},
		"a select": {
			"package p\n\nfunc f() {\n\tselect {\n\tcase <-c:\n\tdefault:\n\t}\n}\n",
			"package p; import \"pmnbd/internal/delay\"\n\nfunc f() {\n\tselect {\n\tcase <-c: delay.Now(); \n\tdefault:\n\t}\n}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := insert([]byte(c.text))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	_, err := insert([]byte("no source"))
	require.Error(t, err)
}
