package prefixed_test

import (
	"os"
	"testing"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/store/prefixed"
	"github.com/coracle-io/coracle/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return prefixed.New(mem.New(), "/staging") })
}

func TestKeysAreBelowThePrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"/staging":  "/staging/pods/a/b",
		"staging/":  "/staging/pods/a/b",
		"/a/b":      "/a/b/pods/a/b",
		"":          "/pods/a/b",
		"registry":  "/registry/pods/a/b",
		"/registry": "/registry/pods/a/b",
	} {
		below := mem.New()
		if _, err := prefixed.New(below, prefix).Create(t.Context(), "/registry/pods/a/b", []byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := below.Get(t.Context(), want); err != nil {
			t.Errorf("%q: %s: %v", prefix, want, err)
		}
	}
}
