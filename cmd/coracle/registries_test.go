package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// A mirror that is given by itself is added to the stored mirrors and logins; a
// file that is given replaces them.
func TestMirrorsAreAddedToStoredRegistries(t *testing.T) {
	const stored = "mirrors: {docker.io: {endpoint: [\"https://a.example\"]}}\nconfigs: {a.example: {auth: {username: u, password: kept}}}\n"
	kept := host.Settings{Options: cluster.Options{Node: &cluster.NodeOptions{Registries: stored}}}
	file := filepath.Join(t.TempDir(), "registries.yaml")
	if err := os.WriteFile(file, []byte("mirrors: {b.example: {endpoint: [\"https://c.example\"]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args      []string
		kept      host.Settings
		want, not []string
	}{
		{[]string{"--registry-mirror=docker.io=https://b.example"}, kept, []string{"https://a.example", "https://b.example", "kept"}, nil},
		{[]string{"--registry-mirror=docker.io=https://b.example"}, host.Settings{}, []string{"https://b.example"}, []string{"kept"}},
		{[]string{"--registry-mirror=docker.io=https://b.example", "--registries=" + file}, kept, []string{"https://b.example", "https://c.example"}, []string{"https://a.example", "kept"}},
		{[]string{"--registry-mirror=docker.io=https://b.example", "--registries="}, kept, []string{"https://b.example"}, []string{"https://a.example", "kept"}},
		{nil, kept, nil, []string{"https://a.example"}},
	} {
		f := newUpFlags()
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		f.bind(fs)
		if err := fs.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		fs.Visit(func(flag *pflag.Flag) { f.set = append(f.set, flag.Name) })
		if err := f.readRegistries(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a start that is tried again
			if err := f.keepRegistries(c.kept); err != nil {
				t.Fatal(err)
			}
		}
		got := f.settings.Options.Node.Registries
		has := func(text string) bool { return strings.Contains(got, text) }
		if slices.ContainsFunc(c.not, has) || slices.ContainsFunc(c.want, func(text string) bool { return !has(text) }) {
			t.Errorf("%q becomes\n%s\nwant %q, not %q", c.args, got, c.want, c.not)
		}
		if strings.Count(got, "https://b.example") > 1 {
			t.Errorf("%q adds the mirror twice", c.args)
		}
	}
}
